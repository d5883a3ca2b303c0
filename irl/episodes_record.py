"""What a run's episodes are, as ``result.json`` keeps it: how many, how long, and what rules left to choose from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cirl_gym.batch import Batch
from irl.records import check_types, require


@dataclass(frozen=True)
class Episodes:
    """How many episodes each part of the data has, and how long they are."""

    train: int
    validation: int
    test: int
    mean_length: float
    """Actions of a training episode, on average."""
    mean_length_recovered: float
    """Actions of an episode of the recovered policy in the world model, on average, from the same first observations:
    where the two differ, what ends episodes may be part of what the weights say."""

    def __post_init__(self) -> None:
        check_types(self, "episodes")
        require(min(self.mean_length, self.mean_length_recovered) >= 0, "episodes: a mean length is negative")


@dataclass(frozen=True)
class AllowedActions:
    """What rules (:mod:`cirl_gym.action_rules`) forbade in the training episodes."""

    rules: tuple[str, ...]
    """As they were given."""
    decisions: int
    """Of all training episodes."""
    limited: int
    """Decisions in which some action was forbidden."""
    forced: int
    """Decisions in which one action alone was allowed: they say nothing of weights."""

    def __post_init__(self) -> None:
        check_types(self, "allowed")
        require(bool(self.rules), "allowed.rules must hold a rule")
        ordered = 0 <= self.forced <= self.limited <= self.decisions
        require(ordered, "allowed: forced, limited and decisions must not be negative and must rise in this order")

    @classmethod
    def of(cls, rules: Sequence[str], train: Batch) -> AllowedActions | None:
        """Of the training episodes; None where nothing was forbidden."""
        if train.allowed is None:
            return None
        left = train.allowed[train.mask].sum(axis=1)
        return cls(tuple(rules), train.n_steps, int((left < train.n_actions).sum()), int((left == 1).sum()))

    @property
    def sentence(self) -> str:
        """For the headline."""
        if self.limited == 0:
            return f"What was forbidden never comes up in the {self.decisions:,} training decisions."
        forced = f"one action alone was allowed in {self.forced:,}, which say nothing of the weights"
        return f"Some action was forbidden in {self.limited:,} of {self.decisions:,} training decisions; {forced}."
