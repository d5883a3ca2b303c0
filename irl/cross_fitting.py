"""Cross-fitting over patients: every decision is judged in a world that was fitted to other patients, several times.

In a small table a world model follows the outcomes that it was fitted to, noise and all, and decisions along the same
histories are then judged by it. With one split into training and held-out patients, much depends on who is where. So
the patients are divided into parts; for each a world is fitted to all others, and plans are searched in it along the
histories of the part. All decisions are then judged together, by one posterior, and what is said does not depend on
who happened to be held out. Foreseeing the decisions of a part from the posterior of the others is a cross-validation:
no decision, and no outcome in the histories that lead to it, has been learnt from.

A weight is only known as well as the effect that an action has in the world model. So weights are found several times:
once with the patients as they are, then with patients drawn with replacement (one draw for all parts, so that its
worlds err together) and divided anew. Decisions are foreseen by the mean of what each says. The posteriors' draws are
put together: what they differ in, by the outcome model, the split and the search, is part of every interval.

What the parts share: the plans that are searched near the posterior's mean are chosen by the decisions of all, and the
worlds along which the others are judged have seen the part's outcomes, though not how they were decided on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from agents.policies.cloning import CloningConfig, fit_cloning
from agents.successor.agent import SuccessorAgent
from cirl_gym.data.batch import Batch
from cirl_gym.data.rules import ActionRules
from cirl_gym.files import write_arrays
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray
from irl.checks.metrics import ACCOUNTS, averaged_log_chances, simple_accounts
from irl.preferences.likelihood import PlanPool, finite_logs
from irl.preferences.posterior import further_posterior
from irl.processes import all_done

VALIDATION = 0.15
"""Share of the other patients by whom a fold's models are chosen, as in the split of a table."""

FORESEEING = 25
"""Draws of each chain are enough to foresee decisions: chances are averaged over a few."""


Solve: TypeAlias = Callable[[int, Batch, Batch], SuccessorAgent]
"""(fold, training episodes, validation episodes) -> the agent in the world fitted to them."""


@dataclass(frozen=True)
class CrossFit:
    """The agents of all folds, and the episodes that are judged.

    Raises:
        ValueError: there is not one fold for every episode.
    """

    judged: Batch
    fold: IntArray
    """``[N]`` the part that each judged episode is in."""
    agents: tuple[SuccessorAgent, ...]
    """Solved in the world that was fitted to all other parts."""
    train: tuple[Batch, ...]
    """Of each fold, the other patients' episodes to learn from."""
    validation: tuple[Batch, ...]
    """Of each fold, those to choose by."""

    def __post_init__(self) -> None:
        if self.fold.shape != (len(self.judged),):
            raise ValueError(f"CrossFit: one fold for each of {len(self.judged)} episodes, got {self.fold.shape}")

    def psi(self, w: FloatArray, width: int | None = None) -> Float32Array:
        """Successor features ``[N, T, A, d]`` along all judged episodes, of each in the world fitted to the others.

        ``w`` is ``[d]``, or several ``[J, d]`` for ``[J, N, T, A, d]``.
        """
        shape = (*w.shape[:-1], *self.judged.actions.shape, self.judged.n_actions, w.shape[-1])
        found = np.zeros(shape, dtype=np.float32)
        inside = [np.flatnonzero(self.fold == number) for number in range(len(self.agents))]
        asked = [(agent, rows) for agent, rows in zip(self.agents, inside, strict=True) if len(rows)]
        calls = [partial(agent.psi, self.judged.take(rows), w, width) for agent, rows in asked]
        for (_, rows), psi in zip(asked, all_done(calls), strict=True):
            found[..., rows, :, :, :] = psi
        return found


@dataclass(frozen=True)
class ForeseenDecisions:
    """Chances of every judged decision, each account learnt from other patients.

    Raises:
        ValueError: the accounts are not :data:`irl.checks.metrics.ACCOUNTS`, or one is not ``[N, T, A]``.
    """

    judged: Batch
    chances: Mapping[str, FloatArray]
    """Log-probabilities ``[N, T, A]`` by account, as :func:`irl.checks.metrics.held_out_likelihood` takes them."""
    folds: int

    def __post_init__(self) -> None:
        shape = (*self.judged.actions.shape, self.judged.n_actions)
        if set(self.chances) != set(ACCOUNTS) or any(logs.shape != shape for logs in self.chances.values()):
            raise ValueError(f"ForeseenDecisions: log-probabilities {shape} of {', '.join(ACCOUNTS)} are needed")

    def of(self, batch: Batch) -> Mapping[str, FloatArray] | None:
        """The same of some of the episodes, by their ids; None where one was not judged."""
        row = {name: i for i, name in enumerate(self.judged.ids)}
        if not set(batch.ids) <= set(row):
            return None
        rows = [row[name] for name in batch.ids]
        return {name: logs[rows, : batch.horizon] for name, logs in self.chances.items()}

    def save(self, path: Path) -> None:
        """Write ids, folds and every account, float32."""
        accounts = {name: logs.astype(np.float32) for name, logs in self.chances.items()}
        write_arrays(path, {"ids": np.asarray(self.judged.ids), "folds": np.array(self.folds), **accounts})


def patient_folds(groups: Sequence[str], folds: int, rng: np.random.Generator) -> IntArray:
    """``[N]`` the part of each episode, those of one patient in the same; parts differ by one patient at most.

    Raises:
        ValueError: there are fewer than two parts, or fewer than three patients for each.
    """
    names, member = np.unique(np.asarray(groups), return_inverse=True)
    if folds < 2 or len(names) < 3 * folds:
        raise ValueError(f"{len(names)} patients cannot be divided into {folds} parts of three patients or more")
    part = np.empty(len(names), dtype=np.int64)
    part[rng.permutation(len(names))] = np.arange(len(names)) % folds
    return part[member]


def cross_fit(
    everyone: Batch,
    judged: Batch,
    folds: int,
    rng: np.random.Generator,
    solve: Solve,
    progress: Callable[[int, int], object] | None = None,
    *,
    drawn: bool = False,
) -> CrossFit:
    """Fit and solve a world for each fold, in one process or several (:mod:`irl.processes`).

    Args:
        everyone: the episodes of all patients.
        judged: those whose decisions are judged, some or all of them.
        folds: number of parts.
        rng: patients, parts and splits.
        solve: of each fold.
        progress: called with (folds done, folds).
        drawn: whether worlds are fitted to patients drawn with replacement, one draw for all folds.

    Raises:
        ValueError: there are too few patients.
    """
    part = patient_folds(everyone.groups, folds, rng)
    own = dict(zip(everyone.ids, part.tolist(), strict=True))
    splits = [everyone.take(part != number).split(VALIDATION, rng) for number in range(folds)]
    names = sorted(set(everyone.groups))
    times = np.ones(len(names), dtype=np.int64)
    if drawn:
        times = rng.multinomial(len(names), np.full(len(names), 1 / len(names)))
    often = dict(zip(names, times.tolist(), strict=True))

    calls = []
    for number, (train, validation) in enumerate(splits):
        rows = np.repeat(np.arange(len(train)), [often[name] for name in train.groups])
        again = rows if drawn and len(rows) else None
        calls.append(partial(_solved, solve, number, train, again, validation))
    agents = tuple(all_done(calls, progress))
    training, choosing = zip(*splits, strict=True)
    return CrossFit(judged, np.array([own[name] for name in judged.ids]), agents, training, choosing)


def _solved(solve: Solve, number: int, train: Batch, rows: IntArray | None, validation: Batch) -> SuccessorAgent:
    """The agent of a fold; ``rows``: its training episodes as often as their patients were drawn."""
    return solve(number, train if rows is None else train.resampled(rows), validation)


def foresee_others(
    crosses: Sequence[CrossFit],
    pools: Sequence[PlanPool],
    signs: FloatArray,
    cloning: CloningConfig,
    rng: np.random.Generator,
    rules: ActionRules | None,
    progress: Callable[[int, int], None] | None = None,
) -> ForeseenDecisions:
    """Foresee every judged decision by what was learnt from other patients.

    Chances by preferences are the mean over the repetitions; all other accounts are of the first one's parts.

    Args:
        crosses: the folds of every repetition.
        pools: of every repetition, plans along all judged episodes.
        signs: ``[d]`` of -1, 0 (free) and 1.
        cloning: how the copy is trained.
        rng: posteriors, and the training of the other accounts; every fold has a stream of its own.
        rules: what is forbidden, to cloning too.
        progress: called with (folds done, folds of all repetitions).
    """
    first = crosses[0]
    shape = (*first.judged.actions.shape, first.judged.n_actions)
    found, chances = {name: np.zeros(shape) for name in ACCOUNTS}, np.zeros(shape)
    parts, calls = [], []
    for cross, pool in zip(crosses, pools, strict=True):
        numbers = np.unique(cross.fold)
        for number, own_rng in zip(numbers, rng.spawn(len(numbers)), strict=True):
            inside, copied = cross.fold == number, None
            if cross is first:
                copied = partial(fit_cloning, cross.train[number], cross.validation[number], cloning, rules=rules)
            parts.append(inside)
            calls.append(partial(_foreseen_part, pool, inside, signs, own_rng, copied))
    for inside, (logs, accounts) in zip(parts, all_done(calls, progress), strict=True):
        chances[inside] += np.exp(logs)
        for name, values in accounts.items():
            found[name][inside] = values
    found["cirl"] = np.minimum(finite_logs(chances / len(crosses)), 0.0)
    return ForeseenDecisions(first.judged, found, len(first.agents))


def _foreseen_part(
    pool: PlanPool, inside: BoolArray, signs: FloatArray, rng: np.random.Generator, copied: Callable[..., Any] | None
) -> tuple[FloatArray, dict[str, FloatArray]]:
    """Log-chances of a fold's decisions by preferences, and by all other accounts where cloning is asked for."""
    others, own = pool.take(~inside), pool.take(inside)
    logs = averaged_log_chances(own, further_posterior(others, signs, rng, FORESEEING))
    if copied is None:
        return logs, {}
    accounts = {"cloning": copied(rng=rng).policy.log_probabilities(own.batch)}
    return logs, accounts | dict(simple_accounts(others.batch, own.batch, own.contexts, rng))
