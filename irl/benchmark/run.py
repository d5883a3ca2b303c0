"""All jobs of a benchmark, by any number of processes on one machine or many: joblib's backends are the engine.

What is done has files and is not done again; what fails has its traceback in a log beside them, and stops nothing.
"""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool

from joblib import delayed

from cirl_gym.files import write_text
from irl.benchmark.jobs import Job
from irl.benchmark.parts import Benchmark, C, OfPaper, Task
from irl.processes import Backend, Watched, engine, one_thread
from irl.stages import Reporter, Stages

BEGUN = "begun, and not ended\n"
"""Content of the log of a task that is under way."""


def jobs_of(settings: Sequence[str], methods: Sequence[str], seeds: int) -> list[Job]:
    """Every combination, all of one seed before those of the next."""
    return [Job(setting, method, seed) for seed, setting, method in itertools.product(range(seeds), settings, methods)]


def run(benchmark: OfPaper, jobs: Sequence[Job], workers: int, backend: Backend, watch: Stages) -> dict[str, str]:
    """Do what is missing of the jobs, and of the parts that they need.

    Args:
        benchmark: folder and settings.
        jobs: each is done whatever becomes of the others.
        workers: processes; -1: as many as there are processors.
        backend: joblib's.
        watch: shows how much is done and the time left.

    Returns:
        By name of what is not done, why.
    """
    missing = [job for job in jobs if not benchmark.has(job)]
    parts = list(dict.fromkeys(part for job in missing for part in job.needs(benchmark.config)))
    with engine(backend, workers):
        with watch.stage("experts and their episodes") as report:
            failed = carry_out(parts, benchmark, report)
        without = {job: [part.name for part in job.needs(benchmark.config) if part.name in failed] for job in missing}
        able = [job for job in missing if not without[job]]
        with watch.stage("methods") as report:
            failed |= carry_out(able, benchmark, report)
    return failed | {job.name: f"not begun without {', '.join(lost)}" for job, lost in without.items() if lost}


def carry_out(tasks: Sequence[Task[C]], benchmark: Benchmark[C], report: Reporter) -> dict[str, str]:
    """Do what is missing of tasks that need nothing of each other; by name of those that failed, why."""
    failed: dict[str, str] = {}
    for task in tasks:  # of an earlier command that was killed
        (benchmark.folder / f"{task.name}.log").unlink(missing_ok=True)
    while left := [task for task in tasks if task.name not in failed and not benchmark.has(task)]:
        try:
            ended = Watched(len(left), report)(delayed(attempt)(task, benchmark) for task in left)
        except BrokenProcessPool as error:
            # A process was killed, by what it worked on or for lack of memory: all that were under way are lost.
            killed = f"its process was killed: {type(error).__name__}"
            ended = [(task.name, killed) for task in left if under_way(task, benchmark)]
            if not ended:
                raise
        failed |= {name: error for name, error in ended if error is not None}
    return failed


def attempt(task: Task[C], benchmark: Benchmark[C]) -> tuple[str, str | None]:
    """Carry out a task by one thread: its name, and what went wrong, of which its log has the whole traceback."""
    log = benchmark.folder / f"{task.name}.log"
    write_text(log, BEGUN)
    try:
        with one_thread():
            task.work(benchmark)
    except Exception as error:  # whatever it is, the others go on
        write_text(log, traceback.format_exc())
        return task.name, f"{type(error).__name__}: {error}"
    log.unlink()
    return task.name, None


def under_way(task: Task[C], benchmark: Benchmark[C]) -> bool:
    """Whether a task was begun by a process that did not come to its end."""
    log = benchmark.folder / f"{task.name}.log"
    return log.is_file() and log.read_text(encoding="utf-8") == BEGUN
