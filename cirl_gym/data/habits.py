"""Habits: what experts do again and again, whatever they foresee. Logits b[c, a] of action a in context c.

Experts choose with P(a | h) proportional to exp(b[c(h), a] + kappa w . psi(h, a)). The first part is their habit: how
likely an action is to be repeated, how often it is given at all, what is usual on a ward. It looks at the context of a
decision only: at the one or two actions before, and at discrete columns of a table
(:attr:`cirl_gym.data.batch.Batch.contexts`).
Logits of several contexts add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cirl_gym.data.batch import NONE, PREVIOUS, PREVIOUS2, Batch
from cirl_gym.types import FloatArray, IntArray

__all__ = ["ACTIONS_BEFORE", "NONE", "NONE_YET", "PREVIOUS", "PREVIOUS2", "Contexts", "Habit", "action_before"]

NONE_YET = "none yet"
"""What stands in the place of the action before at the first decision of an episode."""
ACTIONS_BEFORE = {PREVIOUS: 1, PREVIOUS2: 2}
"""By name of a context, how many steps before the decision its action was taken."""


def action_before(batch: Batch, steps: int = 1) -> IntArray:
    """``[N, T]`` the action ``steps`` before, counted from 1; 0 where there was none."""
    action = np.zeros_like(batch.actions)
    action[:, steps:] = batch.actions[:, :-steps] + 1
    return action


@dataclass(frozen=True)
class Contexts:
    """The H contexts of a decision and the levels that each can have, C in all; a level's number runs over all of them.

    Raises:
        ValueError: a name is there twice, or a context has no level or one twice.
    """

    names: tuple[str, ...]
    """``previous``, ``previous2`` or columns."""
    levels: tuple[tuple[str, ...], ...]
    """Of each context, its levels; of an action before :data:`NONE_YET` and then the actions."""

    def __post_init__(self) -> None:
        if len(set(self.names)) < len(self.names) or len(self.names) != len(self.levels):
            raise ValueError(f"Contexts: the names must be different and each have its levels, got {self.names}")
        for name, levels in zip(self.names, self.levels, strict=True):
            if not levels or len(set(levels)) < len(levels):
                raise ValueError(f"Contexts: {name} must have different levels, at least one, got {levels}")

    @classmethod
    def of(cls, batch: Batch, names: Sequence[str]) -> Contexts:
        """The contexts named, as the batch has them.

        Raises:
            ValueError: a name is no action before, nor one of the batch's contexts.
        """
        before = dict.fromkeys(ACTIONS_BEFORE, (NONE_YET, *batch.action_names))
        known = {**before, **dict(batch.contexts)}
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ValueError(f"habit: {unknown[0]!r} is no context of the batch; there are {', '.join(known)}")
        return cls(tuple(names), tuple(known[name] for name in names))

    @property
    def size(self) -> int:
        """C, the number of levels of all contexts."""
        return sum(map(len, self.levels))

    @cached_property
    def first(self) -> IntArray:
        """``[H]`` the number of each context's first level."""
        return np.cumsum([0, *map(len, self.levels)])[:-1].astype(np.int64)

    def along(self, batch: Batch) -> IntArray:
        """``[N, T, H]`` numbers of the levels of every decision; what stands on padding means nothing.

        Raises:
            ValueError: the batch's contexts are others.
        """
        if Contexts.of(batch, self.names) != self:
            raise ValueError(f"habit: the levels of {', '.join(self.names)} differ between the batch and the habit")
        columns = []
        for name, first in zip(self.names, self.first, strict=True):
            level = action_before(batch, ACTIONS_BEFORE[name]) if name in ACTIONS_BEFORE else batch.levels_of(name)
            columns.append(first + level)
        shape = (*batch.actions.shape, len(columns))
        return np.stack(columns, axis=-1) if columns else np.zeros(shape, dtype=np.int64)


@dataclass(frozen=True)
class Habit:
    """Logits of every action in every context.

    Raises:
        ValueError: the logits are not ``[C, A]`` finite numbers.
    """

    contexts: Contexts
    logits: FloatArray
    """``[C, A]`` by level; adding a number to a whole row changes nothing."""

    def __post_init__(self) -> None:
        logits = np.array(self.logits, dtype=np.float64)
        if logits.ndim != 2 or len(logits) != self.contexts.size or not np.isfinite(logits).all():
            raise ValueError(f"Habit.logits must be [{self.contexts.size}, A] finite numbers, got {logits.shape}")
        logits.setflags(write=False)
        object.__setattr__(self, "logits", logits)

    @classmethod
    def repeating(cls, batch_actions: Sequence[str], repeat: float, act: Sequence[float]) -> Habit:
        """A habit of the action before alone: the logit of repeating it, and one of each action."""
        n = len(batch_actions)
        logits = np.tile(np.asarray(act, dtype=np.float64), (n + 1, 1))
        logits[np.arange(1, n + 1), np.arange(n)] += repeat
        return cls(Contexts((PREVIOUS,), ((NONE_YET, *batch_actions),)), logits)

    def along(self, batch: Batch) -> FloatArray:
        """``[N, T, A]`` logits of every decision of a batch; what stands on padding means nothing."""
        return np.asarray(self.logits[self.contexts.along(batch)].sum(axis=2))

    def after(self, previous: IntArray, previous2: IntArray) -> FloatArray:
        """``[n, A]`` logits where the two actions before are ``previous`` and ``previous2`` ``[n]``; -1: none yet.

        A policy that acts knows of no column of a table: for the other contexts it takes the mean of their levels.
        """
        logits = np.zeros((len(previous), self.logits.shape[1]))
        for name, first, levels in zip(self.contexts.names, self.contexts.first, self.contexts.levels, strict=True):
            own = self.logits[first : first + len(levels)]
            known = {PREVIOUS: previous, PREVIOUS2: previous2}.get(name)
            logits += own.mean(axis=0) if known is None else own[known + 1]
        return logits
