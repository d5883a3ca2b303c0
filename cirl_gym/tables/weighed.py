"""Which outcomes of a table are weighed, by name: told before anything is read of its cells."""

from __future__ import annotations

from collections.abc import Sequence

from cirl_gym.data.outcomes import Sought, hint, read_outcome
from cirl_gym.names import did_you_mean
from cirl_gym.tables.columns import TableColumns

MOST_WEIGHED = 100
"""Outcomes that are weighed at most: every decision keeps the plans for as many weights, of every outcome, so that
memory and time grow with the square of their number; 250 of 163 patients took 2 GB before the sampler had begun."""


def chosen_outcomes(columns: TableColumns, outcomes: Sequence[str]) -> tuple[str, ...]:
    """What of a table is weighed: the features or computed outcomes named, or all features that are not static.

    Returns:
        Names, those of computed outcomes in their one spelling.

    Raises:
        ValueError: a name is there twice, no feature nor computed of features, or static; they are too many, or two
            limits are sought.
    """
    for text in outcomes:
        _refuse_two_meanings(text, columns.features)
    read = [read_outcome(text, columns.features) for text in outcomes]
    for outcome in read:
        unknown = [name for name in outcome.columns if name not in columns.features]
        if unknown:
            within = "" if unknown[0] == outcome.name else f" (in {outcome.name})"
            raise ValueError(
                f"--outcomes: {unknown[0]!r}{within} is not a feature{did_you_mean(unknown[0], columns.features)}; the "
                f"features are {', '.join(columns.features)}" + hint(unknown[0])
            )
        if outcome.columns and set(outcome.columns) <= set(columns.static):
            raise ValueError(
                f"--outcomes: {outcome.name!r} is static; no action changes it, so no decision tells its weight"
            )
    names = tuple(outcome.name for outcome in read)
    sought = [outcome.name for outcome in read if isinstance(outcome, Sought)]
    if len(sought) > 1:
        raise ValueError(
            f"--outcomes: one limit can be found in a run, not {' and '.join(sought)}; write a number for all but one"
        )
    if len(set(names)) < len(names):
        raise ValueError(f"--outcomes: a name is there twice: {', '.join(names)}")
    chosen = names or columns.outcomes
    if len(chosen) > MOST_WEIGHED:
        told = "are named by --outcomes" if names else "would be weighed, since --outcomes names none"
        raise ValueError(
            f"{len(chosen)} outcomes {told}; at most {MOST_WEIGHED} can be: name those that decisions may have been "
            "about (--outcomes). All features are still observed"
        )
    return chosen


def _refuse_two_meanings(text: str, features: Sequence[str]) -> None:
    """Where a column has the very name of an outcome that could be computed of other columns, neither is guessed."""
    if text not in features:
        return
    try:
        computed = read_outcome(text, ())
    except ValueError:
        return
    if computed.columns != (text,) and set(computed.columns) <= set(features):
        raise ValueError(
            f"--outcomes: {text!r} is the name of a column, and can be computed of {', '.join(computed.columns)} as "
            "well: rename the column"
        )


def known_signs(outcomes: Sequence[str], lower_is_better: Sequence[str], sign: Sequence[str]) -> dict[str, int]:
    """What ``--lower-is-better`` and ``--sign`` say, by outcome.

    Raises:
        ValueError: a name is not an outcome, an entry is not NAME=-1 or NAME=+1, or two entries contradict each other.
    """
    entries = [(name, "-1", "--lower-is-better") for name in lower_is_better]
    for entry in sign:
        name, found, value = entry.rpartition("=")
        if not found or value not in ("-1", "1", "+1"):
            raise ValueError(f"--sign takes NAME=-1 or NAME=+1, got {entry!r}")
        entries.append((name, value, "--sign"))
    signs: dict[str, int] = {}
    for text, value, option in entries:
        name = read_outcome(text, outcomes).name
        if name not in outcomes:
            raise ValueError(
                f"{option}: {name!r} is not an outcome{did_you_mean(name, outcomes)}; the outcomes are "
                f"{', '.join(outcomes)}"
            )
        if signs.setdefault(name, int(value)) != int(value):
            raise ValueError(f"{option}: {name!r} is given two different signs")
    return signs
