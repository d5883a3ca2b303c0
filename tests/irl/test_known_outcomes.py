"""Runs that weigh the actions themselves: what is planned, paid for, told and refused."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from small_tables import COLUMNS
from tiny_run import icu_stays, tiny_explain, tiny_fit

from cirl_gym.data.features import FeatureMap
from cirl_gym.outcome_models.known import KnowingModel
from cirl_gym.tables.weighed import chosen_outcomes, known_signs
from cirl_gym.wrappers.learned_reward import LearnedReward
from irl.commands import explain as commands
from irl.commands.diagnose import command as diagnose_command
from irl.commands.options import DiagnoseOptions
from irl.max_margin.loop import phi_along
from irl.result.result import Result
from irl.result.sentences import expectation_sentences, per, seen_sentences
from irl.run import Run
from irl.settings import ExplainConfig, FitConfig

FEATURES = ("temperature", "wbc", "lactate")
OUTCOMES = ("Given(1)", "wbc", "Switched()")


class TestChoice:
    def test_they_are_chosen_and_have_signs_like_others(self) -> None:
        config = ExplainConfig(COLUMNS, outcomes=("x", "Given( '1' )", "Switched( )"), signs={"Given('1')": -1})
        assert (config.outcomes, dict(config.signs)) == (("x", "Given(1)", "Switched()"), {"Given(1)": -1})
        assert known_signs(('Given("drug=1")',), (), ("Given('drug=1')=-1",)) == {'Given("drug=1")': -1}
        assert chosen_outcomes(COLUMNS, ("Given(1)",)) == ("Given(1)",)

    def test_one_outcome_is_enough_where_habit_stands_beside_it(self) -> None:
        with_habit = FitConfig(habit=("previous",))
        assert ExplainConfig(COLUMNS, outcomes=("x",), fit=with_habit).outcomes == ("x",)
        with pytest.raises(
            ValueError, match=r"needs two outcomes, got x; name more by --outcomes, or .*--habit previous"
        ):
            ExplainConfig(COLUMNS, outcomes=("x",), fit=FitConfig(habit=()))
        # Given or Switched beside an outcome are two.
        assert len(ExplainConfig(COLUMNS, outcomes=("x", "Switched()"), fit=FitConfig(habit=())).outcomes) == 2

    def test_an_action_that_is_not_there_is_refused_by_name(self, tmp_path) -> None:
        config = tiny_explain(icu_stays(20), FEATURES, outcomes=("wbc", "Given(2)"))
        with pytest.raises(ValueError, match=r"outcome 'Given\(2\)': there is no action '2'; the actions are 0, 1"):
            commands.explain(icu_stays(20), config, tmp_path)


def test_what_is_said_of_them() -> None:
    phi = FeatureMap(OUTCOMES, np.zeros(3), np.array([1.0, 5, 1]), (*FEATURES, "Given(1)", "Switched()"))
    assert [per(phi, i) for i in range(3)] == ["per step with the action", "per 5 units", "per switch"]
    # They are not observed, and without noise nothing is left out.
    assert seen_sentences(phi) == [
        "Of 3 observed features 1 are weighed as outcomes; the others are only seen and predicted."
    ]
    assert expectation_sentences(phi, np.array([1.0, 1, 1, 0, 0])) == []
    alone = FeatureMap(("Switched()",), np.zeros(1), np.ones(1), ("wbc", "Switched()"))
    assert seen_sentences(alone) == ["None of the 1 observed features is weighed: they are only seen and predicted."]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    """Of synthetic stays."""
    folder = tmp_path_factory.mktemp("run")
    config = tiny_explain(icu_stays(30), FEATURES, outcomes=OUTCOMES, signs={"wbc": -1}, fit=tiny_fit(gamma=0.5))
    commands.explain(icu_stays(30), config, folder)
    return Run(folder)


def test_a_run_foresees_them_exactly(run) -> None:
    assert isinstance(run.model, KnowingModel)
    assert run.train.features == run.test.features == (*FEATURES, "Given(1)", "Switched()")
    phi = run.reward.feature_map
    assert (phi.features, phi.low[[0, 2]].tolist(), phi.high[[0, 2]].tolist()) == (OUTCOMES, [0, 0], [1, 1])
    test = run.test
    foreseen, happened = phi_along(run.model, phi, test)[test.mask], phi(test.next_obs)[test.mask]
    np.testing.assert_array_equal(foreseen[:, [0, 2]], happened[:, [0, 2]])
    actions, lengths = test.actions, test.lengths
    assert happened[:, 0].sum() == sum(row[:n].sum() for row, n in zip(actions, lengths, strict=True))
    assert happened[:, 2].sum() == sum((np.diff(row[:n]) != 0).sum() for row, n in zip(actions, lengths, strict=True))
    # Of all plans of one step that is what they promise; of more, no more than their discounted number.
    last, w = run.agent.horizon - 1, np.tile(run.reward.weights, (len(test), 1))
    one = run.agent.planned_psi(last, run.model.start(test.start), w)
    assert one[..., 0].tolist() == [[0, 1]] * len(test)
    assert not one[..., 2].any(), "at the first decision nothing is switched"
    whole = run.agent.planned_psi(0, run.model.start(test.start), w)
    assert whole[..., [0, 2]].max() < 2


def test_a_run_tells_and_pays_for_them(run) -> None:
    result = Result.read(run.folder / "result.json")
    pairs = [(rate.one_more, rate.outcome) for rate in result.exchange_rates]
    assert pairs == [("Given(1)", "wbc"), ("Given(1)", "Switched()"), ("Switched()", "wbc")]
    assert "Exchange rates" in (run.folder / "report.html").read_text()
    assert result.table is not None
    env = gym.make("CIRLCounterfactual-v0", run=str(run.folder), end="never")
    paid = LearnedReward(gym.make("CIRLCounterfactual-v0", run=str(run.folder), end="never"), str(run.folder))
    many = gym.make_vec(
        "CIRLCounterfactual-v0", num_envs=2, vectorization_mode="vector_entry_point", run=str(run.folder), end="never"
    )
    env.reset(seed=3), paid.reset(seed=3), many.reset(seed=3)
    for action, known in ((1, (1, 0)), (1, (1, 0)), (0, (0, 1)), (1, (1, 1))):
        obs, reward, _, _, info = env.step(action)
        assert obs[3:5].tolist() == info["phi"][[0, 2]].tolist() == list(known)
        assert reward == pytest.approx(float(run.reward.weights @ info["phi"]), abs=1e-12)
        assert paid.step(action)[1] == pytest.approx(reward, abs=1e-9)
        seen, rewards, _, _, infos = many.step(np.array([action, 0]))
        assert (rewards[0], infos["phi"][0].tolist(), seen[0].tolist()) == (reward, info["phi"].tolist(), obs.tolist())


def test_a_run_is_diagnosed(run, tmp_path) -> None:
    found = diagnose_command(DiagnoseOptions(run.folder, tmp_path, patients=4, steps=2))
    assert found.outcomes == OUTCOMES
    assert [error.scaled[i] for error in found.factual.model for i in (0, 2)] == [0.0] * 4
    assert set(found.probes) == {"state"}


def test_one_outcome_alone_goes_through_every_stage(tmp_path) -> None:
    how = tiny_fit(habit=("previous",))
    result = commands.explain(
        icu_stays(30), tiny_explain(icu_stays(30), FEATURES, outcomes=("wbc",), fit=how), tmp_path
    )
    assert result.features == ("wbc",)
    assert np.abs(result.weights).tolist() == [1]
    assert all(np.abs(one.w).tolist() == [1] for one in result.rounds)
    assert result.exchange_rates == ()
    assert Run(tmp_path).agent.feature_map.features == ("wbc",)
