"""Outcomes of the actions themselves: their values, how they are written, and that no model learns them."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st
from outcome_batches import MODELS, linear_system, random_model
from small_batches import cut_off

from cirl_gym import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.known import known_in, known_names, with_known, without
from cirl_gym.data.outcome_model import CounterfactualWorld, fold, foresee
from cirl_gym.data.outcomes import Column, Given, Switched, read_outcome
from cirl_gym.data.rollout import rollout
from cirl_gym.data.rules import read_rules
from cirl_gym.envs.counterfactual import CounterfactualEnv
from cirl_gym.outcome_models.fitting import OutcomeModelConfig, fit_outcome_model
from cirl_gym.outcome_models.known import KnowingModel, knowing
from cirl_gym.outcome_models.masked import with_rules
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.outcome_models.store import load_model, save_model
from cirl_gym.wrappers.learned_reward import LearnedReward, LinearReward

NAMES = ("no", "low", "high")
TEXTS = ("Given(high)", "Switched()")


def three(lengths=(3, 2)) -> Batch:
    """Two episodes of actions high, high, no and low, high; the second ends a step earlier."""
    return cut_off(np.zeros((2, 4, 2)), np.array([[2, 2, 0], [1, 2, 0]]), ("x", "y"), NAMES, np.array(lengths))


class TestValues:
    def test_by_hand_in_every_row_behind_the_others_and_nothing_on_padding(self) -> None:
        wide = with_known(three(), TEXTS)
        assert wide.features == ("x", "y", *TEXTS)
        assert wide.obs[..., 2].tolist() == [[0, 1, 1, 0], [0, 0, 1, 0]]
        assert wide.obs[..., 3].tolist() == [[0, 0, 0, 1], [0, 0, 1, 0]], "the first decision switches from nothing"
        phi = FeatureMap.from_batch(wide, ("Switched()", "x", "Given(high)"))
        assert (phi.low.tolist(), phi.high.tolist()) == ([0, 0, 0], [1, 1, 1])
        assert phi(wide.next_obs)[0].tolist() == [[0, 0, 1], [0, 0, 1], [1, 0, 0]]
        assert without(wide, known_in(wide)) == three()

    def test_a_range_is_from_0_to_1_where_the_action_is_never_and_always_taken(self) -> None:
        batch = replace(three(), actions=np.full((2, 3), 1))
        wide = with_known(batch, ("Given(no)", "Given(low)", "Switched()"))
        phi = FeatureMap.from_batch(wide, wide.features[2:])
        assert (phi.low.tolist(), phi.high.tolist()) == ([0, 0, 0], [1, 1, 1])

    def test_whatever_the_order_of_episodes_and_padding_and_only_once(self) -> None:
        batch, turned = three(), np.array([1, 0])
        assert with_known(batch.take(turned), TEXTS) == with_known(batch, TEXTS).take(turned)
        assert with_known(batch.padded(9), TEXTS) == with_known(batch, TEXTS).padded(9)
        assert with_known(with_known(batch, TEXTS), ("Switched()",)) == with_known(batch, TEXTS)
        assert with_known(batch, ()) is batch
        assert known_names(("x", "Given( high )", "Given('high')", "Switched()"), ("x", "Switched()")) == (TEXTS[0],)

    def test_of_several_columns_one_is_enough(self) -> None:
        batch = replace(three(), action_names=("drug=0, fluid=0", "drug=1, fluid=0", "drug=1, fluid=1"))
        texts = ("Given('drug=1')", "Given('drug=1, fluid=1')")
        assert with_known(batch, texts).obs[0, :, 2:].tolist() == [[0, 0], [1, 1], [1, 1], [0, 0]]
        assert with_known(batch, texts).obs[1, :3, 2:].tolist() == [[0, 0], [1, 0], [1, 1]]

    def test_a_column_of_the_table_that_is_called_so_and_is_not_so_is_a_column(self) -> None:
        obs = np.arange(8.0).reshape(1, 4, 2)
        batch = cut_off(obs, np.array([[0, 1, 0]]), ("Given(other)", "Given(low)"), NAMES)
        assert known_in(batch) == {}
        assert known_in(replace(with_known(three(), TEXTS), actions=three().actions[::-1])) == {}


class TestTexts:
    @given(st.text(min_size=1, max_size=8) | st.sampled_from(["0", "1", "01", "1.5", "drug=1, fluid=0", "None", "²"]))
    def test_a_name_reads_as_what_it_names(self, action) -> None:
        assert read_outcome(Given(action).name, ()) == Given(action)
        assert read_outcome(Given(action).name, (Given(action).name,)) == Given(action)

    def test_there_is_one_spelling(self) -> None:
        spelt = ("Given(1)", "Given( '1' )", "Given('drug a')", "Given(drug)", "Switched( )", "Given(None)")
        names = ["Given(1)", "Given(1)", 'Given("drug a")', "Given(drug)", "Switched()", 'Given("None")']
        assert [read_outcome(text, ()).name for text in spelt] == names
        assert read_outcome("Given(a b)", ("Given(a b)",)) == Column("Given(a b)")
        assert (Given("1").unit, Switched().unit) == ("step with the action", "switch")

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: with_known(three(), ("Given(none)",)), "no action 'none'; the actions are no, low, high"),
            (lambda: with_known(three(), ("Given('a=1')",)), r"outcome 'Given\(\"a=1\"\)': there is no action 'a=1'"),
            (lambda: with_known(three(), ("x",)), r"'x' is no Given\(action\) or Switched\(\)"),
            (lambda: read_outcome("Given()", ()), "Given takes 1 arguments, not 0"),
            (lambda: read_outcome("Switched(x)", ()), "Switched takes 0 arguments, not 1"),
            (lambda: read_outcome("Given(a=1)", ()), "nothing more"),
            (lambda: read_outcome("Given(f(1))", ()), "action must be an action's name, in quotes"),
            (
                lambda: FeatureMap(("Given(1)",), np.zeros(1), np.ones(1), ("x",)),
                r"needs 'Given\(1\)', which is not among .*; cirl_gym.data.known.with_known adds it",
            ),
        ],
    )
    def test_what_is_not_possible_is_named(self, make, message) -> None:
        with pytest.raises(ValueError, match=message):
            make()


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_knows_them_exactly_and_predicts_the_rest_as_it_did(kind, tmp_path) -> None:
    batch, plain = linear_system(6, seed=1), random_model(kind)
    wide = with_known(batch, TEXTS)
    model = knowing(plain, wide.features, wide.action_names)
    states, own = model.encode(wide), plain.encode(batch)
    np.testing.assert_allclose(states, fold(model, wide), atol=1e-5)
    assert not states[~wide.seen].any()
    expected = model.predict(states)
    np.testing.assert_array_equal(expected[..., :2], plain.predict(own))
    assert (expected[..., 2] == [0, 0, 1]).all()
    taken = np.take_along_axis(expected[:, :-1], batch.actions[..., None, None], axis=2)[:, :, 0]
    np.testing.assert_array_equal(taken[batch.mask][:, 2:], wide.next_obs[batch.mask][:, 2:])
    rows, actions = states[:, 3], np.arange(6) % 3
    outcomes, ends = foresee(model, rows, actions)
    np.testing.assert_array_equal(outcomes[:, 2:], model.predict(rows)[np.arange(6), actions, 2:])
    np.testing.assert_allclose(ends, plain.end_probability(own[:, 3])[np.arange(6), actions], atol=1e-6)
    # Without noise, whatever is drawn, and whatever is said to have been observed of them.
    assert model.noise_scale.tolist() == [*plain.noise_scale, 0, 0]
    assert model.noise(np.ones((5, 4)))[:, 2:].tolist() == [[0, 0]] * 5
    assert (model.bounds[0][2:].tolist(), model.bounds[1][2:].tolist()) == ([0, 0], [1, 1])
    played = rollout(CounterfactualWorld(model, wide.start, 6, outcome="sampled"), Turns(), 6, np.random.default_rng(0))
    assert known_in(replace(played, action_names=NAMES)) == known_in(wide)
    save_model(model, tmp_path / "model.npz")
    again = load_model(tmp_path / "model.npz")
    assert again.features == wide.features
    np.testing.assert_array_equal(again.predict(again.encode(wide)), expected)


class Turns:
    """Actions 0, 2, 2, 1, 0, 2, .. whatever is seen."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        t = 0 if state is None else int(state[0][0])
        return np.full(len(observation), (0, 2, 2, 1)[t % 4]), (np.full(len(observation), t + 1),)


def test_who_does_not_look_back_needs_no_more_state() -> None:
    plain, batch = random_model("ar"), with_known(linear_system(3, seed=0), ("Given(low)",))
    model = knowing(plain, batch.features, batch.action_names)
    assert model.encode(batch).shape == plain.encode(without(batch, [2])).shape
    assert knowing(plain, ("x", "y"), NAMES) is plain
    with pytest.raises(ValueError, match=r"the model must predict \('x', 'z'\)"):
        knowing(plain, ("x", "z", "Switched()"), NAMES)
    with pytest.raises(ValueError, match="there is no action 'none'; the actions are no, low, high"):
        knowing(plain, ("x", "y", "Given(none)"), NAMES)
    rules = read_rules(["low when Above(x, 1)"], ("x", "y"), NAMES)
    with pytest.raises(ValueError, match="rules must stand outside"):
        knowing(with_rules(plain, rules), batch.features, NAMES)


@pytest.mark.parametrize("members", [1, 2])
def test_a_fit_is_what_it_is_without_them(members) -> None:
    train, validation = linear_system(30, seed=0, noise=0.3), linear_system(10, seed=1, noise=0.3)
    config = replace(OutcomeModelConfig.quick(), members=members, bootstrap=members > 1)
    plain = fit_outcome_model("ar", train, validation, config, np.random.default_rng(0))
    wide = [with_known(batch, TEXTS) for batch in (train, validation)]
    # The order of columns is the batch's own.
    wide = [replace(batch, obs=batch.obs[..., [2, 0, 3, 1]], features=(TEXTS[0], "x", TEXTS[1], "y")) for batch in wide]
    found = fit_outcome_model("ar", *wide, config, np.random.default_rng(0))
    assert found.report == plain.report
    model = found.model.members[1] if members > 1 else found.model
    assert isinstance(model, KnowingModel)
    np.testing.assert_array_equal(
        found.model.predict(found.model.encode(wide[1]))[..., [1, 3]],
        plain.model.predict(plain.model.encode(validation)),
    )


class TestEnvironments:
    PHI = FeatureMap(
        ("tumour", "Given(1)", "Switched()"),
        np.zeros(3),
        np.array([50.0, 1, 1]),
        ("tumour", "side_effects", "Given(1)", "Switched()"),
    )
    KNOWN = ((0, 0, 0), (1, 1, 1), (1, 1, 0), (0, 0, 1), (0, 0, 0))
    """Action, Given(1) and Switched()."""

    @pytest.mark.parametrize("env_id", ["CIRLTumour-v0", "CIRLCounterfactual-v0"])
    def test_pay_for_them_and_are_else_what_they_were(self, env_id) -> None:
        weights = {"weights": (-0.5, 0.2, -0.3)}
        env, plain = gym.make(env_id, feature_map=self.PHI, **weights), gym.make(env_id)
        first, other = env.reset(seed=1)[0], plain.reset(seed=1)[0]
        np.testing.assert_array_equal(np.delete(first, [2, 3]), other)
        for action, given_, switched in self.KNOWN:
            obs, paid, _, _, info = env.step(action)
            np.testing.assert_array_equal(np.delete(obs, [2, 3]), plain.step(action)[0])
            assert (obs[2:4].tolist(), info["phi"][1:].tolist()) == ([given_, switched],) * 2
            assert paid == -0.5 * info["phi"][0] + 0.2 * given_ - 0.3 * switched
            assert env.observation_space.contains(obs)

    def test_after_a_given_history(self) -> None:
        env = gym.make("CIRLTumour-v0", feature_map=self.PHI)
        obs, _ = env.reset(options={"history": ([(30, 2), (31, 1), (30, 1)], [0, 1])})
        assert obs.tolist() == [30, 1, 1, 1, 0, 1]
        assert env.step(1)[4]["phi"][1:].tolist() == [1, 0]
        assert env.unwrapped.weights.tolist() == [-0.3, 0, 0]

    @pytest.mark.parametrize("env_id", ["CIRLTumour-v0", "CIRLCounterfactual-v0"])
    def test_are_drawn_and_pass_gymnasiums_checks(self, env_id) -> None:
        env = gym.make(env_id, feature_map=self.PHI, render_mode="rgb_array")
        check_env(env.unwrapped, skip_render_check=True)
        env.reset(seed=0)
        assert not env.unwrapped.weights[1:].any(), "what nobody weighs weighs nothing"
        env.step(1)
        assert env.render().std() > 1

    def test_what_the_simulator_cannot_show_is_refused(self) -> None:
        for of in (("side_effects", "tumour"), ("tumour", "side_effects", "z"), ("tumour", "side_effects", "Given(2)")):
            phi = FeatureMap(of[-1:], np.zeros(1), np.ones(1), of)
            with pytest.raises(ValueError, match=r"must be of tumour, side_effects and then|no action '2'"):
                gym.make("CIRLTumour-v0", feature_map=phi)

    def test_a_masked_model_keeps_its_rules(self) -> None:
        obs, actions = np.full((2, 4, 2), [30.0, 2.0]), np.zeros((2, 3), dtype=np.int64)
        batch = cut_off(obs, actions, OracleModel().features, ("0", "1"))
        model = with_rules(OracleModel(), read_rules(["1 when Above(side_effects, 1)"], batch.features, ("0", "1")))
        env = CounterfactualEnv(model, batch, feature_map=self.PHI)
        env.reset(seed=0)
        assert env.action_masks().tolist() == [True, False]
        assert (env.features, env.model.features) == (self.PHI.of, self.PHI.of)

    def test_a_learned_reward_weighs_them(self) -> None:
        learned = LinearReward(
            FeatureMap(("Given(1)", "tumour"), np.zeros(2), np.array([1.0, 10])), np.array([0.5, -0.5])
        )
        paid = LearnedReward(gym.make("CIRLTumour-v0", feature_map=self.PHI), learned)
        paid.reset(seed=0)
        obs, reward, *_ = paid.step(1)
        assert reward == pytest.approx(0.5 - 0.05 * obs[0])
        with pytest.raises(ValueError, match=r"only the reward has \['Given\(1\)'\]"):
            LearnedReward(gym.make("CIRLTumour-v0"), learned)
