"""``cirl benchmark --table``: splits by patient, the same decisions for all methods of one, a report that says so."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs
from scipy.stats import t
from tiny_run import icu_stays, make_the_command_line_tiny, refused

from cirl_gym.data.batch import Batch
from irl.benchmark.figures import mean_and_interval
from irl.benchmark.table import METHODS, PARTS, TableOutcome
from irl.benchmark.table_report import columns_of, read_outcomes
from irl.checks.metrics import accuracy, repeat_last_action
from irl.checks.predictors import LastActionTable
from irl.commands.cli import main
from irl.preferences.likelihood import taken_log_probabilities
from irl.result.baselines import Row

ASKED = ("--features", "temperature", "wbc", "creatinine", "--lower-is-better", "wbc", "--quick", "--seeds", "2")
SOME = ("cirl", "cloning", "boosting", "table", "majority", "repeat")
WRITTEN = {"report.md", "outcomes.csv", "cells.csv"}


@pytest.fixture(scope="module")
def csv(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("table") / "stays.csv"
    icu_stays().to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def whole(csv, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("benchmark")
    with pytest.MonkeyPatch.context() as patch:
        make_the_command_line_tiny(patch)
        assert main(["benchmark", "--table", str(csv), *ASKED, "--methods", *SOME, "--out", str(out)]) == 0
    return out


def split_of(out: Path, seed: int) -> tuple[Batch, ...]:
    return tuple(Batch.load(out / f"parts/{seed}/{part}.npz") for part in PARTS)


def contents(out: Path) -> dict[str, dict]:
    """By file, what a job found, without what differs by machine and hour."""
    found = {}
    for path in out.glob("jobs/*.json"):
        content = json.loads(path.read_text())
        del content["seconds"], content["cpu"], content["row"]["seconds"]
        found[path.name] = content
    return found


def outcome(method: str, seed: int, value: float | None, **changes) -> TableOutcome:
    made = TableOutcome(
        seed=seed,
        features=("a", "b"),
        row=Row(method=method, accuracy=value),
        judged="1",
        patients={"train": 70, "validation": 15, "test": 17},
    )
    return structs.replace(made, **changes)


class TestTheCommand:
    def test_every_method_of_a_split_is_judged_by_the_same_decisions_of_other_patients(self, whole):
        found = read_outcomes(whole)
        assert [(one.seed, one.method) for one in found] == [(seed, name) for seed in (0, 1) for name in SOME]
        judged = {seed: {one.judged for one in found if one.seed == seed} for seed in (0, 1)}
        assert [len(numbers) for numbers in judged.values()] == [1, 1]
        assert judged[0] != judged[1]
        train, validation, test = (set(batch.groups) for batch in split_of(whole, 0))
        assert not (test & train) | (test & validation) | (train & validation)
        assert found[0].patients == {"train": len(train), "validation": len(validation), "test": len(test)}

    def test_figures_are_those_of_the_held_out_decisions(self, whole):
        train, _, test = split_of(whole, 1)
        found = {one.method: one for one in read_outcomes(whole) if one.seed == 1}
        logs = LastActionTable.fit(train).log_probabilities(test)
        table = found["table"].row
        assert table.accuracy == pytest.approx(accuracy(logs.argmax(axis=2), test))
        likelihood = taken_log_probabilities(logs, test).sum() / test.n_steps
        assert table.scores.log_likelihood.value == pytest.approx(likelihood)
        assert found["majority"].row.scores.auroc.value == 0.5  # the same chance for everyone
        assert found["repeat"].row.scores is None
        assert found["repeat"].row.accuracy == pytest.approx(accuracy(repeat_last_action(train, test), test))

    def test_verdict_and_weights_are_those_of_the_patients_learnt_from(self, whole):
        found = {one.method: one for one in read_outcomes(whole) if one.seed == 0}
        assert found["cirl"].verdict in ("beyond habit", "nothing beyond habit", "not identifiable")
        assert found["cirl"].row.weights[1] < 0
        assert {one.verdict for name, one in found.items() if name != "cirl"} == {None}
        assert "worlds of other patients" in found["cirl"].seconds
        assert "behaviour cloning" not in found["cirl"].seconds

    def test_what_is_missing_is_done_and_the_rest_is_left(self, whole, csv, tmp_path, monkeypatch):
        out = tmp_path / "copy"
        shutil.copytree(whole, out)
        (out / "jobs" / "table_1.json").unlink()
        shutil.rmtree(out / "parts" / "1")
        stays = (out / "jobs" / "cirl_0.json").stat().st_mtime_ns
        make_the_command_line_tiny(monkeypatch)
        assert main(["benchmark", "--table", str(csv), *ASKED, "--methods", *SOME, "--out", str(out)]) == 0
        assert contents(out) == contents(whole)
        assert (out / "jobs" / "cirl_0.json").stat().st_mtime_ns == stays

    def test_the_report_is_remade_from_the_stored_outcomes_alone(self, whole, tmp_path, capsys):
        shutil.copytree(whole / "jobs", tmp_path / "jobs")
        shutil.copy(whole / "benchmark.json", tmp_path)
        assert main(["benchmark", "report", str(tmp_path)]) == 0
        said = capsys.readouterr().out
        assert "Nadeau and Bengio" in said
        assert all(METHODS[name] in said for name in SOME)
        assert {path.name for path in (tmp_path / "report").iterdir()} == WRITTEN
        for name in WRITTEN:
            assert (tmp_path / "report" / name).read_bytes() == (whole / "report" / name).read_bytes()

    def test_another_table_needs_another_folder(self, whole, csv, tmp_path, capsys, monkeypatch):
        make_the_command_line_tiny(monkeypatch)
        path = tmp_path / "stays.csv"
        path.write_text(csv.read_text().replace("1.1", "1.2"))
        told = refused(capsys, "benchmark", "--table", path, *ASKED, "--out", whole)
        assert "holds jobs with other sha256: name another folder" in told

    @pytest.mark.parametrize(
        ("given", "told"),
        [
            (["--methods", "expert"], "--methods: 'expert' is not one of cirl"),
            (["--settings", "30-70-0.5"], "--settings is about the paper's simulator"),
            (["--kappa", "20"], "--kappa is about the paper's simulator"),
            (["--features", "wbx"], "wbx"),
            (["--gamma", "2"], "gamma must lie between 0 and 1"),
        ],
    )
    def test_bad_options(self, csv, capsys, tmp_path, given, told):
        assert told in refused(capsys, "benchmark", "--table", csv, *given, "--out", tmp_path)

    def test_options_of_a_table_need_one(self, capsys, tmp_path):
        assert "--static is about a table" in refused(capsys, "benchmark", "--static", "age", "--out", tmp_path)

    def test_too_few_patients_are_refused(self, capsys, tmp_path):
        path = tmp_path / "few.csv"
        icu_stays(9).to_csv(path, index=False)
        assert "patients are too few" in refused(capsys, "benchmark", "--table", path, *ASKED, "--out", tmp_path / "o")


class TestFigures:
    def test_splits_that_share_patients_count_for_less(self):
        numbers = [0.5, 0.6, 0.7, 0.8]
        spread = np.std(numbers, ddof=1)
        (mean, (low, high)) = mean_and_interval(numbers, shared=0.2)
        assert mean.standard_error == pytest.approx(spread * np.sqrt(1 / 4 + 0.2))
        assert (high - low) / 2 == pytest.approx(t.ppf(0.975, 3) * mean.standard_error)
        assert mean_and_interval(numbers)[0].standard_error == pytest.approx(spread / 2)

    def test_held_out_patients_over_all_others(self):
        column = columns_of([outcome("cirl", seed, 0.5 + 0.1 * seed) for seed in range(2)])["accuracy"]["cirl"]
        assert column.standard_error == pytest.approx(np.std([0.5, 0.6], ddof=1) * np.sqrt(1 / 2 + 17 / 85))

    def test_methods_that_were_judged_by_different_decisions_are_not_compared(self, tmp_path):
        for method, judged in (("cirl", "1"), ("cloning", "2")):
            outcome(method, 0, 0.5, judged=judged).write(tmp_path / "jobs" / f"{method}_0.json")
        with pytest.raises(ValueError, match="methods of seed 0 were judged by different decisions"):
            read_outcomes(tmp_path)

    def test_an_outcome_is_of_a_known_method(self):
        with pytest.raises(ValueError, match="method must be one of cirl"):
            outcome("expert", 0, 0.5)
