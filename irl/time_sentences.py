"""What windows of time and the choice of the discount factor found, in plain sentences."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from irl.gamma_record import GammaChoice
from irl.windows_record import TimeWindow

TRADE_OFF = (
    "A discount factor and weights trade off: a short-sighted expert looks like one who weighs lasting outcomes less. "
    "What each discount factor would have said of the weights is in the table."
)
SAME_PATIENTS = (
    "A change is called beyond chance if its 90 % interval does not hold 0; without any change, about one of ten would "
    "be called so. The intervals know that windows share patients, and not how errors of the outcome model or of the "
    "search for plans differ over time."
)


def gamma_sentences(choice: GammaChoice | None) -> list[str]:
    """Which discount factor was taken and why; nothing where none was chosen."""
    if choice is None:
        return []
    among = f"Of the discount factors {_listed([f'{one.gamma:g}' for one in choice.tried])}"
    tied = [f"{one.gamma:g}" for one in choice.tied]
    if len(tied) == 1:
        return [f"{among}, {tied[0]} makes held-out decisions most likely, by more than one standard error."]
    return [
        f"{among}, held-out decisions do not tell {_listed(tied)} apart (within one standard error): a tie, of which "
        f"the largest is taken, {choice.chosen:g}."
    ]


def window_sentences(features: Sequence[str], windows: Sequence[TimeWindow]) -> list[str]:
    """What changes beyond chance from each window to the next, and which windows say nothing."""
    sentences = []
    for before, after in pairwise(windows):
        if after.changes is None:
            continue
        clear = [(one.difference, name) for name, one in zip(features, after.changes, strict=True) if one.clear]
        # Of two weights of the same sign, the changes are equal but for rounding.
        clear.sort(key=lambda pair: -round(abs(pair[0]), 6))
        listed = ", ".join(f"{name} {difference:+.2f}" for difference, name in clear[:4])
        more = f" and {len(clear) - 4} more" if len(clear) > 4 else ""
        said = f"these weights change beyond chance: {listed}{more}" if clear else "no weight changes beyond chance"
        sentences.append(f"From {steps_of(before)} to {steps_of(after)}, {said}.")
    for window in windows:
        if window.found is None:
            few = f"{window.decisions} decisions of {window.patients} patients"
            sentences.append(f"{steps_of(window).capitalize()} have too few decisions to say anything: {few}.")
    return sentences


def steps_of(window: TimeWindow) -> str:
    """The window in words: ``steps 0 to 5``, ``steps 12 on``."""
    return f"steps {window.from_} on" if window.to is None else f"steps {window.from_} to {window.to}"


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
