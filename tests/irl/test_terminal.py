"""What a command shows stops no work, names do nothing to what shows them, and signals have their exit statuses."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tiny_run import RUN_CLI, icu_stays, refused

from cirl_gym.files import escaped, held, write_json
from cirl_gym.tuning.search import load_search
from irl.commands.cli import main
from irl.commands.terminal import Steady, console, steady
from irl.commands.tune import trial_table
from irl.report.section import Line, Report, Section, Table, render
from irl.report.terminal import show, show_table
from irl.result.result import Result

ROOT = Path(__file__).resolve().parents[2]
NAME = "wbc\x1b[31m\x07 [red]x[/] [/v2] :smile: \x9b2J"
SHOWN = r"wbc\x1b[31m\x07 [red]x[/] [/v2] :smile: \x9b2J"


@pytest.fixture(autouse=True)
def away(tmp_path, monkeypatch):
    """Whatever is written without a folder of its own."""
    monkeypatch.chdir(tmp_path)


def report(name: str) -> Report:
    table = Table(name, ["outcome", name], [[name, "\N{MINUS SIGN}0.3 \N{PLUS-MINUS SIGN} 0.1"]])
    section = Section("one", name, page=(name, table), terminal=(name, Line(name), table))
    return Report(name, (name,), (section,), name)


def printed(encoding: str, width: int, errors: str = "strict") -> str:
    """A report with odd names as a terminal of an encoding and a width shows it."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors=errors)
    show(report(NAME), Console(file=Steady(stream), width=width, highlight=False))  # type: ignore[arg-type]
    stream.flush()
    stream.buffer.seek(0)
    return stream.buffer.read().decode(encoding)


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "ascii", "latin-1"])
def test_names_are_shown_and_do_nothing(encoding):
    text = printed(encoding, 200)
    assert text.count(SHOWN) == 7
    assert "\x1b" not in text
    assert "-0.3 " + ("\N{PLUS-MINUS SIGN}" if encoding == "utf-8" else "+/-") + " 0.1" in text


NUMBERS = [
    "-0.421 to -0.159",
    "+0.21 (-0.10 to +0.52)",
    "1,178",
    "83.5 %",
    "0.061\n\N{PLUS-MINUS SIGN} 0.012",
    "",
    "12",
]
WORDS = st.text("ab_c", min_size=1, max_size=30)


@given(
    st.lists(WORDS, min_size=2, max_size=7).flatmap(
        lambda head: st.tuples(
            st.just(head),
            st.lists(st.tuples(WORDS, *[st.sampled_from(NUMBERS)] * (len(head) - 1)), min_size=1, max_size=4),
        )
    ),
    st.integers(20, 120),
)
def test_no_number_of_a_table_is_cut_on_any_terminal(table, width):
    head, rows = table
    stream = io.StringIO()
    show_table(Table("of", head, [*map(list, rows)]), Console(file=stream, width=width, color_system=None))
    assert max(map(len, stream.getvalue().splitlines())) <= width
    told = re.sub(r"lines of \d+ characters", "", " ".join(stream.getvalue().split()))
    cells = " ".join(cell for row in rows for cell in row[1:])
    assert Counter(re.findall(r"\S*\d\S*", told)) == Counter(re.findall(r"\S*\d\S*", cells))


def test_columns_are_as_wide_as_what_is_shown_in_them():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    table = Table("of", ["name", "gain"], [["a", "8.8 \N{PLUS-MINUS SIGN} 4.3"], ["b", "2"]])
    show_table(table, Console(file=Steady(stream), width=80))  # type: ignore[arg-type]
    stream.flush()
    assert stream.buffer.getvalue().decode() == (  # type: ignore[attr-defined]
        "of\nname         gain\n-----------------\na     8.8 +/- 4.3\nb               2\n\n"
    )


def test_a_wide_table_gives_way_head_first_then_intervals_then_names():
    table = Table(
        "Weights",
        ["feature", "weight", "on the next value (90 %)", "share"],
        [["mean_arterial_pressure_of_the_day", "-0.3", "+0.21 (-0.10 to +0.52)", "83.5 %"]],
    )
    shown = {}
    for width in (75, 74, 67, 66, 40):
        stream = io.StringIO()
        show_table(table, Console(file=stream, width=width, color_system=None))
        shown[width] = stream.getvalue().splitlines()[1:]
    name = "mean_arterial_pressure_of_the_day"
    assert shown[75][2] == f"{name}    -0.3    +0.21 (-0.10 to +0.52)  83.5 %"
    assert shown[74][0].split() == ["feature", "weight", "on", "the", "next", "value", "share"]
    assert shown[74][3] == f"{name}    -0.3   +0.21 (-0.10 to +0.52)  83.5 %"
    assert shown[67][3:] == [f"{name}    -0.3             +0.21  83.5 %", f"{' ' * 43}(-0.10 to +0.52)", ""]
    assert [line.split()[0] for line in shown[66][3:5]] == ["mean_arterial_pressure_of_", "the_day"]
    assert shown[40] == [
        "characters are too short for a table)",
        *(name, "  weight: -0.3", "  on the next value (90 %): +0.21 (-0.10", "to +0.52)", "  share: 83.5 %", ""),
    ]


@pytest.mark.parametrize("model", ["crn", "rmsn", "mb_h", "mb_x"])
def test_the_trials_of_a_search_fit_eighty_columns(model):
    search = load_search(model)
    widest = {
        one.fields[0]: max((5 * each if one.times else each for each in one.values), key=lambda v: len(f"{v:g}"))
        for one in search.parameters
    }
    trial = SimpleNamespace(number=99, state="finished", value=0.12345, accepted=False, settings=widest, seconds=754.0)
    found = SimpleNamespace(
        config=SimpleNamespace(model=model, table=search), inputs=21, best=trial, trials=[trial, trial]
    )
    stream = io.StringIO()
    show_table(trial_table(found), Console(file=stream, width=80, color_system=None))
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "row by row" not in lines[0]
    assert "12 min" in stream.getvalue()


@pytest.mark.parametrize("width", [1, 2, 5, 10, 40])
def test_the_narrowest_terminal_gets_what_fits(width):
    assert printed("ascii", width).strip()


def test_help_comes_to_an_end_on_the_narrowest_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "3")
    with pytest.raises(SystemExit) as left:
        main(["demo", "--help"])
    assert left.value.code == 0
    assert "--gamma" in capsys.readouterr().out


def test_a_page_shows_control_characters_as_text():
    page = render(report(NAME))
    assert "\x1b" not in page
    assert "\x9b" not in page
    assert page.count(r"wbc\x1b[31m\x07 [red]x[/]") > 4


@given(st.text())
def test_what_is_escaped_keeps_all_else(text):
    shown = escaped(text)
    assert not {c for c in shown if ord(c) < 32 or 127 <= ord(c) < 160} - {"\n", "\t"}
    assert escaped(shown) == shown
    if text.isprintable():
        assert shown == text


@given(st.text())
def test_every_text_reaches_every_stream(text):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", newline="")
    assert Steady(stream).write(text) == len(text)
    stream.flush()
    if text.isascii():
        assert stream.buffer.getvalue() == text.encode("ascii")


class Broken(io.StringIO):
    """A pipe that nobody reads any more."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def test_a_broken_pipe_ends_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Broken())
    with steady():
        print("lost")
        console().print("lost too")


def test_brackets_in_a_folder_are_text(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    out = "a[/v2]"
    assert "a[/v2]" in refused(capsys, "compare", out, out)
    console().print(f"Written to {out}/:smile:", soft_wrap=True)
    assert capsys.readouterr().out == f"Written to {out}/:smile:\n"
    assert "[/v2]" in refused(capsys, "tune", "[/v2].csv")
    with pytest.raises(SystemExit) as left:
        main(["demo", "--[/v2]", "x"])
    assert left.value.code == 2


class TestStatus:
    def test_what_nobody_foresaw_says_so_and_where_to_look(self, monkeypatch, capsys):
        def fail(options):
            raise AttributeError("no\x1bthing")

        monkeypatch.setattr("irl.commands.compare.command", fail)
        assert main(["compare", "a", "b", "--out", "out"]) == 1
        told = capsys.readouterr().err
        assert told.startswith(r"cirl: error: AttributeError: no\x1bthing (nobody foresaw this: cirl --debug ")
        assert "Traceback" not in told
        assert main(["compare", "a", "b", "--debug"]) == 1
        assert "Traceback" in capsys.readouterr().err

    def test_whatever_a_table_makes_a_library_raise_is_one_line_that_names_it(self, monkeypatch, capsys):
        def fail(path):
            raise OverflowError("date value out of range")

        monkeypatch.setattr("cirl_gym.tables.files.read_table", fail)
        told = refused(capsys, "explain", "odd.csv", "--out", "out")
        assert told == "odd.csv cannot be read: OverflowError: date value out of range"

    def test_no_memory_is_said(self, monkeypatch, capsys):
        def fail(options):
            raise MemoryError("Unable to allocate 13.8 GiB")

        monkeypatch.setattr("irl.commands.compare.command", fail)
        assert "not enough memory: Unable to allocate 13.8 GiB" in refused(capsys, "compare", "a", "b")


def started(*arguments: str, before: str = "", **options) -> subprocess.Popen[str]:
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    command = [sys.executable, "-c", heard + before + RUN_CLI, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, **options)


WAITS = """
import sys
from pathlib import Path
import irl.commands.compare as compare
def wait(options):
    import time
    print("begun", flush=True)
    time.sleep(60)
compare.command = wait
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
class TestSignals:
    @pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_a_stop_has_its_status(self, number, status, tmp_path):
        with started("compare", "a", "b", "--out", str(tmp_path / "out"), before=WAITS) as run:
            assert run.stdout is not None
            assert run.stdout.readline() == "begun\n"
            run.send_signal(number)
            _, told = run.communicate(timeout=30)
        assert run.returncode == status
        assert told.startswith("cirl: stopped; ")
        assert "Traceback" not in told
        assert not (tmp_path / "out").exists()

    def test_ctrl_c_in_the_first_moments(self, tmp_path):
        slow = "import builtins, sys, time\nold = builtins.__import__\ndef slow(name, *rest):\n"
        slow += "    if name == 'tyro':\n        print('importing', flush=True); time.sleep(60)\n"
        slow += "    return old(name, *rest)\nbuiltins.__import__ = slow\n"
        with started("demo", "--out", str(tmp_path), before=slow) as run:
            assert run.stdout is not None
            assert run.stdout.readline() == "importing\n"
            run.send_signal(signal.SIGINT)
            _, told = run.communicate(timeout=30)
        assert run.returncode == 130
        assert "Traceback" not in told

    def test_ctrl_c_after_the_result(self, tmp_path):
        after = WAITS.replace("time.sleep(60)", "pass") + "import atexit, time\n"
        after += "atexit.register(lambda: (print('leaving', flush=True), time.sleep(60)))\n"
        code = after + "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        code += "sys.argv[1:] = ['compare', 'a', 'b', '--out', sys.argv[1]]\n"
        code += "from irl.commands.cli import main; sys.exit(main())"
        command = [sys.executable, "-c", code, str(tmp_path / "out")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as run:
            assert run.stdout is not None
            while run.stdout.readline() != "leaving\n":
                pass
            run.send_signal(signal.SIGINT)
            _, told = run.communicate(timeout=30)
        assert (run.returncode, told) == (130, "")

    def test_a_reader_that_leaves_does_not_change_the_status(self, tmp_path):
        told = WAITS.replace("time.sleep(60)", "[print('x' * 80) for _ in range(9000)]")
        with started("compare", "a", "b", "--out", str(tmp_path / "out"), before=told) as run:
            assert run.stdout is not None
            run.stdout.readline()
            run.stdout.close()
            assert run.stderr is not None
            error = run.stderr.read()
        assert (run.returncode, error) == (0, "")


TINY = """
import sys
import pytest
sys.path.insert(0, "tests/helpers")
from tiny_run import make_the_command_line_tiny
make_the_command_line_tiny(pytest.MonkeyPatch())
"""


@pytest.mark.slow
@pytest.mark.parametrize("leaves", ["before the work", "after the work", "never"])
@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_whole_run_ends_whatever_shows_it(tmp_path, leaves, encoding):
    frame = icu_stays(40)
    frame.to_csv(tmp_path / "t.csv", index=False)
    shown = os.environ | {"PYTHONIOENCODING": encoding, "COLUMNS": "20", "TERM": "dumb", "NO_COLOR": "1"}
    asked = ("explain", str(tmp_path / "t.csv"), "--outcomes", "wbc", "lactate", "--out", str(tmp_path / "run"))
    with started(*asked, before=TINY, env=shown) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        told = "" if leaves == "before the work" else run.stdout.readline()
        while leaves == "after the work" and told != "\n":  # what was read is said before, what was found after
            told = run.stdout.readline()
        if leaves == "never":
            told, error = run.communicate(timeout=600)
            words = " ".join(told.split())
            assert "row by row: lines of 20 characters" in words
        else:
            run.stdout.close()
            error = run.stderr.read()
    assert run.returncode == 0
    assert "Traceback" not in error
    result = Result.read(tmp_path / "run" / "result.json")
    assert result.features == ("wbc", "lactate")
    if leaves == "never":
        assert f"most frequent action {result.accuracy.majority:.3f}" in words


class TestHeldFolders:
    def test_a_second_command_is_refused_in_one_line(self, tmp_path, capsys):
        with held(tmp_path / "run"):
            for command in (["demo"], ["explain", "x.csv"], ["expert"], ["compare", "a", "b"], ["baselines", "r"]):
                told = refused(capsys, *command, "--out", tmp_path / "run")
                assert told.startswith(
                    f"{tmp_path / 'run'} is being written by another command (process {os.getpid()}, "
                )
                assert told.count("\n") == 0
        assert not (tmp_path / "run").exists()

    def test_a_killed_command_holds_nothing(self, tmp_path):
        code = "import sys, time\nfrom pathlib import Path\nfrom cirl_gym.files import held\n"
        code += "with held(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(60)\n"
        with subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "held\n"
            with pytest.raises(ValueError, match=rf"process {other.pid}, since \d{{4}}-"), held(tmp_path):
                pass
            other.kill()
        assert {path.name for path in tmp_path.iterdir()} == {".running.lock", ".running.json"}
        with held(tmp_path):
            pass
        assert not list(tmp_path.iterdir())

    def test_what_was_there_and_what_was_written_stay(self, tmp_path):
        with held(tmp_path / "a" / "b"):
            write_json(tmp_path / "a" / "b" / "x.json", 1)
        assert (tmp_path / "a" / "b" / "x.json").is_file()
        with held(tmp_path / "a" / "c" / "d"):
            time.sleep(0)
        assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]
        assert Path(tmp_path / "a").is_dir()
