"""Environments in which rules forbid actions: what they tell, what they refuse, and that nothing else changes."""

from __future__ import annotations

import copy
import json
import pickle
import shutil

import gymnasium as gym
import numpy as np
import pytest
from env_runs import IDS, MODES, assert_refused, assert_same, drive, native, new_gymnasium
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from stable_baselines3.common.env_checker import check_env as check_sb3
from stable_baselines3.common.env_util import make_vec_env

from cirl_gym.data.batch import Batch
from cirl_gym.envs.counterfactual import PACKAGED, CounterfactualEnv
from cirl_gym.envs.tumour import TumourEnv
from cirl_gym.outcome_models.masked import MaskedModel
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.wrappers.history import HistoryObservation, HistoryVectorObservation
from cirl_gym.wrappers.learned_reward import LearnedReward

pytestmark = pytest.mark.filterwarnings("ignore:.*to get variables from other wrappers")  # Gymnasium below 1.0
TOO_HIGH = "1 when Above(side_effects, 2)"
NEVER = "1 when Above(side_effects, 1000)"


def by_hand(obs):
    """What TOO_HIGH leaves at observations ``[n, 4]``."""
    return np.stack([np.ones(len(obs), dtype=bool), obs[:, 1] <= 2], axis=1)


def obedient(env):
    """The environment with an action space of its own that draws what is allowed, for checkers that draw blindly."""

    class Allowed(spaces.Discrete):
        def sample(self, mask=None, probability=None):
            return super().sample(env.action_masks().astype(np.int8))

    env.action_space = Allowed(2)
    return env


@pytest.mark.parametrize("env_id", IDS)
def test_masks_are_those_of_the_rules(env_id):
    env = gym.make(env_id, forbid=[TOO_HIGH])
    masks = env.get_wrapper_attr("action_masks")
    seen = set()
    for seed in range(12):
        obs, info = env.reset(seed=seed)
        for action in [1, 0, 1, 1]:
            expected = by_hand(obs[None])[0]
            seen.add(bool(expected[1]))
            assert_same(masks(), expected)
            assert_same(info["action_mask"], expected.astype(np.int8))
            obs, *_, info = env.step(action * int(expected[1]))
    assert seen == {True, False}
    assert_same(masks(), info["action_mask"].astype(bool))


def test_the_action_before_counts_also_where_a_beginning_is_given():
    env = TumourEnv(forbid=["1 when After(1)"])
    with pytest.raises(gym.error.ResetNeeded, match="call reset before action_masks"):
        env.action_masks()
    env.reset(seed=0)
    assert env.action_masks().tolist() == [True, True]
    for action, left in ((1, [1, 0]), (0, [1, 1]), (1, [1, 0])):
        assert env.step(action)[4]["action_mask"].tolist() == left
    _, info = env.reset(options={"history": ([(30, 2), (31, 1), (30, 2)], [1, 1])})
    assert info["action_mask"].tolist() == [1, 0]


@pytest.mark.parametrize("env_id", IDS)
def test_a_forbidden_action_is_an_error_and_changes_nothing(env_id):
    def make():
        return gym.make(env_id, patient=(30, 4), forbid=["0 when After(1)", TOO_HIGH])

    message = r"'1' is forbidden now \(1 when Above.*, 2\)\); action_masks\(\) tells"
    assert_refused(make, lambda env: env.step(1), message, good=0, steps=5)
    env = make().unwrapped
    _, info = env.reset(seed=0)
    env.action_masks()[:] = True  # what was given out is the caller's own
    info["action_mask"][:] = 1
    assert env.action_masks().tolist() == [True, False]
    with pytest.raises(ValueError, match="forbidden"):
        env.step(1)


@pytest.mark.parametrize("arguments", [{}, {"forbid": []}])
@pytest.mark.parametrize("env_id", IDS)
def test_without_rules_there_is_nothing_to_ask_for(env_id, arguments):
    env = gym.make(env_id, **arguments)
    assert not is_masking_supported(env)
    assert not is_masking_supported(make_vec_env(env_id, 2, env_kwargs=arguments))
    assert not hasattr(env.unwrapped, "action_masks")
    assert env.unwrapped.rules is None
    _, info = env.reset(seed=0)
    assert "action_mask" not in info
    assert "action_mask" not in env.step(0)[4]


@pytest.mark.parametrize("env_id", IDS)
def test_rules_that_never_hold_add_only_masks(env_id):
    plain, ruled = gym.make(env_id), gym.make(env_id, forbid=[NEVER])
    assert (plain.observation_space, plain.action_space) == (ruled.observation_space, ruled.action_space)
    rng = np.random.default_rng(0)
    ours, theirs = ruled.reset(seed=4), plain.reset(seed=4)
    for _ in range(60):
        assert ours[-1].pop("action_mask").tolist() == [1, 1]
        assert_same(ours, theirs)
        over = len(theirs) == 5 and (theirs[2] or theirs[3])
        action = int(rng.integers(2))
        ours, theirs = (env.reset() if over else env.step(action) for env in (ruled, plain))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_id", IDS)
def test_after_a_reset_by_itself_the_mask_is_that_of_the_new_episode(env_id, mode):
    env = native(env_id, mode, forbid=[TOO_HIGH], max_episode_steps=4)
    given = []

    def masks():
        given.append(env.action_masks())
        return given[-1]

    returned, ends = drive(env, 70, masks=masks), 0
    for result in returned:
        obs, info = result[0], result[-1]
        told = info.get("_action_mask", np.zeros(3, dtype=bool))
        np.testing.assert_array_equal(info["action_mask"][told].astype(bool), by_hand(obs)[told])
        if "final_info" in info:
            for i in np.flatnonzero(info["_final_info"]):
                ends += 1
                last = by_hand(info["final_obs"][i][None])[0]
                np.testing.assert_array_equal(info["final_info"]["action_mask"][i].astype(bool), last)
    assert (ends > 10) == (mode.value == "SameStep")
    if mode.value != "Disabled":  # there every step's return has its masks
        np.testing.assert_array_equal(given, [by_hand(result[0]) for result in returned[:-1]])
    assert not np.all(given)


@new_gymnasium
@pytest.mark.parametrize("env_id", IDS)
def test_the_row_of_a_forbidden_action_is_named_and_nothing_changes(env_id):
    patients = np.array([[30.0, 1.0], [30.0, 4.0], [30.0, 1.0]])

    def make():
        return native(env_id, MODES[0], patient=patients, forbid=[TOO_HIGH])

    def bad(env):
        assert env.action_masks().tolist() == [[True, True], [True, False], [True, True]]
        env.step(np.array([1, 1, 1]))

    assert_refused(make, bad, "action '1' of row 1 is forbidden now", np.array([1, 0, 1]))
    with pytest.raises(gym.error.ResetNeeded, match="call reset before action_masks"):
        make().action_masks()
    assert not hasattr(native(env_id, MODES[0]), "action_masks")


@pytest.mark.parametrize("env_id", IDS)
def test_copies_and_specs_keep_the_rules(env_id):
    env = gym.make(env_id, patient=(30, 4), forbid=[TOO_HIGH])
    env.reset(seed=0)
    copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    for twin in copies:
        assert get_action_masks(twin).tolist() == [True, False]
    made = [gym.make(env.spec), gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))]
    for twin in made:
        twin.reset(seed=0)
    after = env.step(0)
    for twin in copies + made:
        assert_same(twin.step(0), after)
    copies[0].step(0)  # the original is not moved by it
    assert_same(get_action_masks(env), after[4]["action_mask"].astype(bool))


@pytest.mark.parametrize("make", [TumourEnv, CounterfactualEnv])
def test_gymnasiums_and_stable_baselines_checkers_pass(make):
    forbid = ["1 when Above(side_effects, 0.5)"]
    env = make(forbid=forbid)
    check_env(obedient(env), skip_render_check=True)
    check_sb3(obedient(make(forbid=forbid)))
    assert env.unwrapped.rules is not None


@pytest.mark.parametrize("env_id", IDS)
def test_wrappers_are_seen_through(env_id):
    env = LearnedReward(HistoryObservation(gym.make(env_id, patient=(30, 4), forbid=[TOO_HIGH]), 5), PACKAGED)
    assert is_masking_supported(env)
    assert env.reset(seed=0)[1]["action_mask"].tolist() == [1, 0]
    assert get_action_masks(env).tolist() == [True, False]


@new_gymnasium
def test_vector_wrappers_are_seen_through_by_our_form_for_stable_baselines():
    from agents.sb3_vec_env import NativeVecEnv

    wrapped = HistoryVectorObservation(native("CIRLTumour-v0", "SameStep", patient=(30, 4), forbid=[TOO_HIGH]))
    env = NativeVecEnv(wrapped)
    env.reset()
    assert is_masking_supported(env)
    assert get_action_masks(env).tolist() == [[True, False]] * 3
    assert not is_masking_supported(NativeVecEnv(HistoryVectorObservation(native("CIRLTumour-v0", "SameStep"))))


@pytest.mark.parametrize(
    ("forbid", "message"),
    [
        (TOO_HIGH, "forbid must be a list of rules, got the text '1 when"),
        (["treat when Above(side_effects, 2)"], "no action 'treat'; the actions are 0, 1"),
        (["1 when Above(z, 2)"], "'z'"),
        (["1"], "neither when nor unless"),
    ],
)
@pytest.mark.parametrize("env_id", IDS)
def test_a_bad_rule_is_one_clear_error(env_id, forbid, message):
    with pytest.raises(ValueError, match=message):
        gym.make(env_id, forbid=forbid)


@pytest.fixture
def run(tmp_path):
    """A function that makes a run whose settings hold these rules."""

    def make(rules):
        folder = shutil.copytree(PACKAGED, tmp_path / "run", dirs_exist_ok=True)
        result = json.loads((folder / "result.json").read_text())
        result["config"]["fit"]["forbid"] = rules
        (folder / "result.json").write_text(json.dumps(result))
        return folder

    return make


def test_a_run_with_rules_makes_an_environment_with_these(run):
    folder = run([TOO_HIGH, "0 when After(0)"])
    env = gym.make("CIRLCounterfactual-v0", run=folder, patient=(30, 4))
    _, info = env.reset(seed=0)
    assert [rule.name for rule in env.unwrapped.rules.rules] == [TOO_HIGH, "0 when After(0)"]
    assert info["action_mask"].tolist() == [1, 0]
    # Others replace them all, and an empty list does away with them.
    other = gym.make("CIRLCounterfactual-v0", run=folder, patient=(30, 4), forbid=[NEVER])
    assert other.reset(seed=0)[1]["action_mask"].tolist() == [1, 1]
    assert not is_masking_supported(gym.make("CIRLCounterfactual-v0", run=folder, forbid=[]))
    assert not is_masking_supported(gym.make("CIRLCounterfactual-v0", run=run([])))


@new_gymnasium
def test_a_run_with_rules_makes_many_with_these(run):
    env = native("CIRLCounterfactual-v0", MODES[0], run=run([TOO_HIGH]), patient=(30, 4))
    env.reset(seed=0)
    assert env.action_masks().tolist() == [[True, False]] * 3


@pytest.mark.parametrize("rules", ["1 when After(0)", [1], {"a": 1}])
def test_a_run_whose_rules_cannot_be_read_is_an_error_with_its_file(run, rules):
    with pytest.raises(ValueError, match=r"result\.json: fit\.forbid must be a list of rules"):
        gym.make("CIRLCounterfactual-v0", run=run(rules))


def test_a_model_with_rules_makes_an_environment_with_these():
    batch = Batch.load(PACKAGED / "batch.npz")
    rules = TumourEnv(forbid=[TOO_HIGH]).rules
    env = CounterfactualEnv(MaskedModel(OracleModel(), rules), batch, outcome="sampled")
    named = CounterfactualEnv(OracleModel(), batch, outcome="sampled", forbid=[TOO_HIGH])
    for one in (env, named):
        assert isinstance(one.model, MaskedModel)
        assert one.model.rules == one.rules == rules
    assert_same(env.reset(seed=1), named.reset(seed=1))
    for _ in range(6):
        action = int(env.action_masks()[1])
        assert_same(env.step(action), named.step(action))
    assert isinstance(CounterfactualEnv(env.model, batch, forbid=[]).model, OracleModel)
