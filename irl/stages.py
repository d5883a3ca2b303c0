"""How far a long run has come: bars with time left on a terminal and in a notebook, few plain lines in a log file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from markupsafe import Markup
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Reporter: TypeAlias = Callable[[float, float], None]
"""``report(done, total)``: what a stage calls as it goes; any unit will do."""

LINE_EVERY, ROW_EVERY = 15.0, 0.25
"""Seconds between two plain lines of one stage at the least, and between two changes of its row in a notebook."""


def duration(seconds: float) -> str:
    """Seconds in words that are short enough for a line: ``4.2 s``, ``58 s``, ``3 min 05 s``, ``2 h 07 min``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class Stages:
    """The stages of one run and how long each took. Made by :func:`stages`."""

    def __init__(self, total: int, console: Console | None, clock: Callable[[], float]) -> None:
        self.seconds: dict[str, float] = {}
        """Of every stage that has ended, by name; a name used twice adds up."""
        self._total = total
        self._console = console
        self._clock = clock
        self._begun = 0
        self._current: tuple[str, float] | None = None
        self._bars: Progress | None = None
        self._rows = NotebookRows() if console is not None and console.is_jupyter else None
        if console is not None and console.is_terminal:
            self._bars = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=24),
                TextColumn("{task.percentage:>3.0f} %"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=console,
                refresh_per_second=4,
            )

    def __enter__(self) -> Stages:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def under_way(self) -> dict[str, float]:
        """The stage that is not over yet and its seconds up to now; empty between stages."""
        if self._current is None:
            return {}
        name, begin = self._current
        return {name: self.seconds.get(name, 0.0) + self._clock() - begin}

    @contextmanager
    def stage(self, name: str) -> Iterator[Reporter]:
        """Show one stage from its start to its end, and record its seconds, also if it fails."""
        self._begun += 1
        title, begin, outcome = f"[{self._begun}/{max(self._total, self._begun)}] {name}", self._clock(), "stopped"
        self._current = (name, begin)
        try:
            if (bars := self._bars) is None:
                yield self._lines(title, begin)
            else:
                # It pulses until the first report, and is full at the end even if the stage ended early.
                task = bars.add_task(title, total=None)
                yield lambda done, total: bars.update(task, completed=done, total=total)
                last = bars.tasks[-1].total or 1.0
                bars.update(task, completed=last, total=last)
            outcome = "done"
        finally:
            elapsed = self._clock() - begin
            self._current = None
            self.seconds[name] = self.seconds.get(name, 0.0) + elapsed
            if self._bars is None:
                self._print(f"{title}: {outcome} after {duration(elapsed)}", 1.0 if outcome == "done" else 0.0)

    def _lines(self, title: str, begin: float) -> Reporter:
        self._print(title)
        last = begin

        def report(done: float, total: float) -> None:
            nonlocal last
            now = self._clock()
            if now - last < (LINE_EVERY if self._rows is None else ROW_EVERY):
                return
            last, elapsed = now, now - begin
            if done <= 0 or total <= 0:
                self._print(f"{title}: {duration(elapsed)} so far")
            else:
                left = elapsed * max(total - done, 0.0) / done
                share = min(done / total, 1.0)
                told = f"{title}: {100 * share:.0f} %, {duration(elapsed)} so far, about {duration(left)} left"
                self._print(told, share)

        return report

    def _print(self, line: str, share: float | None = None) -> None:
        if self._rows is not None:
            self._rows.show(self._begun, line, share)
        elif self._console is not None:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


class NotebookRows:
    """A row for each stage in the output of a notebook's cell, with a bar. Plain HTML: it asks for no widgets."""

    def __init__(self) -> None:
        self._rows: dict[int, Markup] = {}
        self._place: Any = None

    def show(self, number: int, line: str, share: float | None) -> None:
        """Put a line and the share that is done (None: not known yet) in the row of a stage."""
        from IPython.display import HTML, display  # where there is a notebook, there is IPython

        value = Markup() if share is None else Markup(' value="{}"').format(f"{share:.3f}")
        self._rows[number] = Markup("<div><progress{}></progress> {}</div>").format(value, line)
        page = HTML(str(Markup().join(self._rows.values())))
        if self._place is None:
            self._place = display(page, display_id=True)
        else:
            self._place.update(page)


def stages(
    total: int,
    *,
    quiet: bool = False,
    console: Console | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Stages:
    """Show the stages of a run.

    Used as ``with stages(9) as run:``, then ``with run.stage("expert") as report:``, then ``report(done, total)``.

    Args:
        total: how many stages there will be.
        quiet: show nothing; the seconds are recorded all the same.
        console: where to show; default: standard error, so that standard output carries results alone.
        clock: seconds from any fixed moment.
    """
    return Stages(total, None if quiet else console or Console(stderr=True), clock)
