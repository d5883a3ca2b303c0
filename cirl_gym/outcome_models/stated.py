"""What is known of an action's effect, as a user states it: ``"given raises potassium"``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cirl_gym.names import did_you_mean

_NUMBER = r"([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
_SIZE = re.compile(rf"^(.+)\s+{_NUMBER}\s+to\s+{_NUMBER}$")
VERBS: Mapping[str, tuple[float, float]] = {
    "raises": (0.0, math.inf),
    "lowers": (-math.inf, 0.0),
    "does not change": (0.0, 0.0),
}
FORMS = (
    '"ACTION raises OUTCOME", "ACTION lowers OUTCOME", "ACTION does not change OUTCOME" or '
    '"ACTION OUTCOME +0.1 to +0.4"'
)

SLACK = 0.05
"""Share of its interval by which an estimate may miss a stated sign."""
EffectBounds: TypeAlias = tuple[str, str, float, float]
"""Name of an action, name of a feature, least and largest effect on the next value, raw units."""


@dataclass(frozen=True)
class StatedEffect:
    """An effect on the next value of an outcome, against the first action, that is said to lie in a range.

    Raises:
        ValueError: the range is upside down or not a number.
    """

    text: str
    """As the user wrote it."""
    action: str
    """Name of the action."""
    outcome: str
    """Name of the outcome or the observed feature."""
    low: float
    """Least effect, raw units; minus infinity: none."""
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ValueError(f"effect {self.text!r}: {self.low:g} is above {self.high:g}")

    @property
    def bounds(self) -> EffectBounds:
        """What a law that is held to it has to keep."""
        return self.action, self.outcome, self.low, self.high

    def contradicted(self, estimate: float, interval: tuple[float, float] | None) -> bool:
        """Whether an estimated effect has the other sign, or an interval that shares nothing with the stated range.

        What is said of a sign concerns the estimate itself: plans are searched with it. By a twentieth of its interval
        it may be off, as that of a law is which is held to the sign, at mean levels.
        """
        if math.isinf(self.low) or math.isinf(self.high):
            slack = 0.0 if interval is None else SLACK * (interval[1] - interval[0])
            return not self.low - slack <= estimate <= self.high + slack
        low, high = (estimate, estimate) if interval is None else interval
        return high < self.low or low > self.high


def read_effect(text: str, action_names: Sequence[str], outcomes: Sequence[str], column: str = "") -> StatedEffect:
    """Read one statement.

    Args:
        text: in one of the forms :data:`FORMS`.
        action_names: the actions; the first is the one that others are compared with.
        outcomes: names of outcomes and observed features.
        column: the action's column, which stands for the second of two actions; ``=`` may be a space.

    Raises:
        ValueError: it has none of the forms, or names no action but the first, or no outcome.
    """
    names = {f"{column}={name}": name for name in action_names if column} | {name: name for name in action_names}
    if column and len(action_names) == 2:
        names = {column: action_names[1], **names}
    spelled = names | {name.replace("=", " "): action for name, action in names.items()}
    stripped = text.strip().replace("\N{MINUS SIGN}", "-")
    begun = [name for name in sorted(spelled, key=len, reverse=True) if stripped.startswith(f"{name} ")]
    if not begun:
        raise ValueError(f"effect {text!r} begins with no action; the actions are {', '.join(names)}")
    read = [(name, *rest) for name in begun for rest in _taken_apart(stripped.removeprefix(name).strip())]
    if not read:
        raise ValueError(f"effect {text!r} must be {FORMS}")
    # Names may hold verbs: what is read first counts only where nothing else names an outcome.
    name, outcome, low, high = next((one for one in read if one[1] in outcomes), read[0])
    if spelled[name] == action_names[0]:
        others = ", ".join(action_names[1:])
        raise ValueError(f"effect {text!r}: effects are of other actions against {name!r}; name one of {others}")
    if outcome not in outcomes:
        raise ValueError(
            f"effect {text!r}: {outcome!r} is no outcome nor feature; there are {', '.join(outcomes)}"
            + did_you_mean(outcome, outcomes)
        )
    return StatedEffect(text, spelled[name], outcome, low, high)


def _taken_apart(rest: str) -> list[tuple[str, float, float]]:
    """Outcome and range, in every way in which what follows the action can be read."""
    read = [(rest.removeprefix(verb).strip(), *ends) for verb, ends in VERBS.items() if rest.startswith(f"{verb} ")]
    if sized := _SIZE.match(rest):
        read.append((sized[1], float(sized[2]), float(sized[3])))
    return read
