"""``cirl benchmark``: the paper's tables and figure, by any number of processes; ``cirl benchmark report DIR``."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from cirl_gym.files import read_json, write_json
from irl.benchmark.jobs import METHODS
from irl.benchmark.parts import SETTINGS, Benchmark, BenchmarkConfig
from irl.benchmark.report import write_report
from irl.benchmark.run import jobs_of, run
from irl.commands.options import BenchmarkOptions
from irl.commands.terminal import console
from irl.report.terminal import show
from irl.result.codec import SCHEMA, plain
from irl.result.result import installed_versions
from irl.stages import stages
from irl.stored_stages import differences


def command(options: BenchmarkOptions, config: BenchmarkConfig | None = None) -> None:
    """Do what is missing of the jobs asked for, then write and print the report of all that is there.

    Args:
        options: of the command line.
        config: how much is done for every job; default: as in the paper.

    Raises:
        ValueError: an option is not possible, or the folder is of other settings; or, when all else is done and the
            report is written, jobs failed: the message names them and their logs.
        OSError: the folder cannot be written to.
        ImportError: what the backend needs is not installed.
    """
    failed = _computed(options, config or BenchmarkConfig()) if options.report is None else {}
    shown = console()
    show(write_report(options.out), shown)
    written = "report.md, outcomes.csv, cells.csv, figure3.svg"
    shown.print(f"Written to {options.out / 'report'}: {written}", soft_wrap=True)
    if failed:
        told = "; ".join(f"{name}: {error} ({options.out / name}.log)" for name, error in failed.items())
        raise ValueError(f"{len(failed)} failed, and are tried again by the same command: {told}")


def _computed(options: BenchmarkOptions, config: BenchmarkConfig) -> dict[str, str]:
    """Do the jobs; by name of those that failed, why."""
    settings = _chosen("settings", options.settings, tuple(SETTINGS))
    methods = _chosen("methods", options.methods, tuple(METHODS))
    if options.seeds < 1 or options.jobs == 0 or options.jobs < -1:
        raise ValueError(f"seeds must be at least 1 and jobs at least 1, or -1, got {options.seeds}, {options.jobs}")
    benchmark = Benchmark(options.out.resolve(), config.quick() if options.quick else config)
    _begin(benchmark)
    jobs = jobs_of(settings, methods, options.seeds)
    with stages(2, console=Console(stderr=True)) as watch:
        return run(benchmark, jobs, options.jobs, options.backend, watch)


def _chosen(option: str, asked: Sequence[str], known: tuple[str, ...]) -> tuple[str, ...]:
    """What is asked for, or all, in the usual order."""
    for name in asked:
        if name not in known:
            raise ValueError(f"--{option}: {name!r} is not one of {', '.join(known)}")
    return tuple(name for name in known if name in asked or not asked)


def _begin(benchmark: Benchmark) -> None:
    """State how much is done for every job, with what; a folder in which that was different is refused."""
    path: Path = benchmark.folder / "benchmark.json"
    settings = plain(benchmark.config, "settings")
    if path.is_file():
        before = read_json(path).get("settings", {})
        if before != settings:
            other = differences(before, settings)
            raise ValueError(f"{benchmark.folder} holds jobs with other {other}: name another folder by --out")
    machine = f"{platform.machine()}, {os.cpu_count()} processors, {platform.system()}"
    write_json(path, {"schema": SCHEMA, "settings": settings, "versions": installed_versions(), "machine": machine})
