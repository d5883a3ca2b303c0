"""``cirl benchmark``: jobs have files of their own, go on where they were stopped, and count together as worked out."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs
from scipy.stats import t
from small_agents import tumour_batch
from small_dsfn import TINY as TINY_DSFN
from tiny_run import refused, tiny_demo

from cirl_gym.data.batch import Batch
from cirl_gym.data.rollout import act_along, returns, rollout
from cirl_gym.worlds.tumour import TumourParameters, TumourWorld
from irl.baselines.likeliest import LikeliestAction
from irl.baselines.methods import DSFNLoopConfig
from irl.benchmark import jobs as jobs_module
from irl.benchmark import paper
from irl.benchmark.figures import (
    against_expert,
    bootstrap_interval,
    cells,
    held_truths,
    interquartile_mean,
    summaries,
    values_of,
)
from irl.benchmark.jobs import METHODS, Job, Outcome, outcome_of
from irl.benchmark.parts import (
    SETTINGS,
    Benchmark,
    BenchmarkConfig,
    ExactOptimum,
    ExpertEpisodes,
    other_simulators,
    true_returns,
)
from irl.benchmark.report import _orders, read_outcomes
from irl.benchmark.run import carry_out, engine, jobs_of
from irl.checks.predictors import Boosting, LastActionTable
from irl.commands import benchmark as benchmark_command
from irl.commands.cli import main
from irl.commands.options import BenchmarkOptions
from irl.result.baselines import Row

TINY = BenchmarkConfig(tiny_demo(), DSFNLoopConfig(TINY_DSFN, rounds=2), patients=40, exact=2, elsewhere=10)
SETTING = "30-70-0.99"
FOUR = ("expert", "cirl", "cloning", "boosting")
WRITTEN = {"report.md", "outcomes.csv", "cells.csv", "figure3.svg"}


def benchmarked(out: Path, *methods: str, **changes) -> None:
    options = BenchmarkOptions(settings=(SETTING,), methods=methods, seeds=1, out=out)
    benchmark_command.command(replace(options, **changes), TINY)


def contents(out: Path) -> dict[str, dict]:
    """By file, what a job found, without what differs by machine and hour."""
    found = {}
    for path in out.glob("jobs/*/*.json"):
        content = json.loads(path.read_text())
        del content["seconds"], content["cpu"], content["row"]["seconds"]
        found[path.name] = content
    return found


def outcome(setting: str, method: str, seed: int, value: float, **changes) -> Outcome:
    row = Row(method=method, return_=value, accuracy=0.5)
    made = Outcome(setting=setting, seed=seed, row=row, discounted=value, short=0.0, elsewhere={})
    return structs.replace(made, **changes)


def seen(episodes: int, seed: int = 0) -> Batch:
    """Episodes of treatment by chance."""
    return tumour_batch(TumourParameters(horizon=6), 0.3, 0.7, episodes=episodes // 2, seed=seed)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("benchmark")
    benchmarked(out, *FOUR)
    return out


class TestTheCommand:
    def test_every_job_leaves_a_file_and_every_report_is_there(self, whole):
        assert set(contents(whole)) == {f"{method}_0.json" for method in FOUR}
        assert {path.name for path in (whole / "report").iterdir()} == WRITTEN
        assert not list(whole.rglob("*.log"))
        page = (whole / "report" / "report.md").read_text()
        assert all(METHODS[method] in page for method in FOUR)
        assert "standard error" in page

    def test_what_is_said_of_the_expert_and_of_cirl(self, whole):
        found = {one.method: one for one in read_outcomes(whole)}
        benchmark = Benchmark(whole, TINY)
        made = ExpertEpisodes(SETTING, 0).read(benchmark)
        played = rollout(TumourWorld(made.parameters), made.expert.optimal, 40, TINY.patients_and_noise())
        earned = returns(played, made.parameters.feature_map, [-0.3, -0.7])
        assert found["expert"].row.return_ == pytest.approx(earned.mean())
        assert found["expert"].discounted > found["expert"].row.return_  # both are negative
        assert found["expert"].ceiling is not None
        assert found["expert"].seconds.keys() == {"expert", "batch"}
        assert {one.short >= -1e-9 for one in found.values()} == {True}  # nobody exceeds the optimum
        cirl = found["cirl"]
        assert sum(np.abs(cirl.weights)) == pytest.approx(1, abs=0.05)  # medians
        assert cirl.identified is not None
        assert cirl.kappa > 0
        assert "behaviour cloning" not in cirl.seconds
        assert set(cirl.elsewhere) == set(other_simulators(made.parameters))
        assert found["cloning"].weights is None

    def test_only_what_is_missing_is_done_again(self, whole, tmp_path, monkeypatch):
        out, done = tmp_path / "copy", []
        shutil.copytree(whole, out)
        (out / "jobs" / SETTING / "boosting_0.json").unlink()

        def watched(job, benchmark):
            done.append(job.method)
            return outcome_of(job, benchmark)

        monkeypatch.setattr(jobs_module, "outcome_of", watched)
        benchmarked(out, *FOUR)
        assert done == ["boosting"]
        assert contents(out) == contents(whole)

    def test_a_job_that_fails_is_listed_and_tried_again(self, whole, tmp_path, monkeypatch):
        out, solve = tmp_path / "copy", jobs_module.solve
        shutil.copytree(whole, out)
        for method in ("cirl", "cloning"):
            (out / "jobs" / SETTING / f"{method}_0.json").unlink()

        def broken(method, *arguments):
            if method == "cirl":
                raise RuntimeError("no such luck")
            return solve(method, *arguments)

        monkeypatch.setattr(jobs_module, "solve", broken)
        with pytest.raises(ValueError, match=r"^1 failed, .*cirl_0: RuntimeError: no such luck \(.*cirl_0\.log\)"):
            benchmarked(out, *FOUR)
        log = out / "jobs" / SETTING / "cirl_0.log"
        assert "Traceback" in log.read_text()
        assert set(contents(out)) == {f"{method}_0.json" for method in ("expert", "cloning", "boosting")}
        monkeypatch.undo()
        benchmarked(out, *FOUR)
        assert not log.exists()
        assert contents(out) == contents(whole)

    def test_jobs_whose_expert_failed_are_not_begun(self, tmp_path, monkeypatch):
        def broken(*arguments):
            raise ValueError("nobody is there")

        monkeypatch.setattr("irl.benchmark.parts.simulate", broken)
        monkeypatch.setattr("irl.benchmark.parts.fit_successor", broken)
        with pytest.raises(ValueError, match="holds no outcome"):
            benchmarked(tmp_path, "cloning")
        assert "nobody is there" in (tmp_path / "parts" / SETTING / "0.log").read_text()
        assert Benchmark(tmp_path, TINY).has(ExactOptimum())

    def test_the_report_is_remade_from_the_stored_outcomes_alone(self, whole, tmp_path, capsys):
        shutil.copytree(whole / "jobs", tmp_path / "jobs")
        shutil.copy(whole / "benchmark.json", tmp_path)
        assert main(["benchmark", "report", str(tmp_path)]) == 0
        assert "Return, undiscounted" in capsys.readouterr().out
        for name in WRITTEN:
            assert (tmp_path / "report" / name).read_bytes() == (whole / "report" / name).read_bytes()

    def test_experts_may_be_others(self, tmp_path):
        options = BenchmarkOptions(settings=(SETTING,), methods=("boosting",), seeds=1, out=tmp_path)
        benchmark_command.command(replace(options, kappa=20.0, episodes=40), TINY)
        asked = json.loads((tmp_path / "benchmark.json").read_text())["settings"]["demo"]
        assert (asked["kappa"], asked["episodes"]) == (20.0, 40)
        assert "40 episodes each, kappa 20;" in (tmp_path / "report" / "report.md").read_text()

    def test_another_amount_of_work_needs_another_folder(self, whole):
        options = BenchmarkOptions(settings=(SETTING,), methods=FOUR, seeds=1, out=whole)
        with pytest.raises(ValueError, match="holds jobs with other patients: name another folder"):
            benchmark_command.command(options, replace(TINY, patients=41))

    @pytest.mark.parametrize(
        ("given", "told"),
        [
            (["--settings", "1"], "--settings: '1' is not one of 30-70-0.99"),
            (["--methods", "oracle"], "--methods: 'oracle' is not one of expert, cirl"),
            (["--seeds", "0"], "seeds must be at least 1"),
            (["--jobs", "0"], "jobs at least 1"),
            (["report", "nowhere"], "nowhere holds no outcome of a benchmark"),
        ],
    )
    def test_bad_options(self, capsys, tmp_path, monkeypatch, given, told):
        monkeypatch.chdir(tmp_path)
        assert told in refused(capsys, "benchmark", *given)

    def test_a_backend_that_is_not_installed_is_named(self, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "ray.util.joblib", None)
        with pytest.raises(ImportError, match=r"--backend ray: install cirl-gym\[ray\]"), engine("ray", 1):
            pass


@dataclass(frozen=True)
class Fatal:
    """A task whose process dies, as one does that has no memory left."""

    name = "parts/fatal"
    file = "parts/fatal.json"

    def work(self, benchmark):
        os._exit(1)


@pytest.mark.slow
class TestProcesses:
    def test_two_processes_find_what_one_finds(self, whole, tmp_path):
        benchmarked(tmp_path, *FOUR, jobs=2)
        assert contents(tmp_path) == contents(whole)

    def test_a_process_that_is_killed_is_listed_and_the_others_go_on(self, tmp_path):
        benchmark = Benchmark(tmp_path, TINY)
        with engine("loky", 2):
            failed = carry_out([Fatal(), ExactOptimum()], benchmark, lambda done, total: None)
        assert "process was killed" in failed["parts/fatal"]
        assert benchmark.has(ExactOptimum()) or "process was killed" in failed[ExactOptimum.name]


class TestParts:
    def test_settings_are_the_papers_by_name(self):
        assert list(SETTINGS) == ["30-70-0.99", "70-30-0.99", "50-50-0.99", "30-70-0.5", "70-30-0.5", "50-50-0.5"]
        assert SETTINGS["70-30-0.5"].weights == (-0.7, -0.3)

    def test_other_simulators_differ_in_one_thing(self):
        parameters = TumourParameters()
        noise, longer, weaker = other_simulators(parameters).values()
        assert noise == replace(parameters, tumour_noise=3 * 0.1, side_noise=3 * 0.1)
        assert longer == replace(parameters, horizon=30)
        assert weaker == replace(parameters, tumour_effect=-2.0)

    def test_all_of_a_seed_come_before_the_next(self):
        jobs = jobs_of(("30-70-0.99", "30-70-0.5"), ("expert", "cirl"), 2)
        assert [job.seed for job in jobs] == [0] * 4 + [1] * 4
        assert jobs[0] == Job("30-70-0.99", "expert", 0)
        assert jobs[0].name == "jobs/30-70-0.99/expert_0"

    def test_returns_are_the_same_for_the_same_policy(self):
        policy = LikeliestAction(LastActionTable.fit(seen(20)), ("tumour", "side_effects"), ("0", "1"))
        parameters = TumourParameters(horizon=4)
        first, again = (true_returns(policy, parameters, SETTING, 5, TINY.patients_and_noise()) for _ in range(2))
        assert first == again


class TestLikeliestAction:
    @pytest.mark.parametrize("kind", [Boosting, LastActionTable])
    def test_it_does_what_its_predictor_holds_to_be_likeliest(self, kind):
        train, test = seen(60), seen(7, seed=1)
        predictor = kind.fit(train)
        policy = LikeliestAction(predictor, train.features, train.action_names)
        wanted = np.where(test.mask, predictor.log_probabilities(test).argmax(axis=2), 0)
        assert (act_along(policy, test) == wanted).all()

    def test_an_episode_cannot_begin_among_others(self):
        batch = seen(20)
        policy = LikeliestAction(LastActionTable.fit(batch), batch.features, batch.action_names)
        rows = np.array([[1.0, 2.0, 0.0, 0.0], [1.0, 2.0, 0.0, 0.0]])
        _, state = policy.predict(rows)
        with pytest.raises(ValueError, match="must begin together"):
            policy.predict(rows, state, np.array([True, False]))
        with pytest.raises(ValueError, match="must begin together"):
            policy.predict(rows, None, np.array([False, False]))


class TestThePapersFigures:
    def test_how_far_its_methods_are_behind_its_experts(self):
        behind = paper.behind_expert(paper.RETURNS)
        assert list(behind["cirl"].values()) == pytest.approx([0.17, 0.31, 0.60, 0.14, 0.55, 0.30])
        assert behind["mb_x"]["70-30-0.5"] == pytest.approx(2.17)
        assert set(behind) == set(paper.ACCURACIES) == {"cirl", "mb_h", "mb_x", "dsfn", "dsfn_h"}

    def test_they_stand_above_ours_in_the_report(self, whole):
        page = (whole / "report" / "report.md").read_text()
        lines = page[page.index("**Return behind the experts'**") :].splitlines()
        assert lines[4].startswith("| CIRL, paper | 0.17 | 0.31 | 0.60 | 0.14 | 0.55 | 0.30 |")
        runs = {one.method: one.row.return_ for one in read_outcomes(whole)}
        told = f"{runs['expert'] - runs['cirl']:.4f}".replace("-", "\N{MINUS SIGN}")
        assert lines[5] == f"| CIRL, here | {told} |  |  |  |  |  |"
        assert paper.DIFFERENCES in page


class TestFigures:
    def test_cells_by_hand(self):
        learnt = {"cirl": (1.0, 2.0, 3.0), "cloning": (0.5, 2.0, 2.9), "dsfn": (0.0, 1.0, 2.0)}
        found = cells({"expert": {0: 9.0}, **{name: dict(enumerate(runs)) for name, runs in learnt.items()}})
        cirl = found["cirl"]
        assert (cirl.mean, cirl.first, cirl.seeds) == (2.0, True, 3)
        assert cirl.standard_error == pytest.approx(1 / np.sqrt(3))
        reach = t.ppf(0.975, 2) / np.sqrt(3)
        assert cirl.interval == pytest.approx((2 - reach, 2 + reach))
        assert cirl.behind is None
        differences = np.array([0.5, 0.0, 0.1])
        reach = t.ppf(0.975, 2) * differences.std(ddof=1) / np.sqrt(3)
        assert found["cloning"].behind == pytest.approx((0.2 - reach, 0.2 + reach))
        assert found["cloning"].not_behind
        assert found["dsfn"].behind == (1.0, 1.0)  # always by as much
        assert not found["dsfn"].not_behind
        assert (found["expert"].first, found["expert"].interval) == (False, None)

    def test_against_the_expert_run_by_run(self):
        values = {"a": {"expert": {0: 1.0, 1: 2.0}, "cirl": {0: 0.5, 1: 2.5, 2: 7.0}}, "b": {"cirl": {0: 1.0}}}
        assert against_expert(values) == {"a": {"cirl": {0: -0.5, 1: 0.5}}}

    def test_the_interquartile_mean_leaves_out_a_quarter_at_either_end(self):
        assert interquartile_mean(np.array([[0.0, 1.0, 2.0, 100.0], [4.0, 3.0, 2.0, 1.0]])).tolist() == [1.5, 2.5]

    def test_ranks_by_hand(self):
        outcomes = [
            outcome(SETTING, method, seed, value)
            for method, values in {"cirl": (3, 3, 9), "cloning": (2, 3), "dsfn": (1, 1)}.items()
            for seed, value in enumerate(values)
        ]
        found = summaries(values_of(outcomes, lambda one: one.discounted))
        # Of the two seeds that all have: first, and first with another.
        assert {name: one.rank for name, one in found.items()} == {"cirl": 1.25, "cloning": 1.75, "dsfn": 3.0}
        assert found["cirl"].runs == 3
        assert found["dsfn"].rank_interval == (3.0, 3.0)
        assert found["dsfn"].middle_interval == (1.0, 1.0)

    def test_the_bootstrap_draws_within_settings(self):
        low, high = bootstrap_interval([[0.0, 0.0], [1.0, 1.0]], lambda drawn: drawn.mean(axis=1))
        assert (low, high) == (0.5, 0.5)  # drawn from all four it would differ

    def test_in_how_many_runs_the_order_of_weights_is_right(self):
        outcomes = [
            outcome(setting, "cirl", seed, 0.0, row=Row(method="cirl", weights=(-0.4, -0.6), right_order=right))
            for setting, runs in {SETTING: (True, True, False), "50-50-0.99": (True, False)}.items()
            for seed, right in enumerate(runs)
        ]
        assert _orders(outcomes) == {(SETTING, "cirl"): "2 of 3"}

    def test_how_often_the_truth_is_held(self):
        outcomes = [
            outcome(SETTING, "cirl", seed, 0.0, identified=ends)
            for seed, ends in enumerate([(-0.4, -0.2), (-0.3, -0.1), (-0.2, 0.0)])
        ]
        held = held_truths(outcomes, lambda one: one.identified)["cirl"]
        assert (held.hits, held.runs) == (2, 3)
        assert held.share_interval[0] < 2 / 3 < held.share_interval[1]

    def test_an_outcome_is_of_a_known_setting_and_method(self):
        with pytest.raises(ValueError, match="setting must be one of"):
            outcome("1-2-3", "cirl", 0, 0.0)
        with pytest.raises(ValueError, match="method must be one of expert, cirl"):
            outcome(SETTING, "oracle", 0, 0.0)
