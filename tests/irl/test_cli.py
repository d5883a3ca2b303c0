"""The command line: every fault is one clear error and exit status 2, never a traceback; every row is accounted for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import gymnasium as gym
import pandas as pd
import pytest
from small_tables import ICU_DATA, put, stays, without, write
from tiny_run import icu_stays, make_the_command_line_tiny, refused

import irl
from agents.successor.agent import SuccessorAgent
from cirl_gym.outcome_models.store import load_model
from cirl_gym.tables.weighed import known_signs
from cirl_gym.wrappers.learned_reward import load_reward
from irl.commands.arguments import habit_contexts
from irl.commands.cli import main
from irl.result.result import Result

ROOT = Path(__file__).parents[2]
SHIFTS = ("day", "day", "night", "night")
TWO = ("--features", "temperature", "wbc")


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Commands take seconds, and write below a folder that nobody else uses."""
    make_the_command_line_tiny(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def left_by_tyro(*arguments) -> int | str | None:
    """Exit status of a command line that is answered by the parser itself."""
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    return left.value.code


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--help"], ["demo", "explain", "What were they trading off?"]),
        (["demo", "--help"], ["--weights", "--gamma", "--kappa", "--episodes", "--quick", "--seed", "--out"]),
        (["explain", "--help"], ["--id", "--time", "--action", "--features", "--lower-is-better", "--sign", "--out"]),
        (["tune", "--help"], ["--no-prune lets every trial run to its end"]),
    ],
)
def test_help_is_readable(arguments, words, capsys):
    assert left_by_tyro(*arguments) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    for word in words:
        assert word in " ".join(captured.out.replace("│", "").split())
    assert "Args:" not in captured.out
    assert "MISSING" not in captured.out


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["show"],
        ["demo", "--wieghts", "-0.3", "-0.7"],
        ["demo", "--weights", "-0.3"],
        ["demo", "--seed", "one"],
        ["demo", "--model", "oracle"],
        ["explain"],
        ["explain", "table.csv", "--end", "never"],
    ],
)
def test_a_wrong_option_exits_with_2(arguments, capsys):
    assert left_by_tyro(*arguments) == 2
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err + captured.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--weights", "nan", "-0.7"], "weights must have an L1 norm above 0 and at most 1, got (nan, -0.7)"),
        (["--gamma", "1.5"], "gamma must lie between 0 and 1, got 1.5"),
        (["--seed", "-1"], "seed must not be negative, got -1"),
        (["--forbid", "2 when Above(tumour, 1)"], "there is no action '2'; the actions are 0, 1"),
        (["--forbid", "1 when Above(kg, 1)"], "'kg' is not a feature; the features are tumour, side_effects"),
        (["--forbid", "1 if Above(tumour, 1)"], "neither when nor unless"),
    ],
)
def test_a_demo_out_of_range_is_refused_and_takes_nothing_away(arguments, message, tmp_path, capsys):
    (tmp_path / "result.json").write_text("of an earlier run")
    assert message in refused(capsys, "demo", "--out", tmp_path, *arguments)
    assert (tmp_path / "result.json").read_text() == "of an earlier run"


def test_a_demo_with_options_runs(tiny, capsys):
    options = "--weights -0.5 -0.5 --gamma 0.9 --kappa 50 --seed 3 --out here --quick"
    assert main(["demo", *options.split()]) == 0
    captured = capsys.readouterr()
    assert "Decisions met" in captured.out
    assert "[1/9] expert" in captured.err
    assert "[9/9] evaluation: done" in captured.err
    result = Result.read(tiny / "here" / "result.json")
    assert result.true_weights == (-0.5, -0.5)
    assert result.seed == 3
    assert result.config["kappa"] == 50
    assert result.config["fit"]["gamma"] == 0.9


@pytest.mark.parametrize(
    ("asked", "default", "contexts"),
    [
        ((), (), ()),
        ((), ("previous",), ("previous",)),
        (("none",), ("previous",), ()),
        (("previous",), (), ("previous",)),
        (("ward", "shift"), ("previous",), ("previous", "ward", "shift")),
        (("ward", "previous"), ("previous",), ("previous", "ward")),
        (("ward",), ("previous", "previous2"), ("previous", "previous2", "ward")),
        (("ward", "previous"), ("previous", "previous2"), ("previous", "ward")),
        (("previous2", "previous"), (), ("previous", "previous2")),
        (("ward",), (), ("previous", "ward")),
    ],
)
def test_columns_that_habits_depend_on_come_beside_the_action_before(asked, default, contexts):
    assert habit_contexts(asked, default) == contexts


def test_columns_of_habits_are_read_from_the_table_and_are_no_features(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("irl.commands.explain.explain", lambda frame, config, out: asked.append(config))
    frame = stays(*[3] * 8)
    table = write(
        tmp_path / "t.csv",
        frame.assign(ward=[str(n % 2) for n in range(len(frame))], shift=[SHIFTS[n % 4] for n in range(len(frame))]),
    )
    for options in ([], ["--habit", "previous"], ["--habit", "none"]):
        assert main(["explain", str(table), "--features", "x", "y", *options]) == 0
    assert main(["explain", str(table), "--habit", "ward", "shift"]) == 0
    assert main(["explain", str(table), "--features", "x", "ward", "--habit", "ward"]) == 0
    assert [config.fit.habit for config in asked] == [
        *(("previous", "previous2"), ("previous",), ()),
        *(("previous", "previous2", "ward", "shift"), ("previous", "previous2", "ward")),
    ]
    assert [config.columns.contexts for config in asked] == [(), (), (), ("ward", "shift"), ("ward",)]
    assert [config.columns.features for config in asked[3:]] == [("x", "y"), ("x", "ward")]


def test_no_habit_stands_alone_and_no_name_twice():
    with pytest.raises(ValueError, match="--habit none means no habits at all, but there is more: none ward"):
        habit_contexts(("none", "ward"), ())
    with pytest.raises(ValueError, match="--habit: a name is there twice: ward, ward"):
        habit_contexts(("ward", "ward"), ())


def test_the_release_is_told(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"cirl {metadata.version('cirl-gym')}\n"


def test_the_folder_must_be_a_folder(tiny, capsys):
    (tiny / "taken").write_text("a file")
    assert "taken" in refused(capsys, "demo", "--quick", "--out", "taken")


FIRST, SECOND = "000700", "000707"
"""The first two stays of the table: lines 2 and 3, and from line 4 on."""


@pytest.mark.parametrize(
    ("line", "column", "cell", "words"),
    [
        (4, "antibiotic", "", ["column 'antibiotic'", f"id '{SECOND}'", "line 4", "the action is missing"]),
        (4, "antibiotic", "NaN", ["column 'antibiotic'", f"id '{SECOND}'", "line 4", "the action is missing"]),
        (5, "wbc", "high", ["column 'wbc'", f"id '{SECOND}'", "line 5", "'high' is not a number"]),
        (5, "wbc", "1e30", ["column 'wbc'", f"id '{SECOND}'", "line 5", "1e30 is beyond 1e+15"]),
        (5, "wbc", "inf", ["column 'wbc'", f"id '{SECOND}'", "line 5", "'inf' is not a number"]),
        (5, "bin", "", ["column 'bin'", f"id '{SECOND}'", "line 5", "the time is empty"]),
        (5, "subject_id", "", ["column 'subject_id'", "line 5"]),
        (5, "bin", "0", [f"id '{SECOND}'", "line 5", "the id and time of another row", "--duplicates"]),
    ],
)
def test_one_bad_cell_is_named(line, column, cell, words, tiny, capsys):
    table = write(tiny / "table.csv", put(icu_stays(), line, column, cell))
    message = refused(capsys, "explain", table, *TWO)
    for word in words:
        assert word in message
    assert not (tiny / "runs").exists()


def test_a_last_row_or_an_action_that_breaks_the_rules_is_named(tiny, capsys):
    frame = icu_stays()
    last = int(frame.index[frame["stay_id"] == SECOND][-1])
    message = refused(capsys, "explain", write(tiny / "table.csv", put(frame, last, "antibiotic", "1")), *TWO)
    assert f"column 'antibiotic', id '{SECOND}', line {last}: the last row of the id has an action" in message
    assert "--last-row drop_action" in message
    message = refused(capsys, "explain", write(tiny / "table.csv", without(frame, last)), *TWO)
    assert f"id '{SECOND}', line {last - 1}" in message
    frame = icu_stays()
    frame.loc[frame["antibiotic"] == "0", "antibiotic"] = "1"
    message = refused(capsys, "explain", write(tiny / "table.csv", frame), *TWO)
    assert "column 'antibiotic': only one action, '1', is ever taken" in message


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.csv", "", ["empty.csv", "the file is empty"]),
        ("header.csv", "stay_id,bin,a\n", ["header.csv", "not one row"]),
        ("ragged.csv", "stay_id,bin,a\n1,2\n", ["ragged.csv, line 2", "2 fields, but the header has 3"]),
        ("table.xlsx", "", ["table.xlsx", ".csv, .tsv, .csv.gz, .tsv.gz and .parquet"]),
        (None, "", ["absent.csv: there is no such file"]),
    ],
)
def test_a_file_that_is_no_table_is_refused(name, content, words, tiny, capsys):
    if name is not None:
        (tiny / name).write_text(content)
    message = refused(capsys, "explain", tiny / (name or "absent.csv"))
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--features", "temperature", "wcb"], "the table has no column 'wcb'"),
        ([*TWO, "--id", "stay"], "the table has no column 'stay'"),
        ([*TWO, "--action", "drug"], "the table has no column 'drug'"),
        ([*TWO, "--group", "patient"], "the table has no column 'patient'"),
        (["--features", "temperature", "--habit", "none"], "a trade-off needs two outcomes, got temperature"),
        ([*TWO, "--outcomes", "wbc", "--habit", "none"], "a trade-off needs two outcomes, got wbc; name more by"),
        (
            [*TWO, "--outcomes", "wbc", "wcb"],
            "'wcb' is not a feature (did you mean 'wbc'?); the features are temperature",
        ),
        ([*TWO, "--outcomes", "wbc", "lactate"], "--outcomes: 'lactate' is not a feature"),
        ([*TWO, "--static", "sodium"], "column 'sodium', id '000707', line 5"),
        ([*TWO, "--static", "age"], "the table has no column 'age'"),
        ([*TWO, "--static", "sodium", "--outcomes", "sodium", "wbc"], "--outcomes: 'sodium' is static; no action"),
        ([*TWO, "--static", "sodium", "--lag", "sodium"], "lag: 'sodium' is static"),
        ([*TWO, "--static", "sodium", "--sign", "sodium=-1"], "--sign: 'sodium' is not an outcome"),
        ([*TWO, "--action", "antibiotic", "wbc"], "a column cannot play two parts: 'wbc'"),
        ([*TWO, "--action", "antibiotic", "drug"], "the table has no column 'drug'"),
        ([*TWO, "--sign", "lactate=-1"], "--sign: 'lactate' is not an outcome"),
        ([*TWO, "--lower-is-better", "lactate"], "--lower-is-better: 'lactate' is not an outcome"),
        ([*TWO, "--sign", "wbc"], "--sign takes NAME=-1 or NAME=+1, got 'wbc'"),
        ([*TWO, "--sign", "wbc=2"], "--sign takes NAME=-1 or NAME=+1, got 'wbc=2'"),
        ([*TWO, "--sign", "wbc=+1", "--lower-is-better", "wbc"], "--sign: 'wbc' is given two different signs"),
        ([*TWO, "--lag", "lactate"], "lag: 'lactate' is not among the features"),
        ([*TWO, "--end", "truncated"], "leave out --end"),
        ([*TWO, "--habit", "none", "previous"], "--habit none means no habits at all, but there is more"),
        ([*TWO, "--habit", "wrad"], "the table has no column 'wrad'"),
        ([*TWO, "--time", "bin", "--habit", "bin"], "a column cannot play two parts: 'bin'"),
        ([*TWO, "--habit", "hemoglobin"], "--habit: column 'hemoglobin' has"),
        ([*TWO, "--gamma", "2"], "gamma must lie between 0 and 1, got 2.0"),
        ([*TWO, "--seed", "-3"], "seed must not be negative, got -3"),
    ],
)
def test_a_wrong_option_of_a_table_is_named(options, message, tiny, capsys):
    table = write(tiny / "table.csv", icu_stays())
    assert message in refused(capsys, "explain", table, *options)


HEAVY = ("torch", "stable_baselines3", "sb3_contrib", "emcee", "arviz_stats", "sklearn", "matplotlib", "optuna")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["explain", "table.csv", "--id", "stay"], "the table has no column 'stay' (did you mean 'stay_id'?)"),
        (["explain", "table.csv", *TWO, "--outcomes", "wbcc"], "'wbcc' is not a feature (did you mean 'wbc'?)"),
        (["explain", "table.csv", *TWO, "--gamma", "2"], "gamma must lie between 0 and 1"),
        (["explain", "table.csv", *TWO, "--valid", "wcb", "0", "1"], "(did you mean 'wbc'?)"),
        (["tune", "table.csv", "--id", "stay"], "(did you mean 'stay_id'?)"),
        (["explain", "table.csv", "--nope"], "--nope"),
    ],
)
def test_what_is_wrong_with_a_table_is_said_before_anything_heavy_is_imported(options, message, tmp_path):
    write(tmp_path / "table.csv", icu_stays(8))
    code = "import sys; from irl.commands.cli import main\n"
    code += "try: status = main(sys.argv[1:])\nexcept SystemExit as left: status = left.code\n"
    code += f"print('imported', sorted(set({HEAVY}) & set(sys.modules))); sys.exit(status)"
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    ran = subprocess.run(
        [sys.executable, "-c", code, *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert ran.returncode == 2
    assert message in ran.stderr
    assert "imported []" in ran.stdout


def test_ids_007_and_7_are_two_stays(tiny, capsys):
    frame = icu_stays()
    frame["stay_id"] = frame["stay_id"].replace({FIRST: "007", SECOND: "7"})
    table = write(tiny / "table.csv", frame)
    assert main(["explain", str(table), *TWO, "--lower-is-better", "wbc", "--out", "here"]) == 0
    printed = capsys.readouterr().out
    assert f"{len(frame)} rows read, {len(frame)} used: 60 episodes of" in printed
    result = Result.read(tiny / "here" / "result.json")
    assert result.table is not None
    assert result.table["episodes"]["used"] == 60
    assert result.intervals["wbc"][1] <= 0
    parts = result.episodes
    assert parts.train + parts.validation + parts.test == 60


def test_some_outcomes_static_columns_and_two_decisions(tiny, capsys):
    frame = icu_stays()
    frame["age"] = frame["subject_id"].map(lambda name: str(30 + int(name[-2:]) % 50))
    sodium = pd.to_numeric(frame["sodium"]).fillna(140)
    frame["fluid"] = (sodium < sodium.median()).astype(int).astype(str).where(frame["antibiotic"] != "", "")
    table = write(tiny / "table.csv", frame)
    options = ["--features", "temperature", "wbc", "lactate", "--outcomes", "lactate", "temperature"]
    options += ["--static", "age", "--action", "antibiotic", "fluid", "--lower-is-better", "lactate", "--out", "here"]
    assert main(["explain", str(table), *options]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "4 features: temperature, wbc, lactate, age (static: age)" in printed
    assert "4 actions, the combinations that were taken: antibiotic=0, fluid=0 (" in printed
    assert "Of 4 observed features 2 are weighed as outcomes" in printed
    result = Result.read(tiny / "here" / "result.json")
    assert result.features == ("lactate", "temperature")
    assert set(result.intervals) == set(result.config["ranges"]) == {"lactate", "temperature"}
    assert result.weights[0] <= 0
    assert result.config["outcomes"] == ["lactate", "temperature"]
    assert result.config["columns"]["features"] == ["temperature", "wbc", "lactate", "age"]
    assert result.config["columns"]["action"] == ["antibiotic", "fluid"]
    assert result.table is not None
    assert result.table["actions"][2] == {"antibiotic": "1", "fluid": "0"}

    env = gym.make("CIRLCounterfactual-v0", run=tiny / "here")
    obs, _ = env.reset(seed=0)
    assert obs.shape == (4 + 4,)
    following, reward, *_, info = env.step(3)
    assert following[3] == obs[3]
    assert reward == pytest.approx(float(info["phi"] @ result.estimates["posterior"]))
    world = load_model(tiny / "here" / "outcome_model.npz")
    agent = SuccessorAgent.load(tiny / "here" / "agent.npz", world)
    assert agent.policy(result.weights).predict(obs[None], deterministic=True)[0].shape == (1,)
    learned = load_reward(tiny / "here").among(("temperature", "wbc", "lactate", "age"))
    assert learned(following[:4]) == pytest.approx(reward, abs=1e-6)
    frame = icu_stays().assign(age="50")
    frame.loc[frame["subject_id"] > "1", "age"] = "60"
    table = write(tiny / "table.csv", frame)
    assert main(["explain", str(table), *TWO, "--static", "age", "--out", "here"]) == 0
    result = Result.read(tiny / "here" / "result.json")
    assert result.features == ("temperature", "wbc")
    assert result.config["outcomes"] == ["temperature", "wbc"]
    assert result.config["columns"]["static"] == ["age"]


def test_repairs_are_counted_in_what_is_printed(tiny, capsys):
    frame = icu_stays()
    again = frame.loc[[4]]
    lone = put(put(frame.loc[[4]], 4, "stay_id", "alone"), 4, "antibiotic", "")
    gap = put(frame, 5, "wbc", "")
    table = write(tiny / "table.csv", pd.concat([gap, again, lone]))
    assert main(["explain", str(table), *TWO, "--out", "here"]) == 0
    printed = capsys.readouterr().out
    counts = json.loads((tiny / "here" / "result.json").read_text())["table"]["rows"]
    assert counts == {
        "read": len(frame) + 2,
        "used": len(frame),
        "identical": 1,
        "merged": 0,
        "lone": 1,
        "cut": 0,
        "bad": 0,
    }
    assert f"{len(frame) + 2} rows read, {len(frame)} used" in printed
    assert "identical" in printed
    before = (frame["wbc"] == "").sum()
    assert f"wbc: {before + 1} empty" in printed


def test_what_is_said_of_signs():
    names = ("a", "b=c", "d")
    assert known_signs(names, (), ()) == {}
    assert known_signs(names, ("a",), ("b=c=+1", "d=1", "a=-1")) == {"a": -1, "b=c": 1, "d": 1}
    for bad in ("=-1", "a=", "a=-", "a=-1.0"):
        with pytest.raises(ValueError, match="--sign"):
            known_signs(names, (), (bad,))


@pytest.mark.slow
@pytest.mark.parametrize("real", [False, True])
def test_a_first_look_at_a_table_ends(real, tmp_path, capsys):
    source = ICU_DATA / "icu_antibiotics_mimic4_demo_24h.csv"
    if real and not source.is_file():
        pytest.skip(f"needs {source}, which is not part of the repository")
    table = source if real else write(tmp_path / "table.csv", icu_stays(250))
    assert main(["explain", str(table), *TWO, "--quick", "--out", str(tmp_path / "here")]) == 0
    result = Result.read(tmp_path / "here" / "result.json")
    assert result.headline[0].startswith(result.verdict.capitalize())
    assert f"most frequent action {result.accuracy.majority:.3f}" in " ".join(capsys.readouterr().out.split())


def test_options_of_values_are_taken_by_the_command_line(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr("irl.commands.explain.explain", lambda frame, config, out: asked.append(config.options))
    path = write(tmp_path / "t.csv", stays(*[4] * 8))
    options = "--actions 0 1 2 --as-written --missing-values -999 unknown --valid x 0.1 200 y -5 inf --max-steps 9"
    assert main(["explain", str(path), *options.split(), "--drop-bad-patients"]) == 0
    (how,) = asked
    assert (how.actions, how.as_written, how.missing_values) == (("0", "1", "2"), True, ("-999", "unknown"))
    assert how.ranges == {"x": (0.1, 200), "y": (-5, float("inf"))}
    assert (how.max_steps, how.drop_bad_patients) == (9, True)


def test_what_would_be_refused_late_is_refused_before_anything_is_fitted(monkeypatch, tmp_path, capsys):
    def fitted(*_: object) -> None:
        raise AssertionError("something was fitted")

    monkeypatch.setattr("irl.whole_run.fit", fitted)
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "t.csv", stays(*[4] * 3))
    assert "3 patients are too few: weights are learnt from at least two" in refused(capsys, "explain", path)
    wide = stays(*[4] * 9).assign(**{f"x{j}": "1.5" for j in range(250)})
    wide.loc[3, "x7"] = "2.5"
    message = refused(capsys, "explain", write(tmp_path / "wide.csv", wide))
    assert message.startswith("252 outcomes would be weighed, since --outcomes names none; at most 100 can be: name ")
    named = [f"x{j}" for j in range(101)]
    assert "101 outcomes are named by --outcomes; at most 100" in refused(
        capsys, "explain", tmp_path / "wide.csv", "--outcomes", *named
    )
    with pytest.raises(ValueError, match=r"^252 outcomes would be weighed, since outcomes names none"):
        irl.explain(wide, progress=False)
    assert "--valid: 'x' is given two ranges" in refused(
        capsys, "explain", path, *["--valid", "x", "0", "1", "x", "0", "2"]
    )
