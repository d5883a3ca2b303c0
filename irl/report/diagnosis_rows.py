"""The numbers of a diagnosis as rows of text, for the console and the page alike."""

from __future__ import annotations

from collections.abc import Sequence

from cirl_gym.outcome_models.diagnostics import PredictionError
from irl.diagnosis import Diagnosis, ErrorsAhead
from irl.report.rows import Rows, percent, short


def error_head(errors: ErrorsAhead) -> list[str]:
    """Names of the columns of :func:`error_rows`."""
    head = ["steps ahead", "model"]
    if errors.oracle is not None:
        head += ["noise alone", "ratio"]
    if errors.unchanged is not None:
        head.append("nothing changes")
    return [*head, "predictions"]


def error_rows(errors: ErrorsAhead) -> Rows:
    """Steps ahead, pooled errors on the scale of phi, number of predictions."""
    rows = []
    for k, error in enumerate(errors.model):
        row = [str(k + 1), f"{error.pooled:.4f}"]
        if errors.oracle is not None and errors.ratio is not None:
            ratio = errors.ratio[k]
            row += [f"{errors.oracle[k].pooled:.4f}", "" if ratio is None else f"{ratio:.3f}"]
        if errors.unchanged is not None:
            row.append(f"{errors.unchanged[k].pooled:.4f}")
        rows.append([*row, f"{error.n:,}"])
    return rows


def selected(rows: Rows) -> Rows:
    """Some of the rows of :func:`error_rows`, enough for a console: steps 1, 2, 3, 5, 10, 20, .. and the last."""
    shown = {1, 2, 3, 5, *range(10, len(rows), 10), len(rows)}
    return [row for row in rows if int(row[0]) in shown]


def feature_head(features: Sequence[str]) -> list[str]:
    """Names of the columns of :func:`feature_rows`."""
    return ["steps ahead", *features]


def feature_rows(errors: Sequence[PredictionError], *, raw: bool) -> Rows:
    """Steps ahead, error of every feature: raw units, or scaled by phi's ranges."""
    return [[str(k), *map(short, error.raw if raw else error.scaled)] for k, error in enumerate(errors, start=1)]


def normaliser_rows(found: Diagnosis) -> Rows:
    """Outcome, the raw value that becomes 0, the one that becomes 1, and the range that errors are in units of."""
    return [[name, short(low), short(high), short(high - low)] for name, (low, high) in found.normaliser.items()]


def probe_rows(found: Diagnosis) -> Rows:
    """What is seen, accuracy, majority, gain with its standard error, log-loss, that of the frequencies."""
    probes = {**found.probes, "history": found.propensity.quality}
    return [
        [
            name,
            percent(probe.accuracy),
            percent(probe.majority),
            f"{100 * (probe.accuracy - probe.majority):.1f} ± {100 * probe.standard_error:.1f}",
            f"{probe.log_loss:.3f}",
            f"{probe.base_log_loss:.3f}",
        ]
        for name, probe in probes.items()
    ]


PROBE_HEAD = ["seen", "accuracy", "most frequent", "gain, points", "log-loss", "of frequencies"]


def overlap_rows(found: Diagnosis) -> Rows:
    """Which action, share of steps at which it was rare: as estimated, and in truth where that is known."""
    both = [found.propensity.estimated, *([] if found.propensity.true is None else [found.propensity.true])]
    rows = [["the action taken", *(percent(one.taken) for one in both)]]
    rows.append(["any action", *(percent(one.any) for one in both)])
    for a, name in enumerate(found.actions):
        rows.append([f"action {name}", *(percent(one.by_action[a]) for one in both)])
    return rows


def overlap_head(found: Diagnosis) -> list[str]:
    """Names of the columns of :func:`overlap_rows`."""
    head = ["propensity below " + f"{found.propensity.estimated.threshold:g}", "estimated"]
    return head if found.propensity.true is None else [*head, "true"]


def coverage_head(found: Diagnosis) -> list[str]:
    """Names of the columns of :func:`coverage_rows`."""
    return ["interval", "outcomes inside", "away from limits", *found.features]


def coverage_rows(found: Diagnosis) -> Rows:
    """Nominal level, share inside, share inside where no limit is near, share of every feature."""
    return [
        [
            f"{100 * entry.level:g} %",
            percent(entry.pooled),
            "" if entry.free is None else percent(entry.free),
            *map(percent, entry.features),
        ]
        for entry in found.intervals
    ]


def end_rows(found: Diagnosis) -> Rows:
    """Bin, steps in it, mean predicted probability, share that ended."""
    return [
        [f"{b.low:g} to {b.high:g}", f"{b.n:,}", f"{b.predicted:.4f}", f"{b.observed:.4f}"] for b in found.ends.bins
    ]


END_HEAD = ["predicted probability", "steps", "mean predicted", "ended"]


def support_rows(found: Diagnosis) -> Rows:
    """Policy, share of steps outside the range of the data, share of rare actions, mean length."""
    return [[name, percent(one.outside), percent(one.rare), f"{one.steps:.1f}"] for name, one in found.support.items()]


SUPPORT_HEAD = ["policy", "outside the data's range", "rare actions", "mean length"]


def course_head(found: Diagnosis) -> list[str]:
    """Names of the columns of :func:`course_rows`."""
    return ["policy", *(f"{name}, largest gap" for name in found.outcomes), "steps compared"]


def course_rows(found: Diagnosis) -> Rows:
    """Policy, largest gap of every outcome between mean courses, and when; empty without a simulator."""
    if found.counterfactual is None:
        return []
    return [
        [
            f"always {name}",
            *(f"{percent(gap)} at {step}" for gap, step in zip(one.largest, one.step, strict=True)),
            str(one.steps),
        ]
        for name, one in found.counterfactual.courses.items()
    ]
