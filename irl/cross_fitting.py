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

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agents.policies.cloning import CloningConfig, fit_cloning
from agents.successor.agent import SuccessorAgent
from cirl_gym.data.batch import Batch
from cirl_gym.data.rules import ActionRules
from cirl_gym.files import write_arrays
from cirl_gym.types import Float32Array, FloatArray, IntArray
from irl.checks.metrics import ACCOUNTS, averaged_log_chances, simple_accounts
from irl.preferences.likelihood import PlanPool
from irl.preferences.posterior import further_posterior

VALIDATION = 0.15
"""Share of the other patients by whom a fold's models are chosen, as in the split of a table."""

_TINY = 1e-300
FORESEEING = 25
"""Draws of each chain are enough to foresee decisions: chances are averaged over a few."""


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
        for number, agent in enumerate(self.agents):
            rows = np.flatnonzero(self.fold == number)
            if len(rows):
                found[..., rows, :, :, :] = agent.psi(self.judged.take(rows), w, width)
        return found


@dataclass(frozen=True)
class Foreseen:
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
            raise ValueError(f"Foreseen: log-probabilities {shape} of {', '.join(ACCOUNTS)} are needed")

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
    solve: Callable[[int, Batch, Batch], SuccessorAgent],
    *,
    drawn: bool = False,
) -> CrossFit:
    """Fit and solve a world for each fold.

    Args:
        everyone: the episodes of all patients.
        judged: those whose decisions are judged, some or all of them.
        folds: number of parts.
        rng: patients, parts and splits.
        solve: (fold, training episodes, validation episodes) -> the agent in the world fitted to them.
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

    def seen(train: Batch) -> Batch:
        rows = np.repeat(np.arange(len(train)), [often[name] for name in train.groups])
        return train.resampled(rows) if drawn and len(rows) else train

    agents = tuple(solve(number, seen(train), validation) for number, (train, validation) in enumerate(splits))
    train, validation = zip(*splits, strict=True)
    return CrossFit(judged, np.array([own[name] for name in judged.ids]), agents, train, validation)


def foresee_others(
    crosses: Sequence[CrossFit],
    pools: Sequence[PlanPool],
    signs: FloatArray,
    cloning: CloningConfig,
    rng: np.random.Generator,
    rules: ActionRules | None,
    progress: Callable[[int, int], None] | None = None,
) -> Foreseen:
    """Foresee every judged decision by what was learnt from other patients.

    Chances by preferences are the mean over the repetitions; all other accounts are of the first one's parts.

    Args:
        crosses: the folds of every repetition.
        pools: of every repetition, plans along all judged episodes.
        signs: ``[d]`` of -1, 0 (free) and 1.
        cloning: how the copy is trained.
        rng: posteriors, and the training of the other accounts.
        rules: what is forbidden, to cloning too.
        progress: called with (folds done, folds of all repetitions).
    """
    first, done = crosses[0], itertools.count(1)
    shape = (*first.judged.actions.shape, first.judged.n_actions)
    found, chances = {name: np.zeros(shape) for name in ACCOUNTS}, np.zeros(shape)
    for cross, pool in zip(crosses, pools, strict=True):
        for number in np.unique(cross.fold):
            inside = cross.fold == number
            others, own = pool.take(~inside), pool.take(inside)
            posterior = further_posterior(others, signs, rng, FORESEEING)
            chances[inside] += np.exp(averaged_log_chances(own, posterior))
            if cross is first:
                copied = (cross.train[number], cross.validation[number], cloning, rng)
                found["cloning"][inside] = fit_cloning(*copied, rules=rules).policy.log_probabilities(own.batch)
                for name, logs in simple_accounts(others.batch, own.batch, pool.contexts, rng).items():
                    found[name][inside] = logs
            if progress is not None:
                progress(next(done), len(crosses) * len(first.agents))
    found["cirl"] = np.minimum(np.log(np.maximum(chances / len(crosses), _TINY)), 0.0)
    return Foreseen(first.judged, found, len(first.agents))
