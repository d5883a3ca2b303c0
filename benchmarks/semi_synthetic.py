"""How often the truth comes back from a table whose experts are known: weights, kappa, habits and the verdict.

A world is fitted to a table. Experts with drawn weights, kappa and habits act in it: as many stays as the table has,
from the table's first observations, with sampled outcomes, until the world ends them. In a part of the runs kappa is 0,
and habit is all there is. What they leave behind is fitted as ``cirl explain`` does it, with habits and without
(``--habit none``), each run with its own seed. Their own chances are known, so it is too whether the outcomes matter
enough to be seen: whether these chances foresee the decisions that are judged better than any habit could, by more than
two standard errors.

    python benchmarks/semi_synthetic.py TABLE [options of cirl explain] [--runs 20] [--first 0] [--quick]

One line is printed for each run; a run whose file is in the folder is not repeated, so that a command that was stopped
goes on, and two commands with other ``--first`` can share a folder. A run takes twice the time of ``cirl explain``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from stored import stored
from tyro.conf import OmitArgPrefixes, Positional

from cirl_gym.data.batch import PREVIOUS, Batch
from cirl_gym.data.known import known_names
from cirl_gym.data.outcomes import changing
from cirl_gym.files import StoredParts, read_json, write_json
from cirl_gym.tables.read import prepare_table
from cirl_gym.tables.weighed import chosen_outcomes, known_signs
from cirl_gym.types import FloatArray
from irl.checks.metrics import coverage
from irl.commands.arguments import ModelArguments, TableArguments
from irl.semi_synthetic import Ward, borderline, brief, matters, run, ward_of
from irl.settings import FOLDS, FitConfig

_OF_A_RUN = ("out", "runs", "first", "no_none", "world_known")


@dataclass(frozen=True)
class Fitting:
    """What the experts' table is, and how it is fitted; the options are those of ``cirl explain``."""

    table: Positional[Path] = Path("examples/icu_like.csv")
    """The table to which the world is fitted."""
    columns: OmitArgPrefixes[TableArguments] = field(default_factory=TableArguments)
    outcomes: tuple[str, ...] = ()
    lower_is_better: tuple[str, ...] = ()
    sign: tuple[str, ...] = ()
    gamma: float = 0.99
    outcome_model: OmitArgPrefixes[ModelArguments] = field(default_factory=ModelArguments)
    quick: bool = False

    @property
    def config(self) -> FitConfig:
        """As ``cirl explain`` has it, :func:`brief`."""
        config = FitConfig(gamma=self.gamma, folds=FOLDS, habit=(PREVIOUS,))
        return brief(self.outcome_model.put_into(config.quick() if self.quick else config))


@dataclass(frozen=True)
class Options(Fitting):
    """Experts who are known act in a world fitted to a table, and are fitted as ``cirl explain`` does it."""

    runs: int = 20
    first: int = 0
    """Number of the first run, its seed."""
    no_none: bool = False
    """Leave out the fit without habits, which takes a third of the time."""
    world_known: bool = False
    """Judge the decisions in the world that they were made in, too: what is then wrong is no error of a world model."""
    out: Path = Path("runs/semi_synthetic")


def fitted_ward(asked: Fitting, stored: StoredParts) -> Ward:
    """Read the table as ``cirl explain`` does, and fit and solve a world for all its patients together."""
    frame, columns, how = asked.columns.read(asked.table)
    outcomes = chosen_outcomes(columns, asked.outcomes)
    table = prepare_table(frame, columns, how, rng=np.random.default_rng([0, 0]))
    table = table.with_lags(changing(outcomes, columns.features)).with_known(known_names(outcomes, columns.features))
    everyone = Batch.together((table.train, table.validation, table.test))
    given = known_signs(outcomes, asked.lower_is_better, asked.sign)
    signs = np.array([given.get(name, 0) for name in outcomes], dtype=np.float64)
    return ward_of(everyone, outcomes, signs, asked.config.whole(everyone.horizon), stored)


# --- what is said of all runs together --------------------------------------------------------------------------------


def row(found: Mapping[str, Any]) -> str:
    """One run in a line."""
    truth, habit = found["truth"], found["habit"]
    gain, error = truth["gain"]
    weights = " ".join(
        f"{true:+.2f} [{low:+.2f}, {high:+.2f}]{' ' if low <= true <= high else '!'}"
        for true, (low, high) in zip(truth["weights"], habit["intervals"], strict=True)
    )
    right = "right" if (habit["verdict"] == "beyond habit") == matters(found) else "WRONG"
    added, its = habit["beyond_habit"]
    return (
        f"run {found['number']:<3} kappa {truth['kappa']:5.1f} [{habit['kappa_interval'][0]:.1f}, "
        f"{habit['kappa_interval'][1]:.1f}] true gain {gain:+.4f} ({error:.4f}) seen {added:+.4f} ({its:.4f}) "
        f"{habit['verdict']} {right}; weights {weights}"
        + (f"; without habits: {found['none']['verdict']}" if "none" in found else "")
        + ("" if habit["converged"] else "; NOT CONVERGED")
    )


def summary(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """How often intervals hold and verdicts are right; of weights and kappa where the experts have any."""
    lines = []
    preferring = [found for found in runs if found["truth"]["kappa"] > 0]
    seen = [found for found in preferring if matters(found)]
    for account in ("habit", "none", "world known"):
        if not all(account in found for found in runs):
            continue
        own: Callable[[Mapping[str, Any]], Any] = lambda found, account=account: found[account]  # type: ignore[misc] # noqa: E731
        held = [
            _held("weights", [pair for f in preferring for pair in own(f)["intervals"]], _weights(preferring)),
            _held(
                "weights where outcomes matter", [pair for f in seen for pair in own(f)["intervals"]], _weights(seen)
            ),
            _held("kappa", [own(f)["kappa_interval"] for f in preferring], [f["truth"]["kappa"] for f in preferring]),
        ]
        if account != "none":
            ends = np.array([own(f)["habit_intervals"] for f in runs])[..., 1:, :].reshape(-1, 2)
            held.append(_held("habit", ends.tolist(), np.array([f["truth"]["habit"] for f in runs])[..., 1:].ravel()))
        lines.append(f"{account}: 90 % intervals hold {'; '.join(held)}")
        if account != "world known":
            right = [(own(f)["verdict"] == "beyond habit") == matters(f) for f in runs]
            clear = [one for one, f in zip(right, runs, strict=True) if not borderline(f)]
            certain = f"{sum(clear)} of the {len(clear)} that are not borderline"
            lines.append(f"{account}: verdict right in {sum(right)} of {len(right)} runs, {certain}")
    lines.append(
        f"outcomes matter in {len(seen)} of {len(runs)} runs, in {sum(map(borderline, runs))} by luck; "
        f"kappa is 0 in {len(runs) - len(preferring)}"
    )
    return lines


def _weights(runs: Sequence[Mapping[str, Any]]) -> list[float]:
    return [weight for found in runs for weight in found["truth"]["weights"]]


def _held(what: str, intervals: Sequence[Sequence[float]], truths: Sequence[float] | FloatArray) -> str:
    if not len(intervals):
        return f"no {what}"
    share = coverage(np.array(intervals)[:, None], np.asarray(truths)[:, None], level=0.9)
    hits = round(float(share.share[0]) * len(intervals))
    return f"{hits} of {len(intervals)} {what} ({share.share[0]:.2f})"


def check_folder(asked: Mapping[str, Any], out: Path) -> None:
    """Raise ValueError where a folder holds runs with other options."""
    own, path = {name: repr(value) for name, value in asked.items()}, out / "asked.json"
    if path.is_file():
        others = [name for name, value in read_json(path).items() if own.get(name) != value]
        if others:
            raise ValueError(f"--out: {out} holds runs with another {others[0]}")
    write_json(path, own)


def main() -> None:
    asked = tyro.cli(Options, config=(tyro.conf.FlagCreatePairsOff,))
    torch.set_num_threads(1)
    check_folder({name: value for name, value in vars(asked).items() if name not in _OF_A_RUN}, asked.out)
    ward = fitted_ward(asked, StoredParts(asked.out / "world"))
    found = []
    for number in range(asked.first, asked.first + asked.runs):
        path = asked.out / f"run_{number:03}.json"
        how = (ward, number, asked.out, not asked.no_none, asked.world_known)
        found.append(stored(path, partial(run, *how)))
        print(row(found[-1]), flush=True)
    print("\n".join(summary(found)))


if __name__ == "__main__":
    main()
