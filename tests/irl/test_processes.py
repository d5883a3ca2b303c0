"""Work by several processes: the same numbers, in the same order, with one clear error where a process dies."""

from __future__ import annotations

import os
import signal
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
import torch
from msgspec import structs
from threadpoolctl import threadpool_info
from tiny_run import icu_stays, make_the_command_line_tiny, refused, tiny_demo, tiny_explain, tiny_fit

from cirl_gym.data.batch import Batch
from cirl_gym.files import StoredParts
from cirl_gym.outcome_models.fitting import OutcomeModelConfig
from cirl_gym.tables.read import prepare_table
from irl.commands import explain as commands
from irl.commands.cli import main
from irl.pipeline import fit
from irl.processes import all_done, engine, one_thread
from irl.result.baselines import Baselines
from irl.whole_run import study_of

TWO = ("wbc", "lactate")


def squared(number: int) -> int:
    if number == 3:
        warnings.warn("three", UserWarning, stacklevel=1)
    return number * number


def about_this_process(_: int) -> tuple[int, int]:
    return os.getpid(), torch.get_num_threads()


def changed(values: np.ndarray) -> float:
    values += 1.0
    return float(values.sum())


def killed(number: int) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def refusing(number: int) -> int:
    raise ValueError(f"{number} cannot be")


def a_fit(stored: Path | None = None) -> dict[str, np.ndarray]:
    """What a fit finds of two outcome models, two discount factors and two parts of the patients."""
    frame = icu_stays(30)
    two = replace(OutcomeModelConfig.quick(), members=2, bootstrap=True)
    how = tiny_fit(folds=2, repeats=1, outcome=two, choose_gamma=(0.5, 0.9))
    asked = replace(tiny_explain(frame, ("temperature", *TWO), outcomes=TWO, signs={"lactate": -1}), fit=how)
    table = prepare_table(frame, asked.columns, rng=np.random.default_rng(0))
    splits = (table.train, table.validation, table.test)
    study = study_of(asked, table.train, table.validation, Batch.together(splits))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = fit(replace(study, stored=StoredParts(stored)))
    assert found.foreseen is not None
    return {
        "theta": found.posterior.theta,
        **found.foreseen.chances,
        **{f"member {number}": one.posterior.theta for number, one in enumerate(found.members)},
        **{f"gamma {one.gamma}": np.array(one.weights) for one in found.choice.tried},
    }


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(values, other[name]) for name, values in one.items())


class TestCalls:
    def test_one_process_calls_one_after_the_other(self):
        told = []
        with pytest.warns(UserWarning, match="three"):
            found = all_done([partial(squared, n) for n in range(4)], lambda *done: told.append(done))
        assert found == [0, 1, 4, 9]
        assert told == [(n + 1, 4) for n in range(4)]
        assert all_done([]) == []
        assert {pid for pid, _ in all_done([partial(about_this_process, 0)] * 2)} == {os.getpid()}

    def test_what_a_call_raises_is_raised(self):
        with pytest.raises(ValueError, match=r"^7 cannot be$"):
            all_done([partial(refusing, 7)])

    @pytest.mark.parametrize("jobs", [0, -2])
    def test_there_must_be_a_process(self, jobs):
        with pytest.raises(ValueError, match=rf"jobs must be at least 1, or -1 .*, got {jobs}"), engine("loky", jobs):
            pass

    def test_commands_refuse_it_too(self, capsys, tmp_path):
        assert "jobs must be at least 1" in refused(capsys, "demo", "--jobs", "0", "--out", tmp_path)


@pytest.mark.slow
class TestOtherProcesses:
    def test_two_processes(self):
        """Also: they compute in one thread, and what they warn of or raise comes back."""
        with engine("loky", 2):
            with pytest.warns(UserWarning, match="three"):
                assert all_done([partial(squared, n) for n in range(4)]) == [0, 1, 4, 9]
            pids, threads = zip(*all_done([partial(about_this_process, n) for n in range(4)]), strict=True)
            with pytest.raises(ValueError, match=r"^7 cannot be$"):
                all_done([partial(refusing, 7)] * 2)
            assert all_done([partial(changed, np.zeros(300_000))] * 2) == [300_000.0] * 2  # 2.4 MB
        assert os.getpid() not in pids
        assert set(threads) == {1}

    def test_one_that_is_killed_is_one_clear_error(self):
        with engine("loky", 2):
            with pytest.raises(ChildProcessError, match=r"one of the processes was killed, .* fewer --jobs need less"):
                all_done([partial(killed, n) for n in range(4)])
            assert all_done([partial(squared, n) for n in range(3)]) == [0, 1, 4]


@pytest.fixture(scope="module")
def alone() -> dict[str, np.ndarray]:
    """By one process, with nothing stored."""
    return a_fit()


def test_parts_of_a_fit_go_to_another_process_and_back(alone, monkeypatch):
    """Every call, all that it knows and what it returns is pickled, and nothing of the fit changes by it."""
    counted = []

    def sent(calls, report=None):
        counted.extend(call.func.__name__ for call in calls)
        received = map(cloudpickle.loads, map(cloudpickle.dumps, calls))
        return [cloudpickle.loads(cloudpickle.dumps(call())) for call in received]

    for module in ("pipeline", "cross_fitting", "studies.gammas"):
        monkeypatch.setattr(f"irl.{module}.all_done", sent)
    assert same(a_fit(), alone)
    assert set(counted) == {"_solved", "psi", "_foreseen_part", "_solved_and_judged", "_stored_member"}


@pytest.mark.slow
class TestFitsAndCommands:
    def test_a_fit_by_two_processes(self, alone):
        with engine("loky", 2):
            assert same(a_fit(), alone)

    def test_a_fit_that_was_stopped_goes_on_with_two(self, alone, tmp_path, monkeypatch):
        def stopped(*given):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("irl.pipeline._member", stopped)
            with pytest.raises(KeyboardInterrupt):
                a_fit(tmp_path)
        assert {"agent_gamma_0.5.npz", "fold0_1_outcome_model.npz"} <= {path.name for path in tmp_path.iterdir()}
        with engine("loky", 2):
            assert same(a_fit(tmp_path), alone)
        assert {"member0.npz", "member1.npz"} <= {path.name for path in tmp_path.iterdir()}

    def test_baselines_by_two_processes(self, tmp_path, monkeypatch, capsys):
        make_the_command_line_tiny(monkeypatch)
        commands.demo(tiny_demo(), tmp_path / "run")
        for jobs in (1, 2):
            out = tmp_path / str(jobs)
            given = ["baselines", str(tmp_path / "run"), "--methods", "cirl", "ar", "cloning", "iq_learn", "--quick"]
            assert main([*given, "--jobs", str(jobs), "--out", str(out)]) == 0
        one, two = (Baselines.read(tmp_path / str(jobs) / "baselines.json").rows for jobs in (1, 2))
        timeless = [[structs.replace(row, seconds=None) for row in rows] for rows in (one, two)]
        assert timeless[0] == timeless[1]


def test_one_thread_inside_and_as_many_as_before_outside() -> None:
    def threads() -> list[int]:
        return [torch.get_num_threads(), *(pool["num_threads"] for pool in threadpool_info())]

    before = threads()
    with one_thread():
        assert set(threads()) == {1}
    assert threads() == before
