"""Case studies with several seeds, what stands beside them, and the tables that docs/case-studies.md shows of all.

    python benchmarks/case_studies.py [--meds DIR] [--seeds 3] [--check 20] [--splits 5] [--seconds] [--tables DIR]

Every study with every seed is a run of ``cirl case-study``; one whose findings are there is not repeated. With seed 0
every variant is run too. ``--check`` asks of each study whether experts who are known would be recovered from its
table, ``--splits`` how well all methods meet the decisions of antibiotics, ``--seconds`` how long a study takes, and
``--tables`` the study of antibiotics of tables that were made elsewhere. All of it is kept as it comes, in
OUT/findings. Without ``--meds`` and ``--tables`` nothing is computed: the tables are those of
docs/results/case_studies, whose files are like those of OUT/findings, and the page gets them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import tyro
from case_study_tables import (
    ACCURACY,
    CHECKS,
    HOSPITALS,
    OF_HOSPITALS,
    ORDER,
    SECONDS,
    Checks,
    Stored,
    accuracies,
    tables,
)
from markdown_tables import renewed

from cirl_gym.files import read_json, write_json
from irl.benchmark.table import METHODS
from irl.benchmark.table_report import read_outcomes
from irl.case_studies.check import CHECK, checked_run
from irl.case_studies.findings import counts_of
from irl.case_studies.study import read_study
from irl.case_studies.table import study_table
from irl.commands import benchmark
from irl.commands.case_study import STUDY, TABLE, command, explain_options, of_rows
from irl.commands.options import BenchmarkOptions, CaseStudyOptions
from irl.result.case_study import CaseStudy

DOCS = Path(__file__).resolve().parents[1] / "docs"
STORED, PAGE = DOCS / "results" / "case_studies", DOCS / "case-studies.md"


@dataclass(frozen=True)
class Options:
    """Case studies with several seeds."""

    meds: Path | None = None
    studies: tuple[str, ...] = ORDER
    seeds: int = 3
    check: int = 0
    """So many simulated experts a study, of seed 0."""
    splits: int = 0
    """So many splits by patient of the table of antibiotics, for the accuracies of all methods."""
    methods: tuple[str, ...] = tuple(name for name in METHODS if name not in ("avril", "iq_learn"))
    """Of the accuracies; by default all but the slowest."""
    tables: Path | None = None
    """Folder of tables of antibiotics every 12 h, icu_antibiotics_COHORT_demo_12h.csv."""
    seconds: bool = False
    """How long one run of each study takes, without --quick and by one process."""
    full: bool = False
    """Without --quick."""
    out: Path = Path("runs/case_studies")


def run_seeds(asked: Options, name: str, findings: Path) -> None:
    """The study with every seed that is missing, with seed 0 all its variants too."""
    for seed in range(asked.seeds):
        path = findings / f"{name}_{seed}.json"
        if not path.is_file():
            out = asked.out / f"{name}_{seed}"
            command(options_of(asked, name, seed, out, sensitivity=seed == 0))
            CaseStudy.read(out / STUDY).write(path)


def options_of(
    asked: Options, name: str, seed: int, out: Path, sensitivity: bool = False, check: int = 0
) -> CaseStudyOptions:
    quick = not asked.full
    return CaseStudyOptions(
        name, meds=asked.meds, sensitivity=sensitivity, check=check, seed=seed, quick=quick, out=out
    )


def run_checks(asked: Options, name: str, findings: Path) -> None:
    """So many experts who are known; what is there of an earlier command is not repeated."""
    path, out = findings / CHECKS / f"{name}.json", asked.out / f"{name}_{CHECK}"
    if path.is_file() and len(Checks.read(path).runs) >= asked.check:
        return
    try:
        command(options_of(asked, name, 0, out, check=asked.check))
    finally:  # whoever stops it has what was done until then
        if list((out / CHECK).glob("run_*.json")):
            collect_checks(name, out, not asked.full).write(path)


def collect_checks(name: str, out: Path, quick: bool) -> Checks:
    """The runs that are done in a study's folder."""
    runs = [read_json(path) for path in sorted((out / CHECK).glob("run_*.json"))]
    return Checks(study=name, quick=quick, outcomes=runs[0]["outcomes"], runs=tuple(map(checked_run, runs)))


def run_seconds(asked: Options, name: str, findings: Path) -> None:
    """Processor seconds of a study as ``cirl case-study`` runs it."""
    path = findings / SECONDS
    known = read_json(path) if path.is_file() else {}
    if name not in known:
        out, began = asked.out / f"{name}_seconds", time.process_time()
        command(CaseStudyOptions(name, meds=asked.meds, fresh=True, out=out))
        write_json(path, known | {name: round(time.process_time() - began)})


def run_cohorts(asked: Options, folder: Path, findings: Path) -> None:
    """The study of antibiotics every 12 h, of tables that were made elsewhere."""
    study = read_study("antibiotics", "bins 12 h")
    for name in HOSPITALS:
        for seed in range(asked.seeds):
            path = findings / OF_HOSPITALS / f"{name}_{seed}.json"
            if path.is_file():
                continue
            source = folder / f"icu_antibiotics_{name}_demo_12h.csv"
            frame = pd.read_csv(source, dtype={"stay_id": str, "subject_id": str})
            frame = frame.rename(columns={"stay_id": "stay", "subject_id": "subject", "bin": "time"})
            stays = frame["stay"].nunique()
            out = asked.out / f"{OF_HOSPITALS}_{name}_{seed}"
            counts = counts_of(frame, study.action.name, stays, stays)
            found = of_rows(study, options_of(asked, "antibiotics", seed, out), frame, counts, out)
            found.write(path)


def run_splits(asked: Options, findings: Path) -> None:
    """How well all methods meet the decisions of antibiotics every 24 h; what is there is not repeated."""
    assert asked.meds is not None
    study, out = read_study("antibiotics"), asked.out / "splits"
    options = options_of(asked, "antibiotics", 0, out)
    out.mkdir(parents=True, exist_ok=True)
    study_table(study, asked.meds).frame.to_csv(out / TABLE, index=False)
    explained = explain_options(study, options, out)
    benchmark.command(
        BenchmarkOptions(
            methods=asked.methods,
            seeds=asked.splits,
            quick=options.quick,
            out=out,
            table=out / TABLE,
            columns=explained.columns,
            weighed=explained.weighed,
        )
    )
    accuracies(read_outcomes(out), options.quick).write(findings / ACCURACY)


def main(arguments: Sequence[str] | None = None) -> None:
    asked = tyro.cli(Options, args=arguments)
    folder = asked.out / "findings"
    if asked.meds is not None:
        for name in asked.studies:
            run_seeds(asked, name, folder)
            if asked.check:
                run_checks(asked, name, folder)
            if asked.seconds:
                run_seconds(asked, name, folder)
        if asked.splits:
            run_splits(asked, folder)
    if asked.tables is not None:
        run_cohorts(asked, asked.tables, folder)
    computed = asked.meds is not None or asked.tables is not None
    made = tables(Stored.read(folder if computed else STORED))
    if not computed:
        PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8"), made), encoding="utf-8")
    for title, one in made.items():
        print(f"\n{title}\n\n{one}")


if __name__ == "__main__":
    main()
