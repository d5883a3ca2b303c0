"""``cirl expert``: train one expert in the simulator and say how far it is from the exact optimum."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from rich import box
from rich.console import Console
from rich.table import Table

from agents import Solver
from agents.expert import noise_free_values
from agents.policies.habits import ConstantPolicy
from agents.solvers import Setting, Solved, save_expert, train_expert
from cirl_gym.types import FloatArray, Policy
from cirl_gym.worlds import tumour
from cirl_gym.worlds.exact import optimum
from irl.commands.options import ExpertOptions


def command(options: ExpertOptions) -> None:
    """Run ``cirl expert``; raises as :func:`expert` does."""
    setting = Setting(options.weights, options.gamma)
    expert(setting, options.algorithm, options.out, patients=options.patients, seed=options.seed, scale=options.scale)


class JudgedExpert(NamedTuple):
    """What an expert is worth."""

    solved: Solved
    values: dict[str, FloatArray]
    """By policy, ``[n]`` discounted noise-free returns on the same starts."""
    optimal: FloatArray
    """``[n]`` what nobody exceeds."""


def judge(setting: Setting, algorithm: Solver, *, patients: int, seed: int, scale: float) -> JudgedExpert:
    """Train, and compare with never, always and random treatment and with the exact optimum, start by start.

    Raises:
        ValueError: an argument is not possible.
    """
    if patients < 2:
        raise ValueError(f"patients must be at least 2, got {patients}")
    torch.set_num_threads(1)
    rng = np.random.default_rng([seed, 1])
    starts = tumour.draw_start(setting.parameters, patients, rng)

    def values(policy: Policy) -> FloatArray:
        return noise_free_values(policy, setting.parameters, starts, setting.weights, setting.gamma)

    solved = train_expert(setting, algorithm, lambda policy: float(values(policy).mean()), seed=seed, scale=scale)
    compared: dict[str, Policy] = {
        "never treat": ConstantPolicy(0, tumour.N_ACTIONS, rng),
        "always treat": ConstantPolicy(1, tumour.N_ACTIONS, rng),
        "random": ConstantPolicy(None, tumour.N_ACTIONS, rng),
        algorithm: solved.policy,
    }
    best = optimum(setting.parameters, starts, [(setting.weights, setting.gamma)]).values[:, 0]
    return JudgedExpert(solved, {name: values(policy) for name, policy in compared.items()}, best)


def expert(setting: Setting, algorithm: Solver, out: Path, *, patients: int, seed: int, scale: float) -> JudgedExpert:
    """Train an expert, print its learning curve and its returns, write it to a folder.

    Raises:
        ValueError: an argument is not possible.
        OSError: the folder cannot be written to.
    """
    out.mkdir(parents=True, exist_ok=True)  # before minutes of training
    found = judge(setting, algorithm, patients=patients, seed=seed, scale=scale)
    path = save_expert(out, setting, algorithm, found.solved, seed=seed, scale=scale)
    console = Console(highlight=False)
    console.print(_curve_table(found.solved))
    console.print(_value_table(found, setting))
    console.print(f"Written to {path}", soft_wrap=True)
    return found


def _curve_table(solved: Solved) -> Table:
    table = Table("steps", "seconds", "value", title="Learning curve", box=box.SIMPLE_HEAD, title_justify="left")
    for point in solved.curve:
        table.add_row(f"{point.steps:,}", f"{point.seconds:.1f}", f"{point.value:.4f}")
    return table


def _value_table(found: JudgedExpert, setting: Setting) -> Table:
    title = f"Discounted returns without noise, weights {setting.weights}, gamma {setting.gamma:g}"
    table = Table("policy", "value", "short of optimal", title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for name, values in found.values.items():
        short = found.optimal - values
        error = short.std(ddof=1) / np.sqrt(len(short))
        table.add_row(name, f"{values.mean():.4f}", f"{short.mean():.4f} ± {error:.4f}")
    table.add_row("optimal", f"{found.optimal.mean():.4f}", "0")
    return table
