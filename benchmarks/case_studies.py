"""Case studies with several seeds, and the tables that docs/case-studies.md shows of what they found.

    python benchmarks/case_studies.py [--meds DIR] [--seeds 3] [--out runs/case_studies]

Every study with every seed is a run of ``cirl case-study``; one whose findings are there is not repeated. With seed 0
every variant is run too. Without ``--meds`` nothing is computed: the tables are those of docs/results/case_studies,
whose files are named STUDY_SEED.json, and the page gets them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import tyro

from irl.case_studies.study import names
from irl.commands.case_study import STUDY, command
from irl.commands.options import CaseStudyOptions
from irl.report.decisions import ACCOUNTS
from irl.result.case_study import CaseStudy, EffectFinding, VariantFinding, WeightFinding
from irl.result.codec import Interval
from irl.result.sentences import weights_mean_something

DOCS = Path(__file__).resolve().parents[1] / "docs"
STORED, PAGE = DOCS / "results" / "case_studies", DOCS / "case-studies.md"
ORDER = ("potassium", "transfusion", "insulin", "vasopressor", "antibiotics")
SHORT = {"agrees": "as known", "contradicts": "against what is known", "open": "open", "nothing known": ""}

Found = Mapping[str, list[CaseStudy]]


@dataclass(frozen=True)
class Options:
    """Case studies with several seeds."""

    meds: Path | None = None
    studies: tuple[str, ...] = ORDER
    seeds: int = 3
    full: bool = False
    """Without --quick."""
    out: Path = Path("runs/case_studies")


def read(folder: Path) -> Found:
    """Stored findings by study, in the order of their seeds."""
    found = [CaseStudy.read(path) for path in sorted(folder.glob("*.json"))]
    assert {one.study for one in found} <= set(names())
    return {
        name: sorted((one for one in found if one.study == name), key=lambda one: one.seed)
        for name in ORDER
        if any(one.study == name for one in found)
    }


def number(value: float, digits: int = 3) -> str:
    text = f"{value:.{digits}g}"
    return "0" if float(text) == 0 else text


def span(interval: Interval | None) -> str:
    return "" if interval is None else f"{number(interval[0])} to {number(interval[1])}"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head), *(list(row) for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


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


TABLES = {
    "Tables": counts,
    "Effects": effects,
    "Verdicts": verdicts,
    "Limits": limits,
    "Weights": weights,
    "Exchange rates": rates,
    "Methods": methods,
    "Other choices": variants,
}


def renewed(page: str, found: Found) -> str:
    """The page with every table made anew, where one with the same head stands."""
    for make in TABLES.values():
        new = make(found) + "\n"
        head = re.escape(new.splitlines()[0])
        page = re.sub(rf"^{head}\n(?:\|.*\n)*", lambda _, new=new: new, page, flags=re.MULTILINE)
    return page


def main() -> None:
    asked = tyro.cli(Options)
    folder = STORED
    if asked.meds is not None:
        folder = asked.out / "findings"
        for name in asked.studies:
            for seed in range(asked.seeds):
                path = folder / f"{name}_{seed}.json"
                if not path.is_file():
                    out = asked.out / f"{name}_{seed}"
                    options = CaseStudyOptions(
                        name, meds=asked.meds, sensitivity=seed == 0, seed=seed, quick=not asked.full, out=out
                    )
                    command(options)
                    CaseStudy.read(out / STUDY).write(path)
    found = read(folder)
    if asked.meds is None:
        PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
    for title, make in TABLES.items():
        print(f"\n{title}\n\n{make(found)}")


if __name__ == "__main__":
    main()
