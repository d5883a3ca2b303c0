"""``cirl expert``: train one expert in the simulator and say how far it is from the exact optimum."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from agents.expert import noise_free_values
from agents.policies.policy import ConstantPolicy
from agents.solvers import Setting, save_expert, train_expert
from cirl_gym.types import FloatArray, Policy
from cirl_gym.worlds import tumour
from cirl_gym.worlds.exact import optimum
from irl.commands.options import ExpertOptions
from irl.commands.terminal import console
from irl.report.section import Table
from irl.report.terminal import show_table


def command(options: ExpertOptions) -> None:
    """Train an expert, print its learning curve and its returns, write it to a folder.

    It is compared with never, always and random treatment and with the exact optimum, start by start.

    Raises:
        ValueError: an option is not possible.
        OSError: the folder cannot be written to.
    """
    setting = Setting(options.weights, options.gamma)
    options.out.mkdir(parents=True, exist_ok=True)  # before minutes of training
    if options.patients < 2:
        raise ValueError(f"patients must be at least 2, got {options.patients}")
    torch.set_num_threads(1)
    rng = np.random.default_rng([options.seed, 1])
    starts = tumour.draw_start(setting.parameters, options.patients, rng)

    def values(policy: Policy) -> FloatArray:
        return noise_free_values(policy, setting.parameters, starts, setting.weights, setting.gamma)

    how: dict[str, Any] = {"seed": options.seed, "scale": options.scale}
    solved = train_expert(setting, options.algorithm, lambda policy: float(values(policy).mean()), **how)
    policies: dict[str, Policy] = {
        "never treat": ConstantPolicy(0, tumour.N_ACTIONS, rng),
        "always treat": ConstantPolicy(1, tumour.N_ACTIONS, rng),
        "random": ConstantPolicy(None, tumour.N_ACTIONS, rng),
        options.algorithm: solved.policy,
    }
    compared = {name: values(policy) for name, policy in policies.items()}
    best = optimum(setting.parameters, starts, [(setting.weights, setting.gamma)]).values[:, 0]
    path = save_expert(options.out, setting, options.algorithm, solved, **how)
    shown_on = console()
    curve = [[f"{point.steps:,}", f"{point.seconds:.1f}", f"{point.value:.4f}"] for point in solved.curve]
    show_table(Table("Learning curve", ["steps", "seconds", "value"], curve), shown_on)
    show_table(_value_table(compared, best, setting), shown_on)
    shown_on.print(f"Written to {path}", soft_wrap=True)


def _value_table(compared: dict[str, FloatArray], best: FloatArray, setting: Setting) -> Table:
    """``compared``: by policy, ``[n]`` discounted noise-free returns; ``best``: ``[n]`` what nobody exceeds."""
    title = f"Discounted returns without noise, weights {setting.weights}, gamma {setting.gamma:g}"
    rows = []
    for name, values in compared.items():
        short = best - values
        error = short.std(ddof=1) / np.sqrt(len(short))
        rows.append([name, f"{values.mean():.4f}", f"{short.mean():.4f} ± {error:.4f}"])
    rows.append(["optimal", f"{best.mean():.4f}", "0"])
    return Table(title, ["policy", "value", "short of optimal"], rows)
