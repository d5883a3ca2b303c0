"""Progress: bars on a terminal, few plain lines in a log file, seconds per stage always."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from irl.stages import LINE_EVERY, duration, stages


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def console(*, terminal: bool = False) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, force_terminal=terminal, width=200), text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.04, "0.0 s"), (4.23, "4.2 s"), (9.96, "10 s"), (59.6, "1 min 00 s"), (185, "3 min 05 s"), (7620, "2 h 07 min")],
)
def test_duration(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_log_file_gets_a_line_at_start_and_end_and_at_most_one_every_fifteen_seconds() -> None:
    clock, (shown, text) = Clock(), console()
    with stages(2, console=shown, clock=clock) as run:
        with run.stage("expert") as report:
            for step in range(1, 41):
                clock.now += 1.0
                report(step, 40)
        with run.stage("data") as report:
            clock.now += 20.0
            report(0, 10)
            clock.now += 20.0
            report(12, 10)
    assert LINE_EVERY == 15.0
    assert text.getvalue().splitlines() == [
        "[1/2] expert",
        "[1/2] expert: 38 %, 15 s so far, about 25 s left",
        "[1/2] expert: 75 %, 30 s so far, about 10 s left",
        "[1/2] expert: done after 40 s",
        "[2/2] data",
        "[2/2] data: 20 s so far",
        "[2/2] data: 100 %, 40 s so far, about 0.0 s left",
        "[2/2] data: done after 40 s",
    ]
    assert run.seconds == {"expert": 40.0, "data": 40.0}


def test_a_failing_stage_is_recorded_and_names_are_never_markup() -> None:
    clock, (shown, text) = Clock(), console()
    run = stages(1, console=shown, clock=clock)

    def fail() -> None:
        with run, run.stage("fit"):
            clock.now += 3.0
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    assert run.seconds == {"fit": 3.0}
    assert text.getvalue().splitlines()[-1] == "[1/1] fit: stopped after 3.0 s"
    shown, text = console()
    with stages(1, console=shown) as run, run.stage("[red]x[/red]"):
        pass
    assert text.getvalue().splitlines()[0] == "[1/1] [red]x[/red]"


def test_quiet_prints_nothing_and_standard_output_stays_free_for_results(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with stages(2, quiet=True, clock=clock) as run:
        for _ in range(2):
            with run.stage("fit") as report:
                clock.now += 3.0
                report(1, 2)
    assert capsys.readouterr() == ("", "")
    assert run.seconds == {"fit": 6.0}, "a name used twice adds up"
    with stages(1) as run, run.stage("fit"):
        pass
    output = capsys.readouterr()
    assert output.out == ""
    assert "[1/1] fit" in output.err


def test_a_terminal_gets_bars_that_end_full() -> None:
    shown, text = console(terminal=True)
    with stages(2, console=shown) as run:
        with run.stage("early") as report:
            report(3, 10)
        with run.stage("silent"):
            pass
    last = text.getvalue().rsplit("[1/2] early", 1)[1]
    assert "[2/2] silent" in last
    assert last.count("100 %") == 2
