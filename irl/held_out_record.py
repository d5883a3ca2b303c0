"""How well held-out decisions are foreseen, as ``result.json`` keeps it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TypeAlias

from irl.records import check_types, require

Numbers: TypeAlias = tuple[float, ...]


@dataclass(frozen=True)
class LogLikelihood:
    """Log-probability of a held-out decision, on average."""

    mean: float
    """Nearer to 0 is better; minus the logarithm of the number of actions is pure chance."""
    standard_error: float
    """With patients as the unit."""

    def __post_init__(self) -> None:
        check_types(self, "likelihood")
        require(self.mean <= 0, f"likelihood: a mean log-probability is not above 0, got {self.mean}")
        require(self.standard_error >= 0, "likelihood: standard_error must not be negative")


@dataclass(frozen=True)
class HeldOutLikelihood:
    """How likely each description of the experts makes what they did in held-out episodes."""

    decisions: int
    """Held-out decisions that were judged, of whole episodes."""
    patients: int
    """Whose they are."""
    cirl: LogLikelihood
    """softmax(kappa Q) at the posterior means of weights and kappa."""
    averaged: LogLikelihood
    """Chances averaged over posterior draws of weights and kappa."""
    cloning: LogLikelihood
    """Behaviour cloning."""
    frequencies: LogLikelihood
    """How often each action was taken in training."""
    chance: LogLikelihood
    """All actions equally likely."""
    expert: LogLikelihood | None
    """The simulated experts' own chances, which nobody exceeds but by luck; None where they are not known."""

    def __post_init__(self) -> None:
        check_types(self, "likelihood")
        require(min(self.decisions, self.patients) >= 1, "likelihood: decisions and patients must be at least 1")


@dataclass(frozen=True)
class AgreementOverTime:
    """Share of held-out decisions at each time step that a policy's most likely action meets."""

    episodes: tuple[int, ...]
    """``[T]`` held-out episodes that are still going on at t = 0, 1, ..."""
    cirl: Numbers
    """``[T]`` the policy of the reported weights."""
    cloning: Numbers
    """``[T]`` behaviour cloning."""

    def __post_init__(self) -> None:
        check_types(self, "agreement")
        lengths = {len(getattr(self, field.name)) for field in fields(self)}
        require(len(lengths) == 1 and len(self.episodes) > 0, "agreement: one number for each step")
        require(min(self.episodes) >= 1, "agreement: at every step an episode must be going on")
        require(all(0 <= share <= 1 for share in (*self.cirl, *self.cloning)), "agreement must lie in [0, 1]")
