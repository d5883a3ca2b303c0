"""The native vector environments as a ``VecEnv`` of Stable-Baselines3, against its own ``DummyVecEnv``."""

from __future__ import annotations

import subprocess
import sys
from copy import deepcopy

import gymnasium as gym
import numpy as np
import pytest
from drqn_envs import small_drqn
from env_runs import IDS, assert_same, new_gymnasium
from sb3_contrib import MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

from agents.drqn.drqn import MaskedPolicy
from agents.drqn.policy import has_action_masks
from cirl_gym.wrappers.history import HistoryObservation

AutoresetMode = getattr(gym.vector, "AutoresetMode", None)
if AutoresetMode is None:
    pytest.skip("the native vector environment needs gymnasium >= 1.1", allow_module_level=True)

from agents.sb3_vec_env import NativeVecEnv, make_native_vec_env, options_of_rows, rows_of  # noqa: E402

N = 5
ONES = np.ones(N, dtype=np.int64)
CHANCES = np.array([1.0, 0.0, 0.2, 0.5, 0.35])
"""Chance of treatment of each row: cured, failing, and kept for the whole horizon."""
VARIANTS = {
    "flat": ("CIRLTumour-v0", {}),
    "dict": ("CIRLTumour-v0", {"observation": "dict", "weights": (-0.7, -0.3)}),
    "long": ("CIRLTumour-v0", {"previous_action": False, "max_episode_steps": 45}),
    "model": ("CIRLCounterfactual-v0", {}),
}


class Chances:
    """Treats row i with its chance; same numbers in every run. Has the ``predict`` of Stable-Baselines3."""

    def __init__(self):
        self.rng = np.random.default_rng(0)

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return (self.rng.random(N) < CHANCES).astype(np.int64), state


def dummy(env_id, arguments):
    return DummyVecEnv([lambda: gym.make(env_id, **arguments) for _ in range(N)])


def native(env_id, arguments, mode="SAME_STEP", **ours):
    envs = gym.make_vec(
        env_id, num_envs=N, vectorization_mode="vector_entry_point", autoreset_mode=AutoresetMode[mode], **arguments
    )
    return NativeVecEnv(envs, **ours)


def begun(*envs, seed=3):
    """Environments with the same seed, after a reset."""
    for env in envs:
        env.seed(seed)
        env.reset()
    return envs


def drive(env, steps=150, seed=11):
    """All that a VecEnv returns over several episodes."""
    policy = Chances()
    env.seed(seed)
    returned = [(env.reset(), list(env.reset_infos))]
    for _ in range(steps):
        actions, _ = policy.predict(None)
        returned.append((*env.step(actions), list(env.reset_infos)))
    env.close()
    return returned


@pytest.mark.parametrize("mode", ["SAME_STEP", "DISABLED"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_row_and_info_is_that_of_the_single_environments(variant, mode):
    ours, theirs = drive(native(*VARIANTS[variant], mode, step_infos=True)), drive(dummy(*VARIANTS[variant]))
    assert_same(ours, theirs)
    ends = {info["TimeLimit.truncated"] for step in theirs[1:] for done, info in zip(*step[2:4], strict=True) if done}
    # Ends of both kinds happened.
    assert ends == {False, True}
    assert sum(step[2].sum() for step in theirs[1:]) > 2 * N


def test_a_process_that_ends_at_the_time_limit_is_not_truncated():
    # Gymnasium's own vectorisation reports such an end as both.
    mode, arguments = {"autoreset_mode": AutoresetMode.SAME_STEP}, {"max_episode_steps": 10}
    ours = drive(NativeVecEnv(gym.make_vec("CIRLTumour-v0", N, "sync", vector_kwargs=mode, **arguments)), 200)
    theirs = drive(dummy("CIRLTumour-v0", arguments), 200)
    both, length = 0, 0
    for a, b in zip(ours[1:], theirs[1:], strict=True):
        assert_same(a[:3], b[:3])
        length += 1
        # Row 0 is treated all the time.
        if a[2][0]:
            cured = a[3][0]["terminal_observation"][0] == 0
            assert a[3][0]["TimeLimit.truncated"] is b[3][0]["TimeLimit.truncated"] is not bool(cured)
            both += length == 10 and cured
            length = 0
    assert both > 0


def assert_only_ended_rows_have_an_info(ours, theirs):
    """All else is the same."""
    assert_same(ours[0], theirs[0])
    for a, b in zip(ours[1:], theirs[1:], strict=True):
        assert_same(a[:3], b[:3])
        assert_same(a[3], [info if done else {} for done, info in zip(*b[2:4], strict=True)])
        assert len({id(info) for info in a[3]}) == N
    assert any(step[2].any() for step in theirs[1:])


def test_by_default_only_ended_rows_have_an_info():
    full = drive(native(*VARIANTS["flat"], step_infos=True))
    assert_only_ended_rows_have_an_info(drive(native(*VARIANTS["flat"])), full)


def test_nothing_returned_changes_later():
    env = native(*VARIANTS["flat"])
    env.seed(0)
    returned = [(env.reset(),)]
    copies = deepcopy(returned)
    for _ in range(30):
        obs, rewards, dones, infos = env.step(ONES)
        returned.append((obs, rewards, dones, *(info["terminal_observation"] for info in infos if info)))
        copies.append(deepcopy(returned[-1]))
    assert_same(returned, copies)


def test_seeds_hold_for_one_reset_and_are_those_of_stable_baselines():
    ours, theirs = native(*VARIANTS["flat"]), dummy(*VARIANTS["flat"])
    assert ours.seed(3) == theirs.seed(3) == [3, 4, 5, 6, 7]
    first = ours.reset()
    assert_same(first, theirs.reset())
    second = ours.reset()
    assert_same(second, theirs.reset())
    assert (first[:, 0] != second[:, 0]).all()
    ours.seed(3)
    assert_same(ours.reset(), first)


@pytest.mark.parametrize("options", [{"patient": (20.0, 3.0)}, [{"patient": (20.0 + i, 3.0)} for i in range(N)]])
def test_options_are_of_the_next_reset_alone(options):
    ours, theirs = native(*VARIANTS["flat"]), dummy(*VARIANTS["flat"])
    for env in (ours, theirs):
        env.seed(3)
        env.set_options(options)
    first = ours.reset()
    assert_same(first, theirs.reset())
    np.testing.assert_allclose(first[:, 0], 20.0 + np.arange(N) * isinstance(options, list))
    assert_same(ours.reset_infos, theirs.reset_infos)
    # Row 0 is cured; its next patient is a drawn one again.
    for _ in range(15):
        actions = np.eye(N, dtype=np.int64)[0]
        assert_same(ours.step(actions)[0], theirs.step(actions)[0])
        assert_same(ours.reset_infos, theirs.reset_infos)
    assert_same(ours.reset(), theirs.reset())


def test_refused_options_and_actions_leave_everything_as_it_was():
    env, other = begun(native(*VARIANTS["flat"]), native(*VARIANTS["flat"]))
    for options, message in (
        ([{"patient": (20.0, 3.0)}, *[{}] * (N - 1)], "environment 1 has options"),
        ([{"patient": (20.0, 3.0)}] * 2, f"2 sets of options for {N}"),
        ({"patient": (90.0, 3.0)}, "'patient'"),
        ({"patiant": (20.0, 3.0)}, "patiant"),
    ):
        env.set_options(options)
        with pytest.raises(ValueError, match=message):
            env.reset()
    env.set_options()
    with pytest.raises(ValueError, match="action"):
        env.step(2 * ONES)
    assert_same(env.step(ONES), other.step(ONES))


def test_options_that_differ_become_arrays():
    assert options_of_rows([{}, {}]) is None
    assert options_of_rows([{"a": 1, "b": "x"}, {"b": "x", "a": 1}]) == {"a": 1, "b": "x"}
    merged = options_of_rows([{"a": (1, 2)}, {"a": (3, 4)}])
    np.testing.assert_array_equal(merged["a"], [[1, 2], [3, 4]])
    with pytest.raises(ValueError, match="'a' do not fit"):
        options_of_rows([{"a": (1, 2)}, {"a": (3, 4, 5)}])


def test_rows_of_batched_values():
    infos = {
        "phi": np.array([[1.0, 2.0], [3.0, 4.0]]),
        "_phi": np.array([False, True]),
        "flag": np.array([True, False]),
        "names": ["p", "q"],
        "mode": "learned",
        "more": {"count": np.array([5, 6]), "_count": np.array([True, False])},
    }
    first, second = rows_of(infos, np.array([0, 1]))
    assert first == {"flag": True, "names": "p", "mode": "learned", "more": {"count": 5}}
    assert second.pop("phi").tolist() == [3.0, 4.0]
    assert second == {"flag": False, "names": "q", "mode": "learned", "more": {}}
    assert type(second["flag"]) is bool
    (alone,) = rows_of(infos, np.array([1]))
    alone["phi"][0] = 9.0
    assert infos["phi"][1, 0] == 3.0
    assert rows_of(infos, np.array([], dtype=np.int64)) == []


def test_next_step_mode_is_refused_by_name():
    with pytest.raises(ValueError, match=r"NEXT_STEP.*AutoresetMode\.SAME_STEP"):
        native(*VARIANTS["flat"], "NEXT_STEP")
    silent = gym.make_vec("CIRLTumour-v0", num_envs=2)
    silent.metadata = {}
    with pytest.raises(ValueError, match="the autoreset mode is None"):
        NativeVecEnv(silent)


def test_attributes_and_methods():
    (env,) = begun(native("CIRLTumour-v0", {"weights": (-0.6, -0.4)}), seed=8)
    assert env.get_attr("render_mode") == [None] * N
    assert env.get_attr("np_random_seed") == [8, 9, 10, 11, 12]
    assert env.get_attr("np_random_seed", indices=[4, 0]) == [12, 8]
    assert [weights.tolist() for weights in env.get_attr("weights", 2)] == [[-0.6, -0.4]]
    assert env.get_attr("observation_space", 0) == [env.observation_space]
    assert env.get_attr("action_space", 0) == [gym.spaces.Discrete(2)]
    assert env.spec.id == "CIRLTumour-v0"
    assert env.has_attr("weights")
    assert not env.has_attr("wieghts")
    with pytest.raises(AttributeError, match="wieghts"):
        env.set_attr("wieghts", (0, -1))
    env.set_attr("spec", None)
    assert env.get_attr("spec") == [None] * N
    with pytest.raises(ValueError, match="indices"):
        env.set_attr("spec", None, indices=[0, 1])
    assert env.env_method("close") == [None] * N
    with pytest.raises(ValueError, match="call reset of"):
        env.env_method("reset")
    assert env.env_is_wrapped(Monitor) == [False] * N
    assert env.get_images() == [None] * N


def test_wrappers_of_gymnasium_are_seen_through():
    envs = gym.make_vec("CIRLTumour-v0", num_envs=N, autoreset_mode=AutoresetMode.SAME_STEP)
    wrapper = gym.wrappers.vector.TransformReward
    env, plain = begun(NativeVecEnv(wrapper(envs, lambda rewards: 10 * rewards)), native(*VARIANTS["flat"]))
    assert env.env_is_wrapped(wrapper, indices=1) == [True]
    assert env.env_is_wrapped(type(envs)) == [False] * N
    assert len(env.get_attr("weights")) == N
    np.testing.assert_allclose(env.step(ONES)[1], 10 * plain.step(ONES)[1], rtol=1e-6)


def test_pictures_are_those_of_the_environments():
    arguments = {"render_mode": "rgb_array"}
    mode = {"autoreset_mode": AutoresetMode.SAME_STEP}
    native = NativeVecEnv(gym.make_vec("CIRLTumour-v0", N, "sync", vector_kwargs=mode, **arguments))
    ours, theirs = begun(native, dummy("CIRLTumour-v0", arguments))
    for env in (ours, theirs):
        env.step(ONES)
    assert_same(list(ours.get_images()), list(theirs.get_images()))
    assert_same(ours.render("rgb_array"), theirs.render("rgb_array"))


def test_the_maker_does_what_stable_baselines_maker_does():
    ours = make_native_vec_env("cirl_gym:CIRLTumour-v0", N, seed=4, observation="dict")
    theirs = make_vec_env("cirl_gym:CIRLTumour-v0", N, seed=4, env_kwargs={"observation": "dict"})
    assert isinstance(ours, VecMonitor)
    assert not isinstance(make_native_vec_env("CIRLTumour-v0", monitor=False), VecMonitor)
    assert ours.action_space.sample() == theirs.action_space.sample()
    assert_same(ours.reset(), theirs.reset())
    with pytest.raises(TypeError, match="observatoin"):
        make_native_vec_env("CIRLTumour-v0", 2, observatoin="dict")


def test_returns_and_lengths_are_logged_and_evaluated_as_by_a_monitor():
    (returns, lengths), (their_returns, their_lengths) = (
        evaluate_policy(Chances(), make("CIRLTumour-v0", N, seed=4), n_eval_episodes=23, return_episode_rewards=True)
        for make in (make_native_vec_env, make_vec_env)
    )
    assert lengths == their_lengths
    assert len(set(lengths)) > 3
    np.testing.assert_allclose(returns, their_returns, atol=2e-6)


def test_normalised_as_other_environments_are():
    ours, theirs = (drive(VecNormalize(make(*VARIANTS["dict"]), gamma=0.9), 60) for make in (native, dummy))
    assert_only_ended_rows_have_an_info(ours, theirs)


def test_old_gymnasium_gets_one_clear_error():
    code = "import gymnasium.vector; del gymnasium.vector.AutoresetMode; import agents.sb3_vec_env"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError: agents.sb3_vec_env needs gymnasium >= 1.1" in done.stderr.splitlines()[-1]
    assert "make_vec_env" in done.stderr.splitlines()[-1]


ON_POLICY = {"n_steps": 32, "batch_size": 40, "n_epochs": 2, "policy_kwargs": {"net_arch": [16]}}
RECURRENT = ON_POLICY | {"n_epochs": 1, "policy_kwargs": {"net_arch": [16], "lstm_hidden_size": 8}}
OFF_POLICY = {"learning_starts": 50, "target_update_interval": 40, "policy_kwargs": {"net_arch": [16]}}


@pytest.mark.parametrize(
    ("algorithm", "policy", "settings"),
    [
        (PPO, "MlpPolicy", ON_POLICY),
        (PPO, "MultiInputPolicy", ON_POLICY),
        (A2C, "MlpPolicy", {"n_steps": 16, "policy_kwargs": {"net_arch": [16]}}),
        (DQN, "MlpPolicy", OFF_POLICY),
        (RecurrentPPO, "MlpLstmPolicy", RECURRENT),
        (RecurrentPPO, "MultiInputLstmPolicy", RECURRENT),
    ],
)
def test_algorithms_learn_the_same_numbers_as_on_single_environments(algorithm, policy, settings):
    arguments = {"observation": "dict" if "Multi" in policy else "flat"}
    learnt = []
    for env in (
        make_native_vec_env("CIRLTumour-v0", N, **arguments),
        make_vec_env("CIRLTumour-v0", N, env_kwargs=arguments),
    ):
        model = algorithm(policy, env, seed=1, device="cpu", **settings)
        before = [p.detach().clone() for p in model.policy.parameters()]
        model.learn(320)
        learnt.append([p.detach().numpy() for p in model.policy.parameters()])
        assert any((p.numpy() != q).any() for p, q in zip(before, learnt[-1], strict=True))
        assert len(model.ep_info_buffer) > N
    assert_same(*learnt)


def test_a_replay_buffer_knows_last_observations_and_time_limits():
    env = make_native_vec_env("CIRLTumour-v0", N, max_episode_steps=6)
    model = DQN("MlpPolicy", env, seed=1, learning_starts=1000, device="cpu", buffer_size=1000)
    model.learn(N * 12)
    buffer = model.replay_buffer
    # Six steps are too few for any end but the time limit's.
    assert buffer.dones[:12, 0].tolist() == buffer.timeouts[:12, 0].tolist() == [0, 0, 0, 0, 0, 1] * 2
    # After the last step the last action is shown; the new episode begins without one.
    assert buffer.next_observations[5, :, 2:].sum(axis=-1).tolist() == [1] * N
    assert not buffer.observations[6, :, 2:].any()


FORBID = ["1 when Above(side_effects, 3)"]


class Chart(gym.Wrapper):
    """Keeps every action with the side effects that it was chosen at."""

    def __init__(self, env):
        super().__init__(env)
        self.last, self.chosen = 0.0, []

    def reset(self, **arguments):
        obs, info = self.env.reset(**arguments)
        self.last = obs[1]
        return obs, info

    def step(self, action):
        self.chosen.append((self.last, int(action)))
        obs, *rest = self.env.step(action)
        self.last = obs[1]
        return obs, *rest

    def check(self, steps):
        """The rule came to hold in some steps and was kept in all; where it did not hold, both actions were taken."""
        level, action = np.array(self.chosen).T
        assert len(level) >= steps
        assert (level > 3).sum() > 20
        assert not action[level > 3].any()
        assert set(action[level <= 3]) == {0, 1}


def ppo(kind, env):
    return kind("MlpPolicy", env, n_steps=64, n_epochs=1, seed=0, device="cpu")


@pytest.mark.parametrize("env_id", IDS)
def test_maskable_ppo_takes_no_forbidden_action(env_id):
    chart = Chart(gym.make(env_id, weights=(-1, 0), forbid=FORBID))
    model = ppo(MaskablePPO, HistoryObservation(chart, 21)).learn(320)
    chart.check(320)
    assert model.predict(model.get_env().reset(), action_masks=[[False, True]])[0].tolist() == [1]


def test_an_agent_that_does_not_ask_is_told():
    model = ppo(PPO, HistoryObservation(gym.make("CIRLTumour-v0", forbid=FORBID), 21))
    with pytest.raises(ValueError, match=r"action '1' is forbidden now .* action_masks\(\) tells"):
        model.learn(320)


@pytest.mark.parametrize("env_id", IDS)
def test_drqn_takes_no_forbidden_action(env_id):
    chart = Chart(gym.make(env_id, weights=(-1, 0), forbid=FORBID, max_episode_steps=6))
    model = small_drqn(chart).learn(320)
    chart.check(320)
    # What a time limit cut off was allowed next is in the infos, so that nothing is left out of the loss.
    assert model.logger.name_to_value["train/unknown_masks"] == 0
    evaluate_policy(MaskedPolicy(model, model.get_env()), model.get_env(), 3, warn=False)


@new_gymnasium
@pytest.mark.parametrize("env_id", IDS)
def test_many_at_once_teach_drqn_what_as_many_single_ones_do(env_id):
    from agents.sb3_vec_env import make_native_vec_env

    arguments = {"weights": (-1, 0), "forbid": FORBID}
    many = small_drqn(make_native_vec_env(env_id, 4, seed=3, **arguments)).learn(320)
    single = small_drqn(make_vec_env(env_id, 4, seed=3, env_kwargs=arguments)).learn(320)
    assert many.replay_buffer_kwargs["masks"]
    for a, b in zip(many.policy.parameters(), single.policy.parameters(), strict=True):
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())


@pytest.mark.parametrize("env_id", IDS)
def test_without_rules_agents_ask_for_nothing(env_id):
    assert not has_action_masks(gym.make(env_id))
    assert not small_drqn(gym.make(env_id)).replay_buffer_kwargs["masks"]
