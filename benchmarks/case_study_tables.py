"""What case studies have found, as it is stored, and the tables that docs/case-studies.md shows of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markdown_tables import table

from cirl_gym.files import read_json
from irl.benchmark.figures import mean_and_interval
from irl.benchmark.paper import ICU_ACCURACIES
from irl.benchmark.table import METHODS, TableOutcome
from irl.case_studies.study import names
from irl.report.decisions import ACCOUNTS
from irl.result.case_study import CaseStudy, CheckedRun, EffectFinding, VariantFinding, WeightFinding
from irl.result.codec import Count, Document, Interval, Record, Share, Some
from irl.result.result import Estimate
from irl.result.sentences import weights_mean_something

ORDER = ("potassium", "transfusion", "insulin", "vasopressor", "antibiotics")
HOSPITALS = {"mimic4": "MIMIC-IV", "eicu": "eICU"}
"""The tables of antibiotics every 12 h, by the name of their file."""
CHECKS, OF_HOSPITALS, ACCURACY, SECONDS = "checks", "hospitals", "accuracy.json", "seconds.json"
"""Folders and files beside the findings."""
SHORT = {"agrees": "as known", "contradicts": "against what is known", "open": "open", "nothing known": ""}

Found = Mapping[str, list[CaseStudy]]


class Checks(Document, frozen=True, kw_only=True):
    """Experts who are known in worlds fitted to a study's table."""

    study: str
    quick: bool
    outcomes: tuple[str, ...]
    """Whose weights they are."""
    runs: tuple[CheckedRun, ...]


class MethodAccuracy(Record, frozen=True, kw_only=True):
    """How many actions a method meets, over splits; standard errors are those of Nadeau and Bengio."""

    method: str
    """A name of :data:`irl.benchmark.table.METHODS`."""
    splits: Some
    accuracy: Share
    """Of its policy: what preferences alone ask for, where it has any."""
    standard_error: float | None
    """None with one split."""
    behind: Estimate | None
    """Accuracy of CIRL less its own, split by split; None: it is CIRL, or they share one split alone."""
    foreseen: Share | None
    """Accuracy of the likeliest action by its chances, habits included; None: it gives no chances."""


class Accuracies(Document, frozen=True, kw_only=True):
    """Of all methods, of decisions of patients that they have not seen."""

    study: str
    quick: bool
    patients: dict[str, Count]
    """To learn from, to choose by, and held out."""
    methods: tuple[MethodAccuracy, ...]


@dataclass(frozen=True)
class Stored:
    """All that a folder holds."""

    studies: Found
    """By study, in the order of seeds."""
    checks: Mapping[str, Checks]
    hospitals: Found
    """By hospital, in the order of seeds."""
    accuracy: Accuracies | None
    seconds: Mapping[str, int]
    """By study, processor seconds of a run without ``--quick``."""

    @classmethod
    def read(cls, folder: Path) -> Stored:
        studies = [CaseStudy.read(path) for path in sorted(folder.glob("*_*.json"))]
        assert {one.study for one in studies} <= set(names())
        checks = {one.study: one for one in map(Checks.read, sorted((folder / CHECKS).glob("*.json")))}
        hospitals = {
            name: [CaseStudy.read(path) for path in sorted((folder / OF_HOSPITALS).glob(f"{name}_*.json"))]
            for name in HOSPITALS
        }
        accuracy, seconds = folder / ACCURACY, folder / SECONDS
        return cls(
            {name: found for name in ORDER if (found := _of(name, studies))},
            {name: checks[name] for name in ORDER if name in checks},
            {name: sorted(found, key=lambda one: one.seed) for name, found in hospitals.items() if found},
            Accuracies.read(accuracy) if accuracy.is_file() else None,
            read_json(seconds) if seconds.is_file() else {},
        )


def _of(name: str, studies: Iterable[CaseStudy]) -> list[CaseStudy]:
    return sorted((one for one in studies if one.study == name), key=lambda one: one.seed)


def accuracies(outcomes: Sequence[TableOutcome], quick: bool) -> Accuracies:
    """Over splits, each method beside CIRL by the splits that both have."""
    patients = outcomes[0].patients
    by_method: dict[str, dict[int, float]] = {}
    foreseen: dict[str, list[float]] = {}
    for one in outcomes:
        assert one.row.accuracy is not None
        by_method.setdefault(one.method, {})[one.seed] = one.row.accuracy
        if one.row.scores is not None:
            foreseen.setdefault(one.method, []).append(one.row.scores.accuracy.value)
    shared = patients["test"] / (patients["train"] + patients["validation"])
    found = []
    for method, own in by_method.items():
        known = mean_and_interval(list(own.values()), shared)
        cirl = {} if method == "cirl" else by_method["cirl"]
        both = [cirl[seed] - own[seed] for seed in own if seed in cirl]
        behind = mean_and_interval(both, shared)
        found.append(
            MethodAccuracy(
                method=method,
                splits=len(own),
                accuracy=sum(own.values()) / len(own),
                standard_error=None if known is None else known[0].standard_error,
                behind=None if behind is None else behind[0],
                foreseen=None if method not in foreseen else sum(foreseen[method]) / len(foreseen[method]),
            )
        )
    return Accuracies(study="antibiotics", quick=quick, patients=patients, methods=tuple(found))


# --- tables of findings -----------------------------------------------------------------------------------------------


def number(value: float, digits: int = 3) -> str:
    text = f"{value:.{digits}g}"
    return "0" if float(text) == 0 else text


def span(interval: Interval | None) -> str:
    return "" if interval is None else f"{number(interval[0])} to {number(interval[1])}"


def counts(found: Found) -> str:
    """What each table holds."""
    head = ("study", "stays", "patients", "decisions", "action taken", "decisions that change")
    rows = []
    for name, runs in found.items():
        own = runs[0].counts
        taken = f"{own.taken} ({100 * own.taken / own.decisions:.0f} %)"
        rows.append((name, *map(str, (own.used, own.patients, own.decisions)), taken, str(own.changes)))
    return table(head, rows)


def verdicts(found: Found) -> str:
    """What outcomes add to habit."""
    rows = []
    for name, runs in found.items():
        beyond = sum(weights_mean_something(one.verdict) for one in runs)
        added = [one.beyond_habit for one in runs]
        each = ", ".join(f"{one.mean:+.3f}".replace("-0.000", "0.000") for one in added)
        rows.append((name, f"{beyond} of {len(runs)}", each, f"{max(one.standard_error for one in added):.3f}"))
    return table(("study", "beyond habit", "what outcomes add, seed by seed", "largest standard error"), rows)


def effects(found: Found) -> str:
    """What the action changes, where something is known of it; else in every outcome."""
    head = ("study", "effect on the next", "estimate, seed 0", "90 % interval", "as known", "open", "against")
    rows = []
    for name, runs in found.items():
        for one in _told(runs[0].effects):
            same = [other for run in runs for other in run.effects if other.outcome == one.outcome]
            rows.append((name, one.outcome, number(one.effect), span(one.interval), *_tally(same)))
    return table(head, rows)


def weights(found: Found) -> str:
    """The weights, where the verdict lets them be read."""
    head = ("study", "outcome", "weight, seed 0", "90 % interval", "per", "as known", "open", "against", "read in")
    rows = []
    for name, runs in found.items():
        for i, one in enumerate(runs[0].weights):
            same = [run.weights[i] for run in runs]
            read = sum(_read(run.verdict, run.weights[i]) for run in runs)
            shown = (number(one.weight), span(one.interval)) if _read(runs[0].verdict, one) else ("no finding", "")
            rows.append(
                (name, one.outcome, *shown, one.per.removeprefix("per "), *_tally(same), f"{read} of {len(runs)}")
            )
    return table(head, rows)


def methods(found: Found) -> str:
    """Log-likelihood of a decision, and accuracy, of decisions of patients that nothing was learnt from; seed 0."""
    head = ("account", *ORDER)
    rows = []
    for account, words in ACCOUNTS.items():
        own = [found[name][0].methods.get(account) if name in found else None for name in ORDER]
        if any(one is not None for one in own):
            met = "" if account == "chance" else " ({:.1f} %)"
            cells = ["" if one is None else f"{one.mean:.3f}{met.format(100 * one.accuracy)}" for one in own]
            rows.append((words, *cells))
    return table(head, rows)


def limits(found: Found) -> str:
    """The level at which they act, seed by seed, where it was sought."""
    rows = []
    for name, runs in found.items():
        told = [one.limit for one in runs if one.limit is not None]
        if told:
            each = ", ".join("open" if one.limit is None else f"{one.limit:g} ({span(one.interval)})" for one in told)
            rows.append((name, told[0].asked, each))
    return table(("study", "limit of", "found (90 % interval), seed by seed"), rows)


def rates(found: Found) -> str:
    """How much of one outcome weighs as much as one unit of another, seed 0, where weights are read."""
    rows = [
        (name, f"1 unit of {one.outcome}", number(one.rate), span(one.interval), one.against)
        for name, runs in found.items()
        if weights_mean_something(runs[0].verdict)
        for one in runs[0].rates
        if one.rate is not None
    ]
    return table(("study", "of", "weighs as much as units", "90 % interval", "of"), rows)


def variants(found: Found) -> str:
    """The same studies with other choices, seed 0."""
    rows = []
    for name, runs in found.items():
        itself: list[tuple[str, CaseStudy | VariantFinding]] = [("as it is", runs[0])]
        for title, one in [*itself, *((other.name, other) for other in runs[0].variants)]:
            told = _told(one.effects)[0]
            known = [
                f"{w.weight:+.2f} ({span(w.interval)})" if _read(one.verdict, w) else "no finding"
                for w in one.weights[:1]
            ]
            rows.append(
                (name, title, f"{number(told.effect)} ({span(told.interval)})", SHORT[told.says], one.verdict, *known)
            )
    head = ("study", "choice", "effect (90 % interval)", "beside what is known", "verdict", "first weight")
    return table(head, rows)


def _told(found: tuple[EffectFinding, ...]) -> list[EffectFinding]:
    """Effects of which something is known; where nothing is, all."""
    return [one for one in found if one.known is not None] or list(found)


def _read(verdict: str, one: WeightFinding) -> bool:
    return weights_mean_something(verdict) and one.unread is None


def _tally(found: Iterable[EffectFinding | WeightFinding]) -> tuple[str, str, str]:
    """In how many seeds a finding is as known, open, or against; empty where nothing is known."""
    told = [one.says for one in found]
    if "nothing known" in told:
        return "", "", ""
    each = [told.count(word) for word in ("agrees", "open", "contradicts")]
    return str(each[0]), str(each[1]), str(each[2])


# --- tables of what stands beside them --------------------------------------------------------------------------------


def checks(found: Mapping[str, Checks]) -> str:
    """How often experts who are known were recovered."""
    rows = []
    for name, own in found.items():
        prefer = [one for one in own.runs if one.kappa]
        kappas = sum(one.kappa_interval[0] <= one.kappa <= one.kappa_interval[1] for one in prefer)
        held, read = ([hit for one in own.runs for hit in getattr(one, key)] for key in ("held", "held_if_read"))
        right, shown = (sum(getattr(one, key) for one in own.runs) for key in ("right", "matter"))
        rows.append(
            (
                name,
                f"{len(own.runs)}, {len(prefer)}",
                share(held),
                share(read),
                f"{kappas} of {len(prefer)}",
                f"{right} of {len(own.runs)}",
                f"{shown}",
            )
        )
    head = ("study", "runs, with preferences", "weights in their 90 % intervals", "of those that may be read")
    return table((*head, "kappas", "verdict right", "outcomes matter"), rows)


def share(hits: Sequence[bool]) -> str:
    """How many of them are true."""
    return f"{sum(hits)} of {len(hits)}{f' ({100 * sum(hits) / len(hits):.0f} %)' if hits else ''}"


def hospitals(found: Found) -> str:
    """The same question of two cohorts."""
    rows = []
    for name, runs in found.items():
        counts, beyond = runs[0].counts, sum(weights_mean_something(one.verdict) for one in runs)
        added = ", ".join(f"{one.beyond_habit.mean:+.4f}" for one in runs)
        rows.append(
            (
                HOSPITALS[name],
                f"{counts.used}, {counts.patients}",
                f"{counts.decisions} ({100 * counts.taken / counts.decisions:.0f} %)",
                str(counts.changes),
                f"{beyond} of {len(runs)}",
                added,
                f"{max(one.beyond_habit.standard_error for one in runs):.4f}",
                f"{100 * runs[0].methods['habit'].accuracy:.1f} %",
            )
        )
    head = ("cohort", "stays, patients", "decisions (treated)", "that change", "beyond habit", "what outcomes add")
    return table((*head, "largest standard error", "accuracy of habit"), rows)


def effects_of_both(found: Found) -> str:
    """What an antibacterial changes in the next value, by cohort; and in how many seeds its weight may be read."""
    rows = []
    for i, outcome in enumerate(one.outcome for one in next(iter(found.values()))[0].weights):
        cells = []
        for runs in found.values():
            (effect,) = (one for one in runs[0].effects if one.outcome == outcome)
            read = sum(_read(run.verdict, run.weights[i]) for run in runs)
            cells += [f"{number(effect.effect)} ({span(effect.interval)})", f"{read} of {len(runs)}"]
        rows.append((outcome, *cells))
    named = [HOSPITALS[name] for name in found]
    return table(
        ("antibacterial on the next", *(cell for one in named for cell in (f"effect, {one}", f"weight read, {one}"))),
        rows,
    )


def accuracy(found: Accuracies) -> str:
    """Beside the paper's table of the ICU."""
    rows = []
    first = ICU_ACCURACIES["cirl"][0]
    for one in found.methods:
        its = ICU_ACCURACIES.get(one.method)
        error = "" if one.standard_error is None else f" ± {100 * one.standard_error:.1f}"
        behind = ""
        if one.behind is not None:
            behind = f"{100 * one.behind.mean:+.1f} ± {100 * one.behind.standard_error:.1f}"
        foreseen = "" if one.foreseen is None else f"{100 * one.foreseen:.1f}"
        paper = ("", "")
        if its is not None:
            less = "" if one.method == "cirl" else f"{100 * (first - its[0]):+.1f}"
            paper = (f"{100 * its[0]:.1f} ± {100 * its[1]:.2f}", less)
        rows.append(
            (METHODS[one.method], str(one.splits), f"{100 * one.accuracy:.1f}{error}", behind, *paper, foreseen)
        )
    head = ("method", "splits", "accuracy, %", "CIRL less it", "the paper's, %", "CIRL less it there", "with habits, %")
    return table(head, rows)


def seconds_of(found: Mapping[str, int]) -> str:
    """How long one run takes."""
    rows = [(name, f"{found[name] / 60:.1f}") for name in ORDER if name in found]
    return table(("study", "processor minutes of one run, without `--quick`"), rows)


def tables(found: Stored) -> dict[str, str]:
    """By title all of which something is stored."""
    made = {
        "Tables": counts(found.studies),
        "Effects": effects(found.studies),
        "Verdicts": verdicts(found.studies),
        "Limits": limits(found.studies),
        "Weights": weights(found.studies),
        "Exchange rates": rates(found.studies),
        "Methods": methods(found.studies),
        "Other choices": variants(found.studies),
    }
    if found.checks:
        made["Experts who are known"] = checks(found.checks)
    if found.hospitals:
        made |= {"Two cohorts": hospitals(found.hospitals), "Effects in both": effects_of_both(found.hospitals)}
    if found.accuracy is not None:
        made["Accuracy"] = accuracy(found.accuracy)
    if found.seconds:
        made["Time"] = seconds_of(found.seconds)
    return made
