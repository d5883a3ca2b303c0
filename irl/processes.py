"""Work that is in parts of its own, by one process or several: joblib's backends are the engine.

:func:`engine` says how many there are, around whatever is done; :func:`all_done` carries out calls that need nothing of
each other. With one process they are called one after the other, in this one; with more each process computes in one
thread. Numbers are the same: a call draws from generators that nothing else draws from, and computes in one thread.
"""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Literal, TypeAlias, TypeVar

import torch
from joblib import Parallel, delayed, parallel_config
from threadpoolctl import threadpool_limits

Backend: TypeAlias = Literal["loky", "ray", "dask"]
"""Processes of this machine, or a cluster that was started by its own means and sees the same folder."""
Report: TypeAlias = Callable[[int, int], object]
"""``report(done, total)``."""
T = TypeVar("T")


class Watched(Parallel):  # type: ignore[misc]
    """Says how many are done whenever one is, whatever the backend."""

    def __init__(self, total: int, report: Report | None) -> None:
        super().__init__(batch_size=1)
        self._total, self._report, self._told = total, report, 0

    def print_progress(self) -> None:
        """Called by joblib, once more at the end."""
        if self._report is not None and self.n_completed_tasks > self._told:
            self._told = self.n_completed_tasks
            self._report(self._told, self._total)


@contextmanager
def engine(backend: Backend, workers: int) -> Iterator[None]:
    """Joblib works inside with so many processes of a backend; -1: as many as there are processors.

    Ray and Dask take the cluster that their own settings name (``RAY_ADDRESS``, ``DASK_SCHEDULER_ADDRESS``), else one
    of this machine.

    Raises:
        ValueError: there is no such number of processes.
        ImportError: what the backend needs is not installed.
    """
    if workers == 0 or workers < -1:
        raise ValueError(f"jobs must be at least 1, or -1 for as many as there are processors, got {workers}")
    with ExitStack() as open_until_the_end:
        try:
            if backend == "ray":
                import_module("ray.util.joblib").register_ray()
            elif backend == "dask":
                named = import_module("dask").config.get("scheduler-address", None) is not None
                own = {} if named else {"n_workers": workers if workers > 0 else None, "threads_per_worker": 1}
                open_until_the_end.enter_context(import_module("distributed").Client(**own))
        except ImportError as error:
            raise ImportError(f"--backend {backend}: install cirl-gym[{backend}] ({error})") from error
        # Large arrays would else be read-only files in other processes, as they are not in this one.
        with parallel_config(backend=backend, n_jobs=workers, max_nbytes=None):
            yield


def all_done(calls: Sequence[Callable[[], T]], report: Report | None = None) -> list[T]:
    """What calls return, in their order; where :func:`engine` says nothing else, one after the other in this process.

    Args:
        calls: functions that can be pickled with all they know; what they warn of is warned of here.
        report: called with (calls done, calls) whenever one is.

    Raises:
        ChildProcessError: a process was killed.
        Exception: whatever the first call that failed has raised.
    """
    try:
        ended = Watched(len(calls), report)(delayed(_called)(call, os.getpid()) for call in calls)
    except BrokenProcessPool as error:
        raise ChildProcessError(
            f"one of the processes was killed, for lack of memory most likely ({type(error).__name__}); fewer --jobs "
            "need less"
        ) from error
    for _, told in ended:
        for text, category in told:
            warnings.warn(text, category, stacklevel=2)
    return [found for found, _ in ended]


def _called(call: Callable[[], T], owner: int) -> tuple[T, list[tuple[str, type[Warning]]]]:
    """What a call returns, and what it warned of where that is another process than the owner's."""
    if os.getpid() == owner:
        with one_thread():
            return call(), []
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner hears Ctrl-C, and ends this process
    with one_thread(), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = call()
    return found, [(str(one.message), one.category) for one in told]


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch and NumPy compute in one thread inside: the same numbers everywhere. The rest of a notebook is as it was.

    The matrices are small, so that more threads take longer.
    """
    before = torch.get_num_threads()
    try:
        with threadpool_limits(limits=1):
            torch.set_num_threads(1)
            yield
    finally:
        torch.set_num_threads(before)
