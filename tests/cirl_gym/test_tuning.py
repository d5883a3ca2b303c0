"""Hyper-parameter search: the paper's tables, a study that survives being killed, pruning, and what is kept of it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import optuna
import pytest
from outcome_batches import confounded
from recorded_trials import FOUR, TRAIN, VALIDATION, Recorded, config, run
from small_batches import batch_of
from small_tables import write
from sqlalchemy.exc import IntegrityError
from tiny_run import icu_stays, make_the_command_line_tiny

from cirl_gym.outcome_models.fitting import FittedOutcomeModel, OutcomeModelConfig
from cirl_gym.outcome_models.inputs import NetworkKind
from cirl_gym.outcome_models.training import NotFiniteError, TrainingConfig
from cirl_gym.tables.read import prepare_table
from cirl_gym.tuning import study as studies
from cirl_gym.tuning.search import (
    Parameter,
    SearchSpace,
    TuningConfig,
    input_size,
    load_search,
    multiple,
    read_tuned,
    replaced,
)
from cirl_gym.tuning.study import study_settings, tune
from irl.commands import explain as commands
from irl.commands import tune as tune_command
from irl.commands.arguments import TableArguments
from irl.commands.cli import main
from irl.commands.options import TuneOptions
from irl.commands.prepared import splits


def course(tuning):
    """What does not depend on the clock, of the trials that count."""
    rows = [row for row in tuning.trials if row.state != "stopped"]
    return [(row.state, row.value, row.choice) for row in rows]


class TestTables:
    @pytest.mark.parametrize(
        ("kind", "combinations"),
        [
            ("crn", 3 * 3 * 5 * 5 * 5 * 5),  # appendix F: rate, batch, RNN, representation, FC, dropout
            ("mb_h", 3 * 3 * 5 * 5),  # appendix G: rate, batch, RNN, FC
            ("mb_x", 3 * 3 * 4),  # appendix G: rate, batch, FC
            ("rmsn", 3 * 3 * 5 * 4),  # Lim et al.: rate, batch, RNN, gradient norm
        ],
    )
    def test_they_have_the_papers_size(self, kind, combinations):
        search = load_search(kind)
        assert search.combinations == combinations
        assert search.trials == 20
        assert search.source
        chosen = {tuple(search.combination(i).values()) for i in range(combinations)}
        assert len(chosen) == combinations
        for index in (0, combinations - 1):  # settings that exist
            search.configured(OutcomeModelConfig(), search.combination(index), 4)

    def test_sizes_are_multiples_of_the_input_and_of_the_representation(self):
        batch = batch_of([0, 1], [1, 2], n_actions=3, d=2)
        assert input_size(batch) == 5  # two features, three actions
        choice = {"learning rate": 0.001, "batch size": 64, "RNN units": 0.5, "BR units": 3, "FC units": 0.5}
        found = load_search("crn").configured(OutcomeModelConfig(), {**choice, "dropout": 0.4}, 5)
        crn = found.crn
        # .5 C = 2.5 -> 3; R = 3 C = 15; .5 R = 7.5 -> 8.
        assert (crn.hidden, crn.representation, crn.fully_connected, crn.dropout) == (3, 15, 8, 0.4)
        assert (crn.training.learning_rate, crn.training.batch_size) == (0.001, 64)
        assert replace(found, crn=OutcomeModelConfig().crn) == OutcomeModelConfig()
        choice = {"learning rate": 0.01, "batch size": 256, "FC units": 5}
        mlp = load_search("mb_x").configured(OutcomeModelConfig(), choice, 4).mb_x
        assert (mlp.first, mlp.second) == (20, 20)
        # Rounded, and never below 1.
        assert [multiple(0.5, size) for size in (1, 2, 3, 4, 5)] == [1, 1, 2, 2, 3]
        assert multiple(0.1, 1) == 1

    def test_tables_and_settings_come_back_from_json_and_the_linear_law_has_none(self):
        search, default = load_search("crn"), OutcomeModelConfig()
        assert SearchSpace.from_dict(json.loads(json.dumps(asdict(search)))) == search
        changed = replace(default, crn=replace(default.crn, hidden=7), base=False)
        assert replaced(default, json.loads(json.dumps(asdict(changed))), "config") == changed
        with pytest.raises(ValueError, match=r"config\.crn has no field 'size'"):
            replaced(default, {"crn": {"size": 3}}, "config")
        with pytest.raises(ValueError, match="nothing to tune for 'ar'"):
            load_search("ar")

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"trials": 0}, "trials must be at least 1"),
            ({"seed": -1}, "seed"),
            ({"sampler": "grid"}, "'random' or 'tpe'"),
            ({"model": "crn"}, "for 'mb_h', not for 'crn'"),
            ({"search": SearchSpace("mb_h", (Parameter("x", ("width",), (1,)),))}, "no field 'width'"),
            (
                {"search": SearchSpace("mb_h", (Parameter("x", ("hidden.width",), (1,)),))},
                r"hidden has no field 'width'",
            ),
        ],
    )
    def test_an_impossible_search_is_refused_before_it_begins(self, changes, words):
        with pytest.raises(ValueError, match=words):
            config(**changes)


class TestTrials:
    def test_every_combination_is_tried_once_and_the_least_error_wins(self, tmp_path):
        fit = Recorded()
        found = run(tmp_path / "study", fit, trials=10)
        assert sorted((hidden, rate) for hidden, rate, _ in fit.calls) == [(4, 0.1), (4, 0.2), (8, 0.1), (8, 0.2)]
        assert found.inputs == 4
        assert found.best.choice == {"units": 2, "rate": 0.2}
        assert found.best.value == 1 / (8 * 0.2)
        assert found.best.settings == {"hidden": 8, "training.learning_rate": 0.2}
        best = found.best_config.mb_h
        assert (best.hidden, best.training.learning_rate) == (8, 0.2)

    def test_the_default_is_the_tables_number_and_progress_rises_to_the_end(self, tmp_path):
        fit = Recorded()
        found = run(tmp_path / "study", fit, search=load_search("mb_h"), prune=False)
        assert len(fit.calls) == len(found.trials) == 20
        assert len({(row.choice["RNN units"], row.choice["FC units"]) for row in found.trials}) > 5
        told = []
        tune(TRAIN, VALIDATION, config(trials=2), tmp_path / "s", fit=Recorded(), progress=lambda *at: told.append(at))
        assert told == sorted(told)
        assert told[-1] == (2, 2)
        assert {total for _, total in told} == {2}

    @pytest.mark.parametrize("sampler", ["random", "tpe"])
    def test_same_seed_same_study(self, tmp_path, sampler):
        changes = {"search": load_search("mb_h"), "sampler": sampler, "trials": 12}
        fits = [Recorded(epochs=1) for _ in range(3)]
        runs = [run(tmp_path / str(i), fit, **changes, seed=i // 2) for i, fit in enumerate(fits)]
        assert course(runs[0]) == course(runs[1])
        assert fits[0].calls == fits[1].calls
        assert course(runs[0]) != course(runs[2])

    @pytest.mark.parametrize(
        ("epochs", "said"), [(1, "No network improved on the linear law"), (0, "no network was trained")]
    )
    def test_among_equal_errors_the_network_that_came_closest_is_chosen(self, tmp_path, epochs, said):
        def law_is_not_improved_on(kind, train, validation, config, rng, progress=None, *, watch=None):
            loss = 1 + config.mb_h.training.learning_rate * config.mb_h.hidden
            correction = {"kept": False, "validation_loss": loss, "epochs": epochs}
            return FittedOutcomeModel(None, {"correction": correction, "factual": {"validation": {"pooled": 0.5}}}, 0.0)

        found = run(tmp_path / "study", law_is_not_improved_on)
        assert (found.best.value, found.best.accepted, found.best.choice) == (0.5, False, {"units": 1, "rate": 0.1})
        assert said in " ".join(tune_command.remarks(found))

    def test_a_training_that_is_not_finite_is_an_answer(self, tmp_path):
        fit = Recorded(stop_at=1, error=NotFiniteError("the loss is nan"))
        found = run(tmp_path / "study", fit)
        assert [row.state for row in found.trials].count("diverged") == 1
        assert [row.message for row in found.trials if row.state == "diverged"] == ["the loss is nan"]
        assert len(fit.calls) == 4
        with pytest.raises(ValueError, match=r"no trial of the study finished: the loss is nan"):
            run(tmp_path / "other", Recorded(stop_at=0, error=NotFiniteError("the loss is nan")), trials=1)

    def test_bad_trials_are_pruned_by_the_loss_of_the_correction(self, tmp_path):
        units = tuple(range(1, 11))
        many = SearchSpace("mb_h", (Parameter("units", ("hidden",), units, "C"),), trials=10)
        fit = Recorded(epochs=13)
        found = run(tmp_path / "study", fit, search=many)
        states = [row.state for row in found.trials]
        assert set(states) == {"finished", "pruned"}
        assert states[: studies.FIRST_TRIALS] == ["finished"] * studies.FIRST_TRIALS
        pruned = [row for row in found.trials if row.state == "pruned"]
        assert all(row.epochs == studies.FIRST_EPOCHS and row.value is None for row in pruned)
        assert found.best.choice == {"units": 10}
        everything = run(tmp_path / "all", Recorded(epochs=13), search=many, prune=False)
        assert {row.state for row in everything.trials} == {"finished"}
        assert everything.best.choice == {"units": 10}


KILLED = """
import os, sys
sys.path.insert(0, sys.argv[2])
import recorded_trials as t
from cirl_gym.tuning.search import load_search
class Killed(t.Recorded):
    def __call__(self, *arguments, **options):
        if len(self.calls) == 2:
            print(os.getpid(), flush=True)
            os._exit(9)
        return super().__call__(*arguments, **options)
t.run(sys.argv[1], Killed(), search=load_search("mb_h"), trials=5)
"""


class TestGoingOn:
    @pytest.mark.parametrize("storage", ["study.journal", "study.db"])
    def test_a_stopped_trial_is_tried_again_and_the_end_is_the_same(self, tmp_path, storage):
        changes = {"search": load_search("mb_h"), "trials": 4}
        whole = Recorded()
        expected = run(tmp_path / "whole", whole, **changes)
        first = Recorded(stop_at=2, error=KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / storage, first, **changes)
        second = Recorded()
        found = run(tmp_path / storage, second, **changes)
        assert first.calls[:2] + second.calls == whole.calls
        assert course(found) == course(expected)
        assert [row.state for row in found.trials].count("stopped") == 1
        assert found.best_config == expected.best_config

    def test_a_process_that_was_killed_loses_one_trial_only(self, tmp_path):
        changes = {"search": load_search("mb_h"), "trials": 5}
        whole = Recorded()
        run(tmp_path / "whole", whole, **changes)
        arguments = [tmp_path / "study", Path(__file__).resolve().parents[1] / "helpers"]
        killed = subprocess.run([sys.executable, "-c", KILLED, *arguments], capture_output=True, text=True, check=False)
        assert killed.returncode == 9, killed.stderr
        second = Recorded()
        found = run(tmp_path / "study", second, **changes)
        assert second.calls == whole.calls[2:]
        assert [row.state for row in found.trials] == ["finished", "finished", "stopped", *["finished"] * 3]

    def test_more_trials_go_on_from_those_that_are_there(self, tmp_path):
        first, second, third = Recorded(), Recorded(), Recorded()
        run(tmp_path / "study", first, trials=3)
        run(tmp_path / "study", second, trials=4)
        found = run(tmp_path / "study", third, trials=4)
        assert (len(first.calls), len(second.calls), len(third.calls)) == (3, 1, 0)
        assert len(found.trials) == 4
        expected = run(tmp_path / "whole", Recorded())
        run(tmp_path / "torn", Recorded(), trials=2)
        with (tmp_path / "torn").open("ab") as file:
            file.write(b'{"op_code":4,"wor')
        assert course(run(tmp_path / "torn", Recorded())) == course(expected)

    @pytest.mark.parametrize(("host", "state"), [("elsewhere", "running"), (None, "stopped")])
    def test_a_trial_that_was_begun_is_tried_again_unless_on_another_machine(self, tmp_path, host, state):
        study = studies.open_study(tmp_path / "study", "mb_h", study_settings(TRAIN, VALIDATION, config()), True)
        trial, place = studies.next_trial(study, FOUR, "random", 0)
        taken = studies.choose(trial, FOUR)
        if host:
            trial.set_user_attr("host", host)
        assert place == 0
        found = run(tmp_path / "study", Recorded(), trials=3)
        assert [row.state for row in found.trials] == [state, "finished", "finished", "finished"]
        assert (taken in [row.choice for row in found.trials[1:]]) == (state == "stopped")

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"seed": 1}, r"other settings: seed \(0, now 1\)\. Take"),
            ({"prune": False}, r"pruning \(True, now False\)"),
            ({"start": OutcomeModelConfig(base=False)}, r"configuration\.base \(True, now False\)"),
        ],
    )
    def test_a_study_of_other_settings_is_refused(self, tmp_path, changes, words):
        run(tmp_path / "study", Recorded(), trials=1)
        with pytest.raises(ValueError, match=words):
            run(tmp_path / "study", Recorded(), **changes)
        with pytest.raises(ValueError, match=r"other settings: training batch\."):
            tune(batch_of([1, 1, 1], [1, 0], [1]), VALIDATION, config(), tmp_path / "study", fit=Recorded())

    def test_a_database_that_does_not_answer_is_one_error(self, tmp_path):
        with pytest.raises(ValueError, match=r"cannot be opened in 'nosuch://me:\*\*\*@here/study'") as refused:
            run("nosuch://me:p@ss@here/study", Recorded())
        assert "p@ss" not in str(refused.value)

    def test_a_database_that_another_machine_is_making_is_opened_on_second_sight(self, tmp_path, monkeypatch):
        real, failed = optuna.storages.RDBStorage.__init__, []

        def init(self, url, **options):
            if not failed:
                failed.append(url)
                raise IntegrityError("INSERT", None, Exception("UNIQUE constraint failed"))
            real(self, url, **options)

        monkeypatch.setattr(optuna.storages.RDBStorage, "__init__", init)
        assert len(run(tmp_path / "study.db", Recorded(), trials=1).trials) == 1
        assert failed

    def test_several_studies_share_a_database(self, tmp_path):
        url = f"sqlite:///{tmp_path / 'shared.db'}"
        for name in ("one", "three"):
            found = tune(TRAIN, VALIDATION, config(seed=len(name), trials=1), url, name=name, fit=Recorded())
            assert len(found.trials) == 1


class TestResult:
    def test_what_is_written_can_be_read_and_used(self, tmp_path):
        found = run(tmp_path / "study", Recorded())
        found.write(tmp_path / "tuning.json")
        assert read_tuned(tmp_path / "tuning.json") == ("mb_h", found.best_config)
        table = json.loads((tmp_path / "tuning.json").read_text())
        assert [row["number"] for row in table["trials"]] == [0, 1, 2, 3]
        assert table["trials"][table["best"]]["value"] == table["error"]

    @pytest.mark.parametrize(
        "content", ["{", "[]", '{"schema": 1}', '{"schema": 1, "model": "ar", "config": {}}', '{"schema": 2}']
    )
    def test_another_file_is_refused_by_name(self, tmp_path, content):
        (tmp_path / "tuning.json").write_text(content)
        with pytest.raises(ValueError, match=r"tuning\.json"):
            read_tuned(tmp_path / "tuning.json")

    def test_without_optuna_the_error_says_how_to_get_it(self):
        code = (
            "import sys; sys.modules['optuna'] = None\n"
            "import cirl_gym.tuning.search\n"  # loads no Optuna
            "import cirl_gym.tuning.study"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert done.stderr.rstrip().endswith('ImportError: tuning needs Optuna: pip install "cirl-gym[tune]"')


@pytest.fixture
def tiny_tuning(monkeypatch, tmp_path):
    """``cirl tune`` with networks that are trained for two epochs, in a folder of its own."""
    real = tune_command.search

    def search(train, validation, config, storage, **options):
        few = {"training": replace(TrainingConfig(), epochs=2)}
        changed = {kind: replace(getattr(config.start, kind), **few) for kind in ("crn", "mb_h", "mb_x")}
        return real(train, validation, replace(config, start=replace(config.start, **changed)), storage, **options)

    monkeypatch.setattr(tune_command, "search", search)
    make_the_command_line_tiny(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return tmp_path


class TestCommand:
    def test_a_batch_is_tuned_and_the_result_is_used(self, tiny_tuning, monkeypatch, capsys):
        confounded(60)[0].save("batch.npz")
        assert main(["tune", "batch.npz", "--model", "mb_x", "--trials", "2", "--alone", "--out", "t"]) == 0
        shown = capsys.readouterr().out
        assert "C = 4" in shown
        assert "2 finished, 0 pruned, 0 diverged" in shown
        kind, outcome = read_tuned("t/tuning.json")
        assert (kind, outcome.base, outcome.mb_x.first % 4, outcome.mb_x.training.epochs) == ("mb_x", False, 0, 2)
        ran = []
        monkeypatch.setattr(commands, "explain", lambda _frame, config, _out: ran.append(config.fit))
        monkeypatch.setattr(commands, "demo", lambda config, _out: ran.append(config.fit))
        write("table.csv", icu_stays(10))
        table = ["explain", "table.csv", "--features", "temperature", "wbc"]
        for command in (table, [*table, "--model", "mb_x"], ["demo"], ["demo", "--quick"]):
            assert main([*command, "--model-config", "t/tuning.json"]) == 0
            assert (ran[-1].model, ran[-1].outcome) == ("mb_x", outcome)
        assert main([*table, "--model", "crn", "--model-config", "t/tuning.json"]) == 2
        assert "holds settings of 'mb_x', --model asks for 'crn'" in capsys.readouterr().err
        assert get_args(get_type_hints(TuneOptions)["model"]) == get_args(NetworkKind)

    def test_a_table_is_split_as_explain_splits_it(self, tiny_tuning, capsys):
        write("table.csv", icu_stays())
        arguments = TableArguments(features=("temperature", "wbc"))
        found = splits(Path("table.csv"), arguments, 3)
        frame, columns, options = arguments.read(Path("table.csv"))
        table = prepare_table(frame, columns, options, rng=np.random.default_rng([3, 0]))
        assert [part.ids for part in found] == [table.train.ids, table.validation.ids]

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (["--trials", "0"], "trials must be at least 1"),
            (["--lag", "x", "--last-row", "drop_action"], "--last-row, --lag say how a table is read"),
            (["--storage", "nosuch://x"], "cannot be opened"),
        ],
    )
    def test_bad_input_is_one_error(self, tiny_tuning, capsys, options, words):
        confounded(30)[0].save("batch.npz")
        assert main(["tune", "batch.npz", *options]) == 2
        assert words in capsys.readouterr().err


def test_real_networks_are_tuned_the_same_twice(tmp_path):
    train, validation = confounded(60)
    default = OutcomeModelConfig()
    few = replace(default.mb_h, training=replace(default.mb_h.training, epochs=3))
    end = replace(default.end, training=replace(default.end.training, epochs=2))
    wanted = TuningConfig("mb_h", trials=3, start=replace(default, mb_h=few, end=end, base=False))
    found = [tune(train, validation, wanted, tmp_path / str(i)) for i in range(2)]
    assert course(found[0]) == course(found[1])
    assert len({row.value for row in found[0].trials}) == 3
    assert all(np.isfinite(row.value) and row.accepted and row.epochs == 3 for row in found[0].trials)


@pytest.mark.parametrize("damaged", [b"\xff\xfe\x00x\n", b"3\n", b"{}\n", b"hello\nworld\n", b'{"op_code": 99}\n'])
def test_a_damaged_journal_is_one_line_that_names_the_file(tmp_path, damaged):
    (tmp_path / "study.journal").write_bytes(damaged)
    with pytest.raises(ValueError, match=r"cannot be opened in '.*study\.journal': .+") as told:
        studies.open_study(tmp_path / "study.journal", "crn", {}, prune=False)
    assert "\n" not in str(told.value)
