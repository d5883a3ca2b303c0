"""Whole runs in which not every action was always allowed: what they say, leave and refuse."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from tiny_run import icu_stays, make_the_command_line_tiny, tiny_demo, tiny_explain, tiny_fit

from agents.successor.agent import SuccessorAgent
from agents.successor.training import fit_agent
from cirl_gym.data.batch import Batch
from cirl_gym.data.rules import read_rules
from cirl_gym.outcome_models.masked import with_rules
from cirl_gym.outcome_models.store import load_model
from irl.commands import explain as commands
from irl.commands.cli import main
from irl.commands.diagnose import command as diagnose_command
from irl.commands.options import DiagnoseOptions
from irl.pipeline import Study, fit
from irl.result.result import Result
from irl.stages import stages

FORBID = ("1 when Above(side_effects, 2)", "0 when After(1) and Above(tumour, 5)")
"""Many decisions are forced by one or the other."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    commands.demo(tiny_demo(fit=tiny_fit(forbid=FORBID, windows=(0, 3))), folder)
    return folder


def test_the_result_says_what_was_forbidden(run):
    result, train = Result.read(run / "result.json"), Batch.load(run / "batch.npz")
    assert result.allowed is not None
    assert result.allowed.rules == FORBID
    assert train.allowed is not None
    left = train.allowed[train.mask].sum(axis=1)
    assert (result.allowed.decisions, result.allowed.forced) == (train.n_steps, (left == 1).sum())
    assert 0 < result.allowed.forced < train.n_steps
    assert result.allowed.sentence in result.headline
    assert result.config["fit"]["forbid"] == list(FORBID)
    assert "1 when Above(side_effects, 2); 0 when After(1)" in (run / "report.html").read_text()


def test_experts_and_the_recovered_policy_obey(run):
    test = Batch.load(run / "test.npz")
    assert test.allowed is not None
    rules = read_rules(FORBID, test.features, test.action_names)
    model = with_rules(load_model(run / "outcome_model.npz"), rules)
    agent = SuccessorAgent.load(run / "agent.npz", model)
    q = agent.q(test, Result.read(run / "result.json").weights)
    np.testing.assert_array_equal(np.isneginf(q[test.mask]), ~test.allowed[test.mask])


def test_what_is_known_of_the_experts_has_the_masks(run):
    likely = Result.read(run / "result.json").likelihood
    assert likely is not None
    assert likely.expert is not None
    # Experts of kappa 100 are far better than chance; were one decision impossible to them, this would be -30 at least.
    assert likely.chance.mean < likely.expert.mean < 0
    test = Batch.load(run / "test.npz")
    assert test.allowed is not None
    assert likely.chance.mean > -np.log(2) * 0.99  # forced decisions are no tosses


def test_the_folder_can_be_diagnosed(run, tmp_path):
    found = diagnose_command(DiagnoseOptions(run, tmp_path, patients=20))
    assert (tmp_path / "diagnostics.json").is_file()
    assert found is not None


def test_the_same_seed_gives_the_same_bytes(run, tmp_path):
    commands.demo(tiny_demo(fit=tiny_fit(forbid=FORBID, windows=(0, 3))), tmp_path)
    for name in ("batch.npz", "agent.npz", "posterior.npz", "expert.npz"):
        assert (tmp_path / name).read_bytes() == (run / name).read_bytes()


def test_members_and_discount_factors_have_the_rules(tmp_path):
    config = tiny_fit(forbid=FORBID, model="crn", choose_gamma=(0.5, 0.9), rounds=1)
    config = replace(config, outcome=replace(config.outcome, members=2))
    result = commands.demo(tiny_demo(fit=config), tmp_path)
    assert len(result.members) == 2
    assert result.gammas is not None


# --- a table --------------------------------------------------------------------------------------


FEATURES = ("temperature", "wbc", "lactate")


def usual_action(frame):
    """The name of the most frequent action."""
    columns = tiny_explain(frame, FEATURES).columns
    train = commands.prepare_table(frame, columns, rng=np.random.default_rng([0, 0])).train
    return train.action_names[int(np.bincount(train.actions[train.mask]).argmax())]


def test_a_table_that_breaks_a_rule_is_refused_by_episode(tmp_path):
    frame = icu_stays()
    name = usual_action(frame)
    config = tiny_explain(frame, FEATURES, fit=tiny_fit(forbid=(f"{name} when Above(lactate, 0)",)))
    with pytest.raises(ValueError, match=r"episode '\d+', step \d+: action '.*' was taken although it is forbidden"):
        commands.explain(frame, config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_table_with_a_rule_that_holds(tmp_path):
    frame = icu_stays()
    name = usual_action(frame)
    forbid = (f"{name} when Above(lactate, 1000)",)
    result = commands.explain(frame, tiny_explain(frame, FEATURES, fit=tiny_fit(forbid=forbid)), tmp_path / "ruled")
    assert result.allowed is not None
    assert result.allowed.limited == 0
    assert len(Batch.load(tmp_path / "ruled" / "test.npz").allowed) == result.episodes.test


# --- the command line ------------------------------------------------------------------------------


def test_the_option(tmp_path, monkeypatch, capsys):
    make_the_command_line_tiny(monkeypatch)
    out = tmp_path / "run"
    assert main(["demo", "--quick", "--out", str(out), "--forbid", *FORBID]) == 0
    assert json.loads((out / "config.json").read_text())["fit"]["forbid"] == list(FORBID)
    assert "Forbidden: 1 when Above(side_effects, 2)" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2 when Above(tumour, 1)", "there is no action '2'; the actions are 0, 1"),
        ("1 when Above(weight, 1)", "'weight' is not a feature; the features are tumour, side_effects"),
        ("1 if Above(tumour, 1)", "neither when nor unless"),
    ],
)
def test_a_wrong_rule_is_one_line(text, said, tmp_path, monkeypatch, capsys):
    make_the_command_line_tiny(monkeypatch)
    assert main(["demo", "--quick", "--out", str(tmp_path / "run"), "--forbid", text]) == 2
    error = capsys.readouterr().err
    assert error.startswith("cirl: error: rule ")
    assert said in error
    assert error.count("\n") == 1


# --- in Python ---------------------------------------------------------------------------------------


def test_batch_and_rules_belong_together(run):
    train = Batch.load(run / "batch.npz")
    config, signs = tiny_fit().whole(6), np.array([-1.0, -1.0])
    with stages(7, quiet=True) as watch, pytest.raises(ValueError, match="belong together"):
        fit(Study(train, train, None, signs, config, 0, watch))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="belong together"):
        fit_agent(train)
    agent = fit_agent(train, config=tiny_fit().agent, forbid=FORBID)
    assert np.isneginf(agent.q(train, [-0.5, -0.5])[train.mask]).any()
