"""``cirl benchmark``: the paper's tables and figure, or those of a table; ``cirl benchmark report DIR``."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from cirl_gym.files import escaped, read_json, write_json
from irl.benchmark import report, table, table_report
from irl.benchmark.jobs import METHODS
from irl.benchmark.parts import SETTINGS, Benchmark, BenchmarkConfig
from irl.benchmark.run import carry_out, jobs_of, run
from irl.commands.options import BenchmarkOptions, ExplainOptions
from irl.commands.prepared import asked_table
from irl.commands.terminal import console
from irl.processes import engine
from irl.report.terminal import show
from irl.result.codec import SCHEMA
from irl.result.result import installed_versions
from irl.stages import stages
from irl.stored_stages import differences
from irl.whole_run import asked_of, in_json

ABOUT = "benchmark.json"
"""States how much is done for every job of a folder, and with what."""

OF_EXPERTS = ("kappa", "episodes")
"""Options about simulated experts, fields of :class:`irl.settings.DemoConfig` too."""


def command(options: BenchmarkOptions, config: BenchmarkConfig | None = None) -> None:
    """Do what is missing of the jobs asked for, then write and print the report of all that is there.

    Args:
        options: of the command line.
        config: how much is done for every job of the paper's settings; default: as in the paper.

    Raises:
        ValueError: an option is not possible, the table cannot be used, or the folder is of other settings; or, when
            all else is done and the report is written, jobs failed: the message names them and their logs.
        OSError: the folder cannot be written to, or the table not be read.
        ImportError: what the backend needs is not installed.
    """
    failed: dict[str, str] = {}
    if options.report is None:
        failed = _computed(options, config or BenchmarkConfig()) if options.table is None else _of_table(options)
    shown = console()
    of_table = "table" in _about(options.out).get("settings", {})
    show((table_report if of_table else report).write_report(options.out), shown)
    written = ", ".join(sorted(path.name for path in (options.out / "report").iterdir()))
    shown.print(f"Written to {options.out / 'report'}: {written}", soft_wrap=True)
    if failed:
        told = "; ".join(f"{name}: {error} ({options.out / name}.log)" for name, error in failed.items())
        raise ValueError(f"{len(failed)} failed, and are tried again by the same command: {told}")


def _computed(options: BenchmarkOptions, config: BenchmarkConfig) -> dict[str, str]:
    """Do the jobs in the paper's settings; by name of those that failed, why."""
    for group in (options.columns, options.weighed):
        given = [one.name for one in fields(group) if getattr(group, one.name) != one.default]
        if given:
            raise ValueError(f"--{given[0].replace('_', '-')} is about a table; name one by --table")
    settings = _chosen("settings", options.settings, tuple(SETTINGS))
    methods = _chosen("methods", options.methods, tuple(METHODS))
    _check_numbers(options)
    asked = {name: getattr(options, name) for name in OF_EXPERTS if getattr(options, name) is not None}
    config = replace(config, demo=replace(config.demo, **asked))
    benchmark = Benchmark(options.out.resolve(), config.quick() if options.quick else config)
    _begin(benchmark)
    jobs = jobs_of(settings, methods, options.seeds)
    with stages(2, console=Console(stderr=True)) as watch:
        return run(benchmark, jobs, options.jobs, options.backend, watch)


def _of_table(options: BenchmarkOptions) -> dict[str, str]:
    """Split the table, do the jobs; by name of those that failed, why."""
    assert options.table is not None
    for name in ("settings", *OF_EXPERTS):
        if getattr(options, name):
            raise ValueError(f"--{name} is about the paper's simulator, and --table is given")
    methods = _chosen("methods", options.methods, tuple(table.METHODS))
    _check_numbers(options)
    asked = ExplainOptions(options.table, columns=options.columns, weighed=options.weighed, quick=options.quick)
    first, how, signs = asked_table(asked, options.table)
    for line in first.report.lines():
        print(escaped(line))
    config = asked_of(asked, first.report.columns, how, signs, options.table.name)
    of_all = table.TableConfig(config, first.report.sha256)
    benchmark = Benchmark(options.out.resolve(), of_all.quick() if options.quick else of_all)
    table.check_enough(first)
    _begin(benchmark)
    missing = [job for job in table.jobs_of(methods, options.seeds) if not benchmark.has(job)]
    with stages(2, console=Console(stderr=True)) as watch, engine(options.backend, options.jobs):
        with watch.stage("splits by patient") as report_done:
            seeds = sorted({job.seed for job in missing})
            for done, seed in enumerate(seeds, 1):
                if not table.is_split(benchmark, seed):
                    again = asked_table(replace(asked, seed=seed), options.table)[0]
                    table.store_split(benchmark, seed, again)
                report_done(done, len(seeds))
        with watch.stage("methods") as report_done:
            return carry_out(missing, benchmark, report_done)


def _check_numbers(options: BenchmarkOptions) -> None:
    if options.seeds < 1 or options.jobs == 0 or options.jobs < -1:
        raise ValueError(f"seeds must be at least 1 and jobs at least 1, or -1, got {options.seeds}, {options.jobs}")


def _chosen(option: str, asked: Sequence[str], known: tuple[str, ...]) -> tuple[str, ...]:
    """What is asked for, or all, in the usual order."""
    for name in asked:
        if name not in known:
            raise ValueError(f"--{option}: {name!r} is not one of {', '.join(known)}")
    return tuple(name for name in known if name in asked or not asked)


def _about(folder: Path) -> dict[str, Any]:
    """What the folder's :data:`ABOUT` states; nothing where there is none."""
    found: dict[str, Any] = read_json(folder / ABOUT) if (folder / ABOUT).is_file() else {}
    return found


def _begin(benchmark: Benchmark[Any]) -> None:
    """State how much is done for every job, with what; a folder in which that was different is refused."""
    before, settings = _about(benchmark.folder).get("settings"), in_json(asdict(benchmark.config))
    if before is not None and before != settings:
        other = differences(before, settings)
        raise ValueError(f"{benchmark.folder} holds jobs with other {other}: name another folder by --out")
    machine = f"{platform.machine()}, {os.cpu_count()} processors, {platform.system()}"
    about = {"schema": SCHEMA, "settings": settings, "versions": installed_versions(), "machine": machine}
    write_json(benchmark.folder / ABOUT, about)
