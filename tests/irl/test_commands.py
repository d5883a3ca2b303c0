"""Whole commands with far too little work: what they write is whole, complete, and the same for the same seed."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import fields, replace
from datetime import date

import gymnasium as gym
import numpy as np
import pytest
from rich.console import Console
from small_tables import ICU_DATA
from tiny_run import icu_stays, make_the_command_line_tiny, tiny_demo, tiny_explain, tiny_fit

from agents.policies.cloning import CloningPolicy
from agents.successor.agent import SuccessorAgent
from agents.successor.training import fit_agent
from cirl_gym.data.batch import Batch
from cirl_gym.data.rules import read_rules
from cirl_gym.outcome_models.masked import with_rules
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.outcome_models.store import load_model
from cirl_gym.tables.files import read_table
from cirl_gym.tables.read import prepare_table
from cirl_gym.worlds.tumour import TumourParameters
from irl import whole_run
from irl.commands import explain as commands
from irl.commands.cli import main
from irl.commands.diagnose import command as diagnose_command
from irl.commands.options import DiagnoseOptions
from irl.pipeline import fit
from irl.report.drawing import imagine
from irl.result.result import Result
from irl.stages import stages
from irl.study import Study

KEYS = {
    *("schema", "features", "weights", "intervals", "identified_set", "mu_expert", "margin", "rounds", "accuracy"),
    *("returns", "model_error", "seconds", "seed", "config", "versions"),
}
"""What the result must have; it may have more."""
MODELS = ("outcome_model.npz", "agent.npz", "cloning.npz", "posterior.npz")
DEMO_FILES = {"result.json", "config.json", "report.html", "batch.npz", "test.npz", "expert.npz", *MODELS}
THREE = ("temperature", "wbc", "lactate")


@pytest.fixture(scope="module")
def explained(tmp_path_factory):
    """Result and folder of an explanation with one sign known, and what it printed."""
    folder, frame, printed = tmp_path_factory.mktemp("explain"), icu_stays(), io.StringIO()
    with contextlib.redirect_stdout(printed):
        signs = {"temperature": -1, "lactate": -1}
        how = tiny_explain(frame, THREE, signs=signs, fit=tiny_fit(folds=2, habit=("previous",)))
        result = commands.explain(frame, how, folder)
    return result, folder, printed.getvalue()


def content(folder):
    """The result without what a clock says."""
    found = json.loads((folder / "result.json").read_text())
    found.pop("seconds")
    for entry in found["rounds"]:
        entry.pop("seconds")
    return found


def test_a_demo_writes_every_file_and_the_result_has_every_key(demo_run):
    assert {path.name for path in demo_run.iterdir()} == DEMO_FILES
    page = (demo_run / "report.html").read_text()
    assert page.rstrip().endswith("</html>")
    assert "side_effects" in page.replace("<wbr>", "")
    found = json.loads((demo_run / "result.json").read_text())
    assert Result.read(demo_run / "result.json").as_dict() == found
    assert set(found) >= KEYS
    assert found["features"] == ["tumour", "side_effects"]
    assert sum(map(abs, found["weights"])) == pytest.approx(1, abs=1e-9)
    for name, weight in zip(found["features"], found["weights"], strict=True):
        low, high = found["intervals"][name]
        assert low <= weight <= high <= 0
    keys = {"k", "w", "mu", "lambda", "margin", "seconds", "agreement", "changed"}
    assert [set(entry) for entry in found["rounds"]] == [keys] * len(found["rounds"])
    assert set(found["accuracy"]) == {"cirl", "cloning", "majority", "repeat_last_action", "ceiling"}
    assert all(0 <= value <= 1 for value in found["accuracy"].values())
    assert set(found["returns"]) == {"expert", "cirl", "cloning", "random", "never", "always"}
    assert found["model_error"]["factual"] > 0
    assert found["model_error"]["counterfactual"] > 0
    assert list(found["seconds"]) == [
        *("expert", "batch", "outcome model", "candidate policies", "max-margin loop", "weights"),
        *("quality control", "behaviour cloning", "evaluation"),
    ]
    assert found["seed"] == 0
    assert found["true_weights"] == pytest.approx([-0.3, -0.7])
    episodes = found["episodes"]
    assert (episodes["train"], episodes["validation"], episodes["test"]) == (72, 8, 20)
    config = json.loads((demo_run / "config.json").read_text())
    assert config["command"] == "demo"
    assert date.fromisoformat(config.pop("date")) <= date.today()  # the result has none: same seed, same bytes
    assert {name.name for name in fields(tiny_demo())} | {"command"} == set(config)
    assert config["parameters"]["horizon"] == 6
    assert config["fit"]["agent"]["gradient_steps"] == 5
    assert found["config"] == config | {"ranges": {"tumour": [0.0, 50.0], "side_effects": [0.0, 15.0]}}


def test_every_model_loads_and_acts(demo_run):
    batch = Batch.load(demo_run / "batch.npz")
    assert len(batch) == 72
    world = load_model(demo_run / "outcome_model.npz")
    agent = SuccessorAgent.load(demo_run / "agent.npz", world)
    expert = SuccessorAgent.load(demo_run / "expert.npz", OracleModel(TumourParameters(horizon=6)))
    cloning = CloningPolicy.load(demo_run / "cloning.npz", np.random.default_rng(0))
    first = np.concatenate([batch.start, np.zeros((len(batch), 2))], axis=1).astype(np.float32)
    for policy in (agent.policy([-0.3, -0.7]), expert.policy([-0.3, -0.7]), cloning):
        actions, _ = policy.predict(first, deterministic=True)
        assert actions.shape == (72,)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(demo_run, tmp_path):
    commands.demo(tiny_demo(), tmp_path / "again")
    commands.demo(tiny_demo(seed=1), tmp_path / "other")
    assert content(tmp_path / "again") == content(demo_run)
    other = content(tmp_path / "other")
    assert other["weights"] != content(demo_run)["weights"]
    assert other["mu_expert"] != content(demo_run)["mu_expert"]
    for name in ("config.json", "batch.npz", "test.npz", "expert.npz", *MODELS):
        assert (tmp_path / "again" / name).read_bytes() == (demo_run / name).read_bytes(), name
        assert (tmp_path / "other" / name).read_bytes() != (demo_run / name).read_bytes(), name


@pytest.mark.filterwarnings("ignore:action '0' is never taken")  # by experts who only mind the tumour, in few episodes
@pytest.mark.parametrize("weights", [(-1.0, 0.0), (0.0, -1.0), (0.5, -0.5)])
def test_corner_and_mixed_weights_run_to_the_end(weights, tmp_path):
    result = commands.demo(tiny_demo(weights=weights), tmp_path)
    assert result.true_weights == pytest.approx(weights)
    assert sum(map(abs, result.estimates["posterior"])) == pytest.approx(1)
    assert Result.read(tmp_path / "result.json") == result


def test_patients_who_outlive_all_of_the_batch_are_no_trouble(tmp_path):
    # Untreated tumours grow so fast here that no episode of an expert who never treats reaches the horizon.
    parameters = TumourParameters(horizon=20, tumour_drift=8.0, tumour_start_sd=1.0)
    result = commands.demo(tiny_demo(weights=(0.0, -1.0), parameters=parameters), tmp_path)
    assert Batch.load(tmp_path / "batch.npz").horizon < 20
    assert SuccessorAgent.load(tmp_path / "agent.npz", load_model(tmp_path / "outcome_model.npz")).horizon == 20
    assert result.returns is not None


def test_an_explanation_keeps_signs_reports_all_and_accounts_for_every_row(explained):
    result, folder, shown = explained
    assert {path.name for path in folder.iterdir()} == DEMO_FILES - {"expert.npz"} | {"foreseen.npz"}
    assert Result.read(folder / "result.json") == result
    assert set(json.loads((folder / "result.json").read_text())) >= KEYS
    assert result.features == THREE
    for name in ("temperature", "lactate"):
        assert result.intervals[name][0] <= result.intervals[name][1] <= 0
        assert result.identified_set.ranges[name][1] <= 1e-9
        assert result.weights[THREE.index(name)] <= 0
    met = result.accuracy
    assert all(0 <= value <= 1 for value in (met.cirl, met.cloning, met.majority, met.repeat_last_action))
    assert met.ceiling is None
    assert result.returns is None
    assert result.true_weights is None
    assert result.model_error.counterfactual is None
    assert result.model_error.factual > 0
    assert shown.startswith("columns: id stay_id, group subject_id, time bin, action antibiotic, 3 features:")
    assert shown.index("rows read") < shown.index(f"\n{result.verdict.capitalize()}: ") < shown.index("Decisions met")
    frame = icu_stays()
    assert result.table is not None
    assert result.table["rows"]["read"] == len(frame)
    assert sum(value for name, value in result.table["rows"].items() if name != "read") == len(frame)
    config = json.loads((folder / "config.json").read_text())
    assert config["columns"]["group"] == "subject_id"
    assert config["signs"] == {"temperature": -1, "lactate": -1}
    # No patient is in two parts of the split that an explanation makes for its seed; its result says that it is this.
    table = prepare_table(frame, tiny_explain(frame, THREE).columns, rng=np.random.default_rng([0, 0]))
    parts = (table.train, table.validation, table.test)
    assert (result.episodes.train, result.episodes.validation, result.episodes.test) == tuple(map(len, parts))
    patients = [set(batch.groups) for batch in parts]
    assert sum(map(len, patients)) == len(set.union(*patients)) == frame["subject_id"].nunique()
    assert sum(map(len, parts)) == frame["stay_id"].nunique()


def test_a_new_run_takes_away_all_that_an_older_one_left(tmp_path, monkeypatch):
    for name in (*DEMO_FILES, "baselines.json", "diagnostics.json", "diagnostics.html", "notes.txt"):
        (tmp_path / name).write_text("of an older run")
    monkeypatch.setattr(whole_run, "simulate", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        commands.demo(tiny_demo(seed=5), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "notes.txt"}
    assert json.loads((tmp_path / "config.json").read_text())["seed"] == 5


def test_a_table_that_cannot_be_used_takes_nothing_away(demo_run, tmp_path):
    (tmp_path / "result.json").write_bytes((demo_run / "result.json").read_bytes())
    frame = icu_stays()
    config = tiny_explain(frame, THREE)
    frame.loc[5, "wbc"] = "high"
    with pytest.raises(ValueError, match="column 'wbc', id '000707', line 5: 'high' is not a number"):
        commands.explain(frame, config, tmp_path)
    assert (tmp_path / "result.json").exists()


def test_the_last_thing_written_is_the_result(tmp_path, monkeypatch):
    monkeypatch.setattr("irl.run.write_text", lambda *arguments: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        commands.demo(tiny_demo(), tmp_path)
    assert not (tmp_path / "result.json").exists()
    assert {path.name for path in tmp_path.iterdir()} == DEMO_FILES - {"result.json", "report.html"} | {"unfinished"}


def untreated(obs, lengths, ids):
    """Episodes of (tumour, side effects) in which nobody was treated."""
    obs = np.array(obs, dtype=np.float32)
    actions, none = np.zeros((len(obs), obs.shape[1] - 1), dtype=np.int64), np.zeros(len(obs), dtype=np.bool_)
    return Batch(obs, actions, np.array(lengths), none, ~none, ("tumour", "side_effects"), ("spare", "treat"), ids)


def test_imagined_courses_follow_the_model_by_hand():
    batch = untreated([[[30, 2]] * 3 + [[0, 0]] * 2, [[30, 2]] * 5], [2, 4], ("short", "long"))
    shown = imagine(OracleModel(TumourParameters(horizon=6)), batch, steps=2)
    assert shown.title == "Episode long after 2 steps"
    np.testing.assert_array_equal(shown.observed, batch.obs[1, :3])
    assert shown.actions == ("spare", "spare")
    # Five observations of (30, 2), no dose: the tumour grows by 2.5 and side effects fall to 0; then the mean of five.
    np.testing.assert_allclose(shown.futures["spare"], [[32.5, 0.0], [33.0, 0.0]], atol=1e-4)
    # Treated once, then twice, among the last five.
    np.testing.assert_allclose(shown.futures["treat"], [[30.0, 0.5], [27.5, 1.2]], atol=1e-4)
    batch = untreated([[[49, 2], [49, 2]]], [1], ("near the limit",))
    shown = imagine(OracleModel(TumourParameters(horizon=6)), batch, steps=3)
    assert len(shown.futures["spare"]) == 1, "the tumour is expected at 51.5, beyond the limit of 50"
    assert len(shown.futures["treat"]) == 3
    assert shown.actions == ()


def test_real_rows_are_explained(tmp_path):
    path = ICU_DATA / "icu_antibiotics_mimic4_demo_24h.csv"
    if not path.is_file():
        pytest.skip(f"needs {path}, which is not part of the repository")
    frame = read_table(path)
    how = tiny_fit(folds=2, habit=("previous",))
    result = commands.explain(frame, tiny_explain(frame, THREE, fit=how), tmp_path)
    assert result.headline[0].startswith(result.verdict.capitalize())
    assert result.likelihood.folds == 2
    assert set(result.intervals) == set(result.identified_set.ranges) == set(THREE)
    met = result.accuracy
    assert all(0 < value < 1 for value in (met.cirl, met.cloning, met.majority, met.repeat_last_action))
    assert met.ceiling is None
    said = f"most frequent action {met.majority:.3f}, last action again {met.repeat_last_action:.3f}"
    assert any(said in line for line in result.headline)


def test_both_commands_leave_what_an_environment_can_be_made_of(demo_run, explained):
    for run in (demo_run, explained[1]):
        result = json.loads((run / "result.json").read_text())
        env = gym.make("CIRLCounterfactual-v0", run=run)
        assert env.reset(seed=0)[0] in env.observation_space
        assert env.unwrapped.features == tuple(result["features"])
        np.testing.assert_array_equal(env.unwrapped.weights, result["estimates"]["posterior"])
        ranges = zip(env.unwrapped.feature_map.low, env.unwrapped.feature_map.high, strict=True)
        assert [list(pair) for pair in ranges] == list(result["config"]["ranges"].values())


# --- with rules of what is forbidden ----------------------------------------------------------------------------------

FORBID = ("1 when Above(side_effects, 2)", "0 when After(1) and Above(tumour, 5)")
"""Many decisions are forced by one or the other."""


@pytest.fixture(scope="module")
def ruled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ruled")
    commands.demo(tiny_demo(fit=tiny_fit(forbid=FORBID, windows=(0, 3))), folder)
    return folder


def test_the_result_of_a_run_with_rules(ruled, tmp_path):
    result, train = Result.read(ruled / "result.json"), Batch.load(ruled / "batch.npz")
    left = train.allowed[train.mask].sum(axis=1)
    assert result.allowed.rules == FORBID
    assert (result.allowed.decisions, result.allowed.forced) == (train.n_steps, (left == 1).sum())
    assert 0 < result.allowed.forced < train.n_steps
    assert result.allowed.sentence in result.headline
    assert result.config["fit"]["forbid"] == list(FORBID)
    assert "1 when Above(side_effects, 2); 0 when After(1)" in (ruled / "report.html").read_text().replace("<wbr>", "")
    # The recovered policy obeys.
    test = Batch.load(ruled / "test.npz")
    model = with_rules(load_model(ruled / "outcome_model.npz"), read_rules(FORBID, test.features, test.action_names))
    q = SuccessorAgent.load(ruled / "agent.npz", model).q(test, result.weights)
    np.testing.assert_array_equal(np.isneginf(q[test.mask]), ~test.allowed[test.mask])
    # Experts of kappa 100 are far better than chance; were one decision impossible to them, this would be -30 at least.
    assert result.likelihood.chance.mean < result.likelihood.expert.mean < 0
    assert result.likelihood.chance.mean > -np.log(2) * 0.99  # forced decisions are no tosses
    diagnose_command(DiagnoseOptions(ruled, tmp_path, patients=20))
    assert (tmp_path / "diagnostics.json").is_file()
    # Batch and rules belong together.
    config, signs = tiny_fit().whole(6), np.array([-1.0, -1.0])
    with stages(7, quiet=True) as watch, pytest.raises(ValueError, match="belong together"):
        fit(Study(train, train, None, signs, config, 0, watch))
    with pytest.raises(ValueError, match="belong together"):
        fit_agent(train)
    agent = fit_agent(train, config=tiny_fit().agent, forbid=FORBID)
    assert np.isneginf(agent.q(train, [-0.5, -0.5])[train.mask]).any()


def test_the_command_line_with_rules_leaves_the_same_bytes(ruled, tmp_path, monkeypatch, capsys):
    make_the_command_line_tiny(monkeypatch)
    assert main(["demo", "--quick", "--out", str(tmp_path), "--windows", "0", "3", "--forbid", *FORBID]) == 0
    assert "Forbidden: 1 when Above(side_effects, 2)" in " ".join(capsys.readouterr().out.split())
    for name in ("config.json", "batch.npz", "agent.npz", "posterior.npz", "expert.npz"):
        assert (tmp_path / name).read_bytes() == (ruled / name).read_bytes()


def test_members_and_discount_factors_have_the_rules(tmp_path):
    config = tiny_fit(forbid=FORBID, model="crn", choose_gamma=(0.5, 0.9), rounds=1)
    config = replace(config, outcome=replace(config.outcome, members=2))
    result = commands.demo(tiny_demo(fit=config), tmp_path)
    assert len(result.members) == 2
    assert result.gammas is not None


def test_a_table_with_rules(tmp_path):
    frame = icu_stays()
    columns = tiny_explain(frame, THREE).columns
    train = prepare_table(frame, columns, rng=np.random.default_rng([0, 0])).train
    usual = train.action_names[int(np.bincount(train.actions[train.mask]).argmax())]
    broken, holds = (tiny_fit(forbid=(f"{usual} when Above(lactate, {most})",)) for most in (0, 1000))
    with pytest.raises(ValueError, match=r"episode '\d+', step \d+: action '.*' was taken although it is forbidden"):
        commands.explain(frame, tiny_explain(frame, THREE, fit=broken), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    result = commands.explain(frame, tiny_explain(frame, THREE, fit=holds), tmp_path / "run")
    assert result.allowed.limited == 0
    assert len(Batch.load(tmp_path / "run" / "test.npz").allowed) == result.episodes.test


def test_no_stage_is_counted_beyond_the_last():
    stream = io.StringIO()
    with stages(1, console=Console(file=stream, width=80)) as run:
        for name in ("planned", "not planned"):
            with run.stage(name):
                pass
    begun = [line for line in stream.getvalue().splitlines() if "done" not in line]
    assert begun == ["[1/1] planned", "[2/2] not planned"]
