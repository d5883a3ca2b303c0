"""How many patients it takes until it shows that experts weigh an outcome, beside habits like those of a table.

A world is fitted to a table, as in ``semi_synthetic.py``. Experts with habits near the table's who weigh one outcome
alone act in it on more and more patients, whose first observations are drawn from the table's. How strongly they weigh
it is given by what it changes: by how much what they foresee of it moves their logits, as a standard deviation over the
table's decisions. (What an action changes for every patient alike says how often it is given, and is left to habit.)
For each number of patients: how often the verdict is "beyond habit", how often the outcome's interval is on the right
side of 0, and by how much the experts' own chances foresee decisions better than any habit could. From the last follows
the number of patients that nobody can do without: where the gain, known exactly, is as large as a verdict asks for.

    python benchmarks/patients_needed.py TABLE [options of cirl explain] [--weighed lactate] [--strength 0.25 0.5 1]

All decisions are judged, not only as many as ``cirl explain`` takes, unless ``--decisions`` says how many. A run takes
the time of ``cirl explain``, in proportion to the decisions. One line is printed for each; a run whose file is in the
folder is not repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from semi_synthetic import Fitting, check_folder, fitted_ward
from stored import stored

from cirl_gym.files import StoredParts
from irl.result.result import BEYOND
from irl.semi_synthetic import Ward, fitted, true_gain

_OF_A_RUN = ("out", "weighed", "strength", "patients", "seeds")


@dataclass(frozen=True)
class Options(Fitting):
    """How many patients it takes until it shows that experts weigh an outcome."""

    weighed: str | None = None
    """The outcome that experts weigh; default: the first."""
    strength: tuple[float, ...] = (0.25, 0.5, 1.0)
    """By how much what is foreseen of it moves logits, as a standard deviation over the table's decisions."""
    patients: tuple[int, ...] = (300, 1000, 3000, 10_000)
    seeds: int = 3
    decisions: int | None = None
    """Of a run that are judged at most; default: all."""
    out: Path = Path("runs/patients_needed")


def run(ward: Ward, weighed: int, strength: float, patients: int, seed: int, decisions: int | None) -> dict[str, Any]:
    """Experts who weigh one outcome, what they do, and what is said of it."""
    rng = np.random.default_rng([seed, 0])
    w = np.zeros(len(ward.signs))
    w[weighed] = ward.signs[weighed] or -1.0
    experts = ward.experts_of(w, ward.strong(w, strength), rng)
    batch = ward.decisions(experts, patients, seed)
    posterior = replace(ward.config.posterior, decisions=decisions or batch.n_steps)
    config = replace(ward.config, posterior=posterior)
    found, said = fitted(batch, ward.agent.feature_map, ward.signs, config, seed, StoredParts())
    assert found.foreseen is not None
    judged = found.foreseen.judged
    return {
        "outcome": ward.agent.feature_map.features[weighed],
        "strength": strength,
        "true_kappa": experts.kappa,
        "patients": patients,
        "seed": seed,
        "truth": float(w[weighed]),
        "weight": said["weights"][weighed],
        "interval": said["intervals"][weighed],
        "judged": [judged.n_steps, len(set(judged.groups))],
        "gain": list(true_gain(experts, judged)),
        **said,
    }


def needed(found: Mapping[str, Any]) -> float:
    """Patients at which the true gain is as many standard errors above 0 as a verdict asks for."""
    (gain, error), (_, patients) = found["gain"], found["judged"]
    return float(patients * (BEYOND * error / gain) ** 2) if gain > 0 else float("inf")


def row(found: Mapping[str, Any]) -> str:
    """One run in a line."""
    (gain, error), (added, its), weighed = found["gain"], found["beyond_habit"], found["outcome"]
    return (
        f"{weighed} strength {found['strength']:<5g} kappa {found['true_kappa']:.0f} {found['patients']:6} patients "
        f"seed {found['seed']} "
        f"true gain {gain:+.4f} ({error:.4f}) seen {added:+.4f} ({its:.4f}) {found['verdict']}; "
        f"weight {found['weight']:+.2f} [{found['interval'][0]:+.2f}, {found['interval'][1]:+.2f}]"
        + ("" if found["converged"] else "; NOT CONVERGED")
    )


def table(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows of a table in Markdown: how often the outcome shows, by strength and patients."""
    lines = [
        "| strength | kappa | patients | true gain | beyond habit | sign known | patients at least |",
        "|---|---|---|---|---|---|---|",
    ]
    for strength, patients in dict.fromkeys((found["strength"], found["patients"]) for found in runs):
        own = [found for found in runs if (found["strength"], found["patients"]) == (strength, patients)]
        beyond, known = (sum(map(test, own)) for test in (_beyond, _known))
        gain, least = np.mean([found["gain"][0] for found in own]), np.median([needed(found) for found in own])
        shown = f"{beyond} of {len(own)} | {known} of {len(own)} | {least:.0f}"
        lines.append(f"| {strength:g} | {own[0]['true_kappa']:.0f} | {patients} | {gain:.4f} | {shown} |")
    return lines


def _beyond(found: Mapping[str, Any]) -> bool:
    return bool(found["verdict"] == "beyond habit")


def _known(found: Mapping[str, Any]) -> bool:
    low, high = found["interval"]
    return bool(low > 0 if found["truth"] > 0 else high < 0)


def main() -> None:
    asked = tyro.cli(Options, config=(tyro.conf.FlagCreatePairsOff,))
    torch.set_num_threads(1)
    check_folder({name: value for name, value in vars(asked).items() if name not in _OF_A_RUN}, asked.out)
    ward = fitted_ward(asked, StoredParts(asked.out / "world"))
    names = ward.agent.feature_map.features
    weighed = names[0] if asked.weighed is None else asked.weighed
    if weighed not in names:
        raise ValueError(f"--weighed: {weighed!r} is no outcome; the outcomes are {', '.join(names)}")
    found = []
    for strength, patients, seed in product(asked.strength, sorted(asked.patients), range(asked.seeds)):
        path = asked.out / f"outcome{names.index(weighed)}_{strength:g}_{patients}_{seed}.json"
        how = (ward, names.index(weighed), strength, patients, seed, asked.decisions)
        found.append(stored(path, partial(run, *how)))
        print(row(found[-1]), flush=True)
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
