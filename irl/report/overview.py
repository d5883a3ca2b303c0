"""What the first screen of a page says of the data: where decisions come from, whose they are, what was done."""

from __future__ import annotations

from irl.report.section import signed
from irl.result.effects import action_labels
from irl.result.result import Result

_ACTIONS = 6
"""Actions that are counted one by one, at most: the most frequent."""


def facts_of(result: Result, date: str = "") -> tuple[tuple[str, str], ...]:
    """Name and text of what is known; ``date`` is the day of the run."""
    table, found = result.table or {}, result.likelihood
    known = {"File": result.config.get("file"), "Checksum (SHA-256)": table.get("sha256"), "Date": date}
    if result.true_weights is not None:
        known["File"] = "none: simulated experts"
    facts = {name: str(text) for name, text in known.items() if text}
    if episodes := table.get("episodes"):
        facts |= {
            "Patients": f"{episodes['groups']:,}",
            "Stays": f"{episodes['used']:,}",
            "Decisions": f"{episodes['steps']:,}",
        }
    else:
        parts = result.episodes
        facts["Episodes"] = f"{parts.train + parts.validation + parts.test:,}"
    if taken := table.get("taken"):
        labels = action_labels(table, [one["action"] for one in taken])
        counted = [(one["times"], f"{label} ({one['times']:,})") for label, one in zip(labels, taken, strict=True)]
        if len(counted) > _ACTIONS:
            counted.sort(key=lambda each: -each[0])
        said = [text for _, text in counted]
        more = [f"and {len(said) - _ACTIONS} more"] if len(said) > _ACTIONS else []
        facts["Actions, with decisions"] = ", ".join([*said[:_ACTIONS], *more])
    if found is not None:
        added = found.beyond_habit
        facts["What outcomes add beyond habit"] = (
            f"{signed(added.mean)} (standard error {added.standard_error:.3f}) in the log-likelihood of a decision"
        )
    return tuple(facts.items())
