"""What habits were found beside preferences: in every context, the logits of the actions and the chances they make.

The chances are softmax(b[c]): how the experts would choose if no outcome mattered. They are not how often an action was
taken, which is what habits and outcomes make together. Where habits have several contexts, the others are at the mean
of their levels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.data.habits import Contexts
from cirl_gym.types import FloatArray, IntArray
from irl.result.codec import Count, Interval, Numbers, Record, Share, require

TAILS = (0.05, 0.5, 0.95)
"""Quantiles: the ends of a 90 % interval, and the median between them."""


class HabitLevel(Record, frozen=True):
    """One level of a context, as a certain action before; one number for each of the A actions."""

    level: str
    taken: tuple[Count, ...]
    """How many of the judged decisions that have it took each action; where none has, the prior alone speaks."""
    logits: Numbers
    """Medians; what all have in common means nothing."""
    intervals: tuple[Interval, ...]
    """90 % interval of each logit."""
    chances: tuple[Share, ...]
    """Of each action by habit alone, medians; of three actions and more they need not add up to 1."""
    between: tuple[Interval, ...]
    """90 % interval of each chance."""

    def check(self) -> None:
        """As many numbers as actions, each in its interval."""
        same = len(self.taken) == len(self.logits) == len(self.intervals) == len(self.chances) == len(self.between)
        require(same, f"habits: {self.level}: one count, logit and chance and two intervals for each action")
        for values, ends in ((self.logits, self.intervals), (self.chances, self.between)):
            inside = all(low <= value <= high for value, (low, high) in zip(values, ends, strict=True))
            require(inside, f"habits: {self.level}: a number lies outside its interval")

    @property
    def decisions(self) -> int:
        """How many judged decisions have the level."""
        return sum(self.taken)


class HabitContext(Record, frozen=True):
    """What habits depend on: ``previous``, the action before, or a column of the table; and all its levels."""

    name: str
    levels: tuple[HabitLevel, ...]


class Habits(Record, frozen=True):
    """The habits found."""

    actions: tuple[str, ...]
    """Names of the A actions."""
    contexts: tuple[HabitContext, ...]

    def check(self) -> None:
        """There is a context, and every level has a number for every action."""
        require(bool(self.contexts), "habits: there must be a context")
        lengths = {len(level.logits) for context in self.contexts for level in context.levels}
        require(lengths == {len(self.actions)}, f"habits: every level must have {len(self.actions)} logits")


def found_habits(contexts: Contexts, draws: FloatArray, judged: Batch) -> Habits | None:
    """The habits that draws ``[M, C, A]`` of their logits tell, and how many judged decisions have each level.

    Returns:
        None without contexts.

    Raises:
        ValueError: the draws are of other contexts or actions.
    """
    if not contexts.names:
        return None
    if draws.ndim != 3 or draws.shape[1:] != (contexts.size, judged.n_actions) or not len(draws):
        raise ValueError(f"draws of habits must be [M, {contexts.size}, {judged.n_actions}], got {draws.shape}")
    counts = np.zeros((contexts.size, judged.n_actions), dtype=np.int64)
    np.add.at(counts, (contexts.along(judged)[judged.mask], judged.actions[judged.mask][:, None]), 1)
    ends = [*contexts.first[1:], contexts.size]
    parts = [slice(int(first), int(end)) for first, end in zip(contexts.first, ends, strict=True)]
    means = [draws[:, part].mean(axis=1) for part in parts]
    found = []
    for number, (name, levels, part) in enumerate(zip(contexts.names, contexts.levels, parts, strict=True)):
        others = sum((mean for other, mean in enumerate(means) if other != number), np.zeros_like(means[0]))
        chances = _softmax(draws[:, part] + others[:, None])
        found.append(HabitContext(name, _levels(levels, counts[part], draws[:, part], chances)))
    return Habits(judged.action_names, tuple(found))


def _levels(names: Sequence[str], taken: IntArray, logits: FloatArray, chances: FloatArray) -> tuple[HabitLevel, ...]:
    """Of counts ``[levels, A]``, and draws ``[M, levels, A]`` of logits and chances."""
    spread, likely = (np.quantile(drawn, TAILS, axis=0) for drawn in (logits, chances))
    return tuple(
        HabitLevel(
            name,
            tuple(taken[i].tolist()),
            tuple(spread[1, i]),
            tuple(zip(spread[0, i], spread[2, i], strict=True)),
            tuple(likely[1, i]),
            tuple(zip(likely[0, i], likely[2, i], strict=True)),
        )
        for i, name in enumerate(names)
    )


def _softmax(logits: FloatArray) -> FloatArray:
    above: FloatArray = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(above / above.sum(axis=-1, keepdims=True))
