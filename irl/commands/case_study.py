"""``cirl case-study NAME``: a decision of intensive care from a MEDS data set, beside what medicine knows of it."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cirl_gym.files import escaped, write_text
from cirl_gym.tables.meds import OPEN_DATA
from irl.case_studies.demo import FOLDER, fetch_demo
from irl.case_studies.study import StudyDesign, read_study
from irl.case_studies.table import study_table
from irl.commands.arguments import TableArguments, WeighedArguments
from irl.commands.options import CaseStudyOptions, ExplainOptions
from irl.commands.prepared import asked_table

if TYPE_CHECKING:
    import pandas as pd

    from irl.result.case_study import CaseStudy, CheckedRun, Counts

STUDY, TABLE, VARIANTS = "study.json", "table.csv", "variants"
"""Beside the files of the run; the last is a folder of folders."""


def command(options: CaseStudyOptions) -> CaseStudy:
    """Make the table of a study, find what its decisions traded off, print it; write ``study.json`` and the run.

    Raises:
        ValueError: there is no such study, no data set, or nothing can be learnt from it; the message says what to do.
        OSError: the folder cannot be written to.
        ImportError: pyarrow, which reads MEDS data, is not installed.
    """
    study = read_study(options.study, options.variant)
    if options.fetch_demo:
        options = replace(options, meds=options.meds or FOLDER)
    if options.meds is None:
        raise ValueError(f"--meds: name the folder of a MEDS data set, or --fetch-demo. {OPEN_DATA}")
    if options.variant is not None and options.sensitivity:
        raise ValueError("--sensitivity runs every variant; give it without --variant")
    if options.check < 0:
        raise ValueError(f"--check: a number of simulated experts, not negative, got {options.check}")
    from msgspec import structs

    from irl.commands.terminal import console
    from irl.processes import engine
    from irl.report.case_study import report_of_study
    from irl.report.terminal import show

    if options.fetch_demo:
        print(f"{options.meds}: the MIMIC-IV demo{'' if fetch_demo(options.meds) else ', which was there already'}")
    with engine("loky", options.jobs):
        found = structs.replace(one_study(study, options, options.out, options.check), variant=options.variant)
        if options.sensitivity:
            found = _with_variants(found, study, options)
    found.write(options.out / STUDY)
    show(report_of_study(found, options.out), console())
    return found


def _with_variants(found: CaseStudy, study: StudyDesign, options: CaseStudyOptions) -> CaseStudy:
    """The same study with other choices, each with a run of its own."""
    from msgspec import structs

    from irl.case_studies.findings import varied

    variants = []
    for one in study.variant:
        folder = options.out / VARIANTS / re.sub(r"\W+", "_", one.name)
        told = one_study(read_study(options.study, one.name), options, folder, 0)
        variants.append(varied(study, one.name, told))
    return structs.replace(found, variants=tuple(variants))


def one_study(study: StudyDesign, options: CaseStudyOptions, folder: Path, check: int) -> CaseStudy:
    """One study or variant of it: its table, and what the decisions in it traded off."""
    from irl.case_studies.findings import counts_of

    assert options.meds is not None
    table = study_table(study, options.meds)
    for line in table.lines():
        print(escaped(line))
    counts = counts_of(table.frame, study.action.name, table.stays, table.cohort)
    return of_rows(study, options, table.frame, counts, folder, check)


def of_rows(
    study: StudyDesign, options: CaseStudyOptions, frame: pd.DataFrame, counts: Counts, folder: Path, check: int = 0
) -> CaseStudy:
    """What the decisions in a study's table traded off, by the road of ``cirl explain``.

    Args:
        study: the study.
        options: of the command.
        frame: its table, as :class:`irl.case_studies.table.StudyTable` has it.
        counts: of the table.
        folder: gets the table and the run.
        check: how many experts are simulated in a world fitted to the table.
    """
    write_text(folder / TABLE, frame.to_csv(index=False))
    asked = explain_options(study, options, folder)
    parts, how, signs = asked_table(asked, asked.table)
    for line in parts.report.lines():
        print(escaped(line))
    from irl import whole_run
    from irl.case_studies.findings import findings
    from irl.stored_stages import remove

    if options.fresh:
        remove(folder)
    config = whole_run.asked_of(asked, parts.report.columns, how, signs, TABLE)
    episodes = whole_run.Episodes.of_table(parts)
    run = whole_run.explain(episodes, config, folder)
    name = Path(options.study).stem if options.study.endswith(".toml") else options.study
    found = findings(study, name, frame, counts, run, options.quick)
    if not check:
        return found
    from msgspec import structs

    from irl.case_studies.check import checked

    return structs.replace(found, simulated=checked(episodes, run.result.features, config, check, folder, _told))


def _told(number: int, found: CheckedRun) -> None:
    held = f"{sum(found.held)} of {len(found.held)} weights in their intervals"
    print(f"[check {number}] {held}, verdict {'right' if found.right else 'wrong'}", file=sys.stderr, flush=True)


def explain_options(study: StudyDesign, options: CaseStudyOptions, folder: Path) -> ExplainOptions:
    """What ``cirl explain`` is asked of the study's table."""
    columns = TableArguments(
        id="stay",
        time="time",
        action=(study.action.name,),
        features=tuple(one.name for one in study.covariate),
        static=tuple(one.name for one in study.covariate if one.static),
        group="subject",
    )
    return ExplainOptions(
        table=folder / TABLE,
        columns=columns,
        weighed=WeighedArguments(
            outcomes=study.weigh.outcomes,
            lower_is_better=study.weigh.lower_is_better,
            sign=study.weigh.sign,
            gamma=study.weigh.gamma,
            habit=study.weigh.habit,
            forbid=study.weigh.forbid,
        ),
        effect=tuple(one.says for one in study.known.effects),
        seed=options.seed,
        quick=options.quick,
        out=folder,
    )
