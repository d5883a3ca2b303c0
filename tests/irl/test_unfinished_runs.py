"""A run that is stopped leaves nothing that could be taken for a result, and the same command goes on from there.

Killed anywhere and given again, it ends with the result of one that was not.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console
from small_batches import batch_of
from tiny_run import (
    FEW,
    RUN_CLI,
    icu_stays,
    make_the_command_line_tiny,
    tiny_demo,
    tiny_explain,
    tiny_fit,
    tiny_printed,
)

from cirl_gym import files as stored_parts
from cirl_gym.data.habits import Contexts
from cirl_gym.files import StoredParts, read_arrays, read_json, write_arrays, write_json
from irl import whole_run
from irl.commands import explain as commands
from irl.commands.cli import main
from irl.preferences.likelihood import NO_CONTEXTS
from irl.preferences.posterior import PosteriorResult, SamplerReport
from irl.report.section import render
from irl.result.result import Result
from irl.settings import DemoConfig
from irl.stages import LINE_EVERY, duration, stages
from irl.stored_stages import MemberPosterior, code_digest, data_digest, remove, unfinished

PRINTED = tiny_printed()
FAST = tiny_demo()
FEATURES = ("temperature", "wbc", "lactate")


class Killed(BaseException):
    """In place of a signal: nothing may catch it."""


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Trainings are kept after every iteration; the page, half of such a run's time, is drawn in one test alone."""
    monkeypatch.setattr(stored_parts, "EVERY", 0.0)
    monkeypatch.setattr(
        "irl.whole_run.render",
        lambda report: str([one.page[1:] for one in report.sections if one.name == "what-if"]),
    )
    # Whoever works on the source in the middle of a test does no harm.
    monkeypatch.setattr("irl.stored_stages.code_digest", lambda: "the same")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Folders of runs that nothing stopped, each made once."""
    made: dict[str, Path] = {}

    def run(name, command) -> Path:
        if name not in made:
            folder = tmp_path_factory.mktemp(name.replace(" ", "_"))
            command(folder)
            made[name] = folder
        return made[name]

    return run


def demo(config: DemoConfig):
    return lambda out: commands.demo(config, out)


def explain(frame=None, **changes):
    table = icu_stays(40) if frame is None else frame
    return lambda out: commands.explain(table, tiny_explain(table, FEATURES, **changes), out)


def contents(folder: Path) -> dict[str, object]:
    """Every file, without what a clock says."""
    found: dict[str, object] = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    result = json.loads(found.pop("result.json"))
    del result["seconds"]
    for entry in result["rounds"]:
        del entry["seconds"]
    found["result"] = result
    page = found["report.html"].decode()
    page = re.sub(r"<tr[^>]*>\s*<th[^>]*>time: .*?</tr>", "", page, flags=re.DOTALL)
    found["report.html"] = re.sub(r"<td[^>]*>[\d.]*</td>\s*</tr>", "", page)
    return found


def same(one: Path, other: Path) -> None:
    a, b = contents(one), contents(other)
    assert set(a) == set(b)
    assert [name for name in a if a[name] != b[name]] == []
    assert not (other / "unfinished").exists()


def killed_at_every_write(command, out, monkeypatch) -> list[str]:
    """Run it again and again, each time until one more part is written, until it lives; names of the parts."""
    write, names = StoredParts.write, []

    def last(self, name, save):
        done = write(self, name, save)
        if name != "identity.json":
            names.append(name)
            raise Killed
        return done

    with monkeypatch.context() as patch:
        patch.setattr(StoredParts, "write", last)
        while True:
            before = len(names)
            try:
                command(out)
            except Killed:
                assert not (out / "result.json").exists()
                assert len(names) == before + 1 < 100
            else:
                return names


def dying(monkeypatch, command, out, *places) -> None:
    """Run it until it calls a function, once for each of these."""
    for place in places:
        with monkeypatch.context() as patch:
            patch.setattr(place, lambda *arguments, **options: (_ for _ in ()).throw(Killed))
            with pytest.raises(Killed):
                command(out)
        assert not (out / "result.json").exists()


MODELS = ["outcome_model.npz", "agent.npz"]
STAGES = ["expert.npz", "batch.npz", *MODELS]
FOLDS = [f"fold{repeat}_{number}_outcome_model.npz" for repeat in range(2) for number in range(2)]
AFTER = (
    "irl.pipeline.judged_preferences",
    "irl.pipeline.fit_cloning",
    "irl.evaluation.measured_accuracy",
    "irl.whole_run.render",
)


MU_ALONE = replace(FAST, fit=replace(FAST.fit, mu="mu_learning", histories=FEW, rounds=1))
SEVERAL = replace(FAST, fit=tiny_fit(outcome=replace(FAST.fit.outcome, members=2, bootstrap=True)))


class TestKilled:
    @pytest.mark.parametrize(
        ("name", "command", "parts", "per_round"),
        [
            ("printed", demo(PRINTED), STAGES, ("policy.npz", "policy.npz", "mu.npz", "mu.npz", "npz")),
            pytest.param("fast", demo(FAST), STAGES, (), marks=pytest.mark.slow),
            pytest.param("mu learning", demo(MU_ALONE), STAGES, ("mu.npz", "mu.npz", "npz"), marks=pytest.mark.slow),
            ("several", demo(SEVERAL), [*STAGES, "member0.npz", "member1.npz"], ()),
            ("explain", explain(fit=tiny_fit(habit=("previous",), folds=2)), [*MODELS, *FOLDS], ()),
        ],
    )
    def test_at_every_write(self, name, command, parts, per_round, whole, tmp_path, monkeypatch):
        names = killed_at_every_write(command, tmp_path, monkeypatch)
        assert names == parts + [f"round00{k}.{part}" for k in range(2) for part in per_round]
        same(whole(name, command), tmp_path)

    @pytest.mark.slow
    def test_after_the_stages_that_are_kept(self, whole, tmp_path, monkeypatch):
        monkeypatch.setattr("irl.whole_run.render", render)
        dying(monkeypatch, demo(PRINTED), tmp_path, *AFTER)
        commands.demo(PRINTED, tmp_path)
        same(whole("printed, with its page", demo(PRINTED)), tmp_path)

    @pytest.mark.slow
    def test_a_network_as_outcome_model(self, whole, tmp_path, monkeypatch):
        command = demo(replace(FAST, fit=replace(FAST.fit, model="crn", rounds=1)))
        dying(monkeypatch, command, tmp_path, "irl.pipeline.max_margin")
        command(tmp_path)
        same(whole("crn", command), tmp_path)

    @pytest.mark.parametrize(
        "name",
        [
            "round000.policy.npz",
            "cloning.npz",
            *(pytest.param(name, marks=pytest.mark.slow) for name in ("expert.npz", "agent.npz", "round001.mu.npz")),
        ],
    )
    def test_by_a_signal_while_a_file_is_renamed(self, name, whole, tmp_path):
        an_older_run(tmp_path)
        command = [sys.executable, "-c", KILLED_AT_A_RENAME, str(tmp_path), name]
        run = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120, check=False)
        assert run.returncode == -signal.SIGKILL, run.stderr
        [partial] = (path for path in tmp_path.rglob("*.partial"))
        assert name in partial.name
        written = ["batch.npz", "test.npz", "outcome_model.npz", "agent.npz"] if name == "cloning.npz" else []
        assert {path.name for path in tmp_path.glob("*.npz")} == set(written)
        nothing_is_half_there(tmp_path)
        if name == "cloning.npz":
            partial.unlink()
        commands.demo(PRINTED, tmp_path)
        same(whole("printed", demo(PRINTED)), tmp_path)


KILLED_AT_A_RENAME = """
import os, signal, sys
from pathlib import Path
from types import SimpleNamespace
import irl.stored_stages
from cirl_gym import files
from irl.commands import explain as commands
from tiny_run import tiny_printed

irl.stored_stages.code_digest = lambda: "the same"
files.EVERY = 0.0
rename = Path.replace

def replace(self, target):
    if Path(target).name == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(self, target)

Path.replace = replace
commands.demo(tiny_printed(), Path(sys.argv[1]))
"""


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).resolve().parents[1] / "helpers")}


def an_older_run(folder: Path) -> None:
    for name in ("result.json", "report.html", "agent.npz", "expert.npz"):
        (folder / name).write_text("of an older run")


def nothing_is_half_there(folder: Path) -> None:
    assert not (folder / "result.json").exists()
    assert not (folder / "report.html").exists()
    for path in folder.glob("*.npz"):
        assert read_arrays(path)
    with pytest.raises(OSError, match=r"result\.json"):
        Result.read(folder / "result.json")


def begun(folder: Path) -> subprocess.Popen[str]:
    """A demo in a process of its own that has told of its first stage, and is busy with it for seconds to come."""
    # A shell's background jobs ignore Ctrl-C, and so would all that they start.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    command = [sys.executable, "-c", heard + RUN_CLI, "demo", "--quick", "--out", str(folder)]
    run = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert run.stderr is not None
    assert run.stderr.readline().startswith("[1/9] expert")
    return run


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_is_stopped_leaves_no_result(how, tmp_path):
    an_older_run(tmp_path)
    with begun(tmp_path) as run:
        run.send_signal(how)
        _, error = run.communicate(timeout=60)
    nothing_is_half_there(tmp_path)
    assert (tmp_path / "config.json").exists()
    assert "Traceback" not in error
    if how == signal.SIGINT:
        assert run.returncode == 130
        assert "cirl: stopped; what was not finished left nothing" in error
    else:
        assert run.returncode == -signal.SIGKILL


def stopped_in_the_loop(monkeypatch, command, out) -> Path:
    """A run that was killed when round 0 was over; the folder of its parts."""
    dying(monkeypatch, command, out, "irl.max_margin.loop.keep_signs")
    return parts_of(out)


def lines(capsys) -> list[str]:
    """What is said of unfinished work."""
    return re.findall(r"^cirl: (.*)$", capsys.readouterr().err, re.MULTILINE)


class TestOtherRuns:
    @pytest.mark.parametrize(
        ("changes", "named"),
        [
            ({"fit": replace(PRINTED.fit, gamma=0.9)}, "fit.gamma"),
            ({"fit": replace(PRINTED.fit, histories=replace(FEW, iterations=3))}, "fit.histories.iterations"),
        ],
    )
    def test_other_settings_begin_anew(self, changes, named, tmp_path, monkeypatch, capsys):
        stopped_in_the_loop(monkeypatch, demo(PRINTED), tmp_path)
        # It does all of its work: the expert's is the first stage.
        dying(monkeypatch, demo(replace(PRINTED, **changes)), tmp_path, "irl.pipeline.successor_expert")
        assert lines(capsys) == [f"{tmp_path / 'unfinished'} is of a run with other {named}; this one begins anew"]

    def test_a_mistyped_command_takes_nothing_away(self, whole, tmp_path, monkeypatch, capsys):
        expected, place = whole("printed", demo(PRINTED)), tmp_path / "unfinished"
        capsys.readouterr()
        parts = stopped_in_the_loop(monkeypatch, demo(PRINTED), tmp_path)
        assert lines(capsys) == []
        dying(monkeypatch, demo(replace(PRINTED, seed=1)), tmp_path, "irl.pipeline.rollout")
        assert lines(capsys) == [f"{place} is of a run with other seed; this one begins anew"]
        assert (parts / "round000.npz").exists()
        with monkeypatch.context() as patch:
            patch.setattr("irl.pipeline.successor_expert", lambda *arguments: pytest.fail("it is kept"))
            commands.demo(PRINTED, tmp_path)
        assert lines(capsys) == [f"going on with the run that was stopped (kept in {place}; --fresh begins anew)"]
        same(expected, tmp_path)
        dying(monkeypatch, demo(PRINTED), tmp_path, "irl.pipeline.rollout")
        assert lines(capsys) == [], "a whole run leaves nothing, and is computed again"

    @pytest.mark.parametrize("package", ["torch", "numpy", "cirl_gym", "code"])
    def test_other_versions_begin_anew(self, package, tmp_path, monkeypatch, capsys):
        parts = stopped_in_the_loop(monkeypatch, demo(FAST), tmp_path)
        now = whole_run.installed_versions()
        if package == "code":
            monkeypatch.setattr("irl.stored_stages.code_digest", lambda: "another")
        else:
            assert package in now
            monkeypatch.setattr(whole_run, "installed_versions", lambda: {**now, package: "0.0.1"})
        dying(monkeypatch, demo(FAST), tmp_path, "irl.pipeline.rollout")
        assert [line for line in lines(capsys) if f"other versions.{package}; this one begins anew" in line]
        assert len(list(parts.parent.iterdir())) == 2

    def test_one_changed_cell_begins_anew(self, tmp_path, monkeypatch, capsys):
        frame = icu_stays(40)
        stopped_in_the_loop(monkeypatch, explain(frame), tmp_path)
        changed = frame.copy()
        changed.loc[5, "wbc"] = "77"
        dying(monkeypatch, explain(changed), tmp_path, "irl.pipeline.fit_successor")
        assert lines(capsys) == [f"{tmp_path / 'unfinished'} is of a run with other data; this one begins anew"]
        dying(monkeypatch, explain(frame.copy()), tmp_path, "irl.pipeline.judged_preferences")
        assert "going on with the run that was stopped" in lines(capsys)[0]

    def test_fresh_begins_anew(self, tmp_path, monkeypatch, capsys):
        make_the_command_line_tiny(monkeypatch)
        command = ["demo", "--quick", "--out", str(tmp_path)]
        stopped_in_the_loop(monkeypatch, lambda out: main(command), tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr("irl.pipeline.successor_expert", lambda *arguments: pytest.fail("it is kept"))
            stop = (_ for _ in ()).throw
            patch.setattr("irl.pipeline.judged_preferences", lambda *arguments: stop(KeyboardInterrupt))
            assert main(command) == 130
        said = lines(capsys)
        assert "going on with the run that was stopped" in said[0]
        assert said[1] == "the same command, given again, goes on from here."
        assert said[2].startswith("stopped; what was not finished left nothing")
        found, train = [], whole_run.simulate
        monkeypatch.setattr(whole_run, "simulate", lambda *all_: found.append(stored_in(tmp_path)) or train(*all_))
        assert main([*command, "--fresh"]) == 0
        assert found == [[]]
        assert lines(capsys) == []
        assert not (tmp_path / "unfinished").exists()


def stored_in(out: Path, pattern: str = "*.npz") -> list[str]:
    """Parts that are there."""
    return [path.name for path in (out / "unfinished").rglob(pattern)]


def parts_of(out: Path) -> Path:
    """The folder of the parts of the only run that is unfinished."""
    [folder] = (path for path in (out / "unfinished").iterdir())
    return folder


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """Folder of a run that was killed when its loop was over."""
    out = tmp_path_factory.mktemp("right")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("irl.stored_stages.code_digest", lambda: "the same")
        dying(patch, demo(PRINTED), out, "irl.pipeline.judged_preferences")
    return out


class TestFaults:
    @pytest.mark.parametrize(
        ("name", "array"),
        [
            *((name, "") for name in (*STAGES, "outcome_model.json", "round000.npz", "seconds.json", "identity.json")),
            *(("expert.npz", "state_mean"), ("batch.npz", "actions"), ("outcome_model.npz", "law.effects")),
            *(("agent.npz", "low"), ("round001.npz", "policy.lstm.weight_hh_l0")),
        ],
    )
    def test_a_part_cut_off_or_of_another_shape_is_done_anew(self, name, array, right, tmp_path, monkeypatch, capsys):
        """One line says so; all that is kept must then be as it was, to the byte."""
        shutil.copytree(right, tmp_path, dirs_exist_ok=True)
        path = parts_of(tmp_path) / name
        if array:
            arrays = read_arrays(path)
            write_arrays(path, arrays | {array: arrays[array][:1]})
        else:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        capsys.readouterr()
        dying(monkeypatch, demo(PRINTED), tmp_path, "irl.pipeline.judged_preferences")
        found, expected = ({path.name: path for path in parts_of(folder).iterdir()} for folder in (tmp_path, right))
        assert set(found) | {"seconds.json"} == set(expected)
        assert read_json(found["outcome_model.json"])["report"] == read_json(expected["outcome_model.json"])["report"]
        assert {"expert.npz", "round001.npz"} < set(found)
        for part in set(found) - {"outcome_model.json", "seconds.json"}:
            assert found[part].read_bytes() == expected[part].read_bytes(), part
        said = lines(capsys)[1:]
        assert len(said) == (name != "identity.json")
        words = "; the seconds" if name == "seconds.json" else ", this part of the run is done anew"
        assert all(f"{name if array else ''} cannot be used{words}" in line for line in said)

    def test_a_full_disk_is_one_line_and_the_run_ends(self, whole, tmp_path, monkeypatch, capsys):
        replaced = Path.replace

        def full(self, target):
            if "unfinished" in Path(target).parts:
                raise OSError(28, "No space left on device")
            return replaced(self, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", full)
            commands.demo(PRINTED, tmp_path)
        said = lines(capsys)
        assert len(said) == 1
        assert "nothing can be kept in" in said[0]
        assert "No space left on device" in said[0]
        same(whole("printed", demo(PRINTED)), tmp_path)

    def test_a_run_that_fails_at_once_leaves_no_folder(self, tmp_path, monkeypatch):
        dying(monkeypatch, demo(FAST), tmp_path, "irl.pipeline.successor_expert")
        assert not (tmp_path / "unfinished").exists()


def test_what_a_member_says_comes_back_to_the_last_bit(tmp_path):
    rng, path = np.random.default_rng(0), tmp_path / "member.npz"
    for contexts in (NO_CONTEXTS, Contexts(("ward", "shift"), (("A", "B"), ("day",)))):
        sampler = SamplerReport(1 + rng.random(4), 1000 * rng.random(4), 0.3)
        logits = rng.standard_normal((5, contexts.size, 2))
        said = PosteriorResult(rng.standard_normal((5, 3)), logits, contexts, sampler, np.zeros(3))
        found = MemberPosterior(*rng.standard_normal((2, 3)), said)
        found.save(path)
        again = MemberPosterior.load(path, contexts)
        assert again.posterior.contexts == contexts
        for one, other in (
            (found.mu_expert, again.mu_expert),
            (found.mu_recovered, again.mu_recovered),
            (said.theta, again.posterior.theta),
            (said.logits, again.posterior.logits),
            (sampler.r_hat, again.posterior.sampler.r_hat),
            (sampler.effective, again.posterior.sampler.effective),
        ):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
        assert again.posterior.sampler.power == 0.3
    arrays = read_arrays(path)
    lacking = {name: values for name, values in arrays.items() if name != "sampler.r_hat"}
    for broken in (
        {**arrays, "mu_expert": np.zeros(2)},
        {**arrays, "theta": np.zeros((5, 3))},
        {**arrays, "logits": arrays["logits"][:, :1]},
        {**arrays, "mean": np.zeros(3)},
        lacking,
    ):
        write_arrays(path, broken)
        with pytest.raises(ValueError, match=r"member\.npz is not a whole posterior of a member"):
            MemberPosterior.load(path, contexts)


def test_the_seconds_of_what_is_kept_are_counted(tmp_path, monkeypatch):
    parts = stopped_in_the_loop(monkeypatch, demo(PRINTED), tmp_path)
    spent = read_json(parts / "seconds.json")
    assert list(spent) == ["expert", "batch", "outcome model", "candidate policies", "max-margin loop"]
    write_json(parts / "seconds.json", dict.fromkeys(spent, 1000.0))
    seconds = commands.demo(PRINTED, tmp_path).seconds
    assert all(1000 <= seconds[name] < 1100 for name in spent)
    assert 0 < seconds["weights"] < 100


def test_the_stage_under_way_and_its_seconds():
    now = [10.0]
    run = stages(2, quiet=True, clock=lambda: now[0])
    assert run.under_way() == {}
    run.seconds.update({"loop": 100.0})
    with run.stage("loop"):
        now[0] = 13.0
        assert run.under_way() == {"loop": 103.0}
    assert (run.under_way(), run.seconds) == ({}, {"loop": 103.0})


class TestIdentity:
    def test_any_change_of_the_data_is_seen(self):
        batch = batch_of((0, 1), (1, 0, 1), groups=("a", "b"))
        assert data_digest(batch) == data_digest(batch_of((0, 1), (1, 0, 1), groups=("a", "b")))
        obs = batch.obs.copy()
        obs[0, 1, 0] += 1e-3
        changes = [
            {"obs": obs},
            {"actions": 1 - batch.actions},
            {"terminated": batch.truncated, "truncated": batch.terminated},
            {"features": ("x", "z")},
            {"action_names": ("a0", "b")},
            {"ids": ("e0", "e2")},
            {"groups": ("a", "c")},
        ]
        digests = [data_digest(other) for other in (replace(batch, **change) for change in changes)]
        digests += [data_digest(batch), data_digest(batch.padded(5)), data_digest(batch.take(np.array([1, 0])))]
        assert len(set(digests)) == len(changes) + 3

    def test_the_source_is_part_of_it(self, monkeypatch):
        monkeypatch.undo()
        before = code_digest()
        assert code_digest() == before
        read = Path.read_bytes
        monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + b"#" * (path.name == "loop.py"))
        assert code_digest() != before

    def test_at_most_three_differences_are_named(self, tmp_path, capsys):
        for identity in ({"a": 1, "b": {"c": 1, "d": 2}, "e": 3}, {"b": {"c": 2, "d": 3}, "e": 4}):
            with unfinished(tmp_path, identity, stages(1, quiet=True)) as kept:
                kept.write("part.json", lambda path: write_json(path, 1))
        told = f"{tmp_path / 'unfinished'} is of a run with other b.c, b.d, e and 1 more; this one begins anew"
        assert lines(capsys) == [told]
        assert len(stored_in(tmp_path, "part.json")) == 2
        (tmp_path / "unfinished" / "notes.txt").write_text("mine")
        remove(tmp_path)
        assert [path.name for path in tmp_path.rglob("*")] == ["unfinished", "notes.txt"]
        (tmp_path / "unfinished" / "notes.txt").unlink()
        remove(tmp_path)
        assert list(tmp_path.iterdir()) == []


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


def test_a_notebook_gets_a_row_for_each_stage_in_one_place(monkeypatch) -> None:
    shown: list[str] = []
    place = SimpleNamespace(update=shown.append)
    ipython = SimpleNamespace(HTML=str, display=lambda page, display_id: shown.append(page) or place)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython)
    clock, notebook = Clock(), Console(file=io.StringIO(), force_jupyter=True)
    with stages(2, console=notebook, clock=clock) as run:
        with run.stage("<fit>") as report:
            for step in range(1, 41):
                clock.now += 0.1
                report(step, 40)
        with contextlib.suppress(ValueError), run.stage("judge"):
            raise ValueError
    assert shown[0] == "<div><progress></progress> [1/2] &lt;fit&gt;</div>"
    assert shown[1] == (
        '<div><progress value="0.075"></progress> [1/2] &lt;fit&gt;: 8 %, 0.3 s so far, about 3.7 s left</div>'
    )
    assert len(shown) < 20
    assert shown[-1] == (
        '<div><progress value="1.000"></progress> [1/2] &lt;fit&gt;: done after 4.0 s</div>'
        '<div><progress value="0.000"></progress> [2/2] judge: stopped after 0.0 s</div>'
    )
    assert notebook.file.getvalue() == ""  # type: ignore[attr-defined]


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
