"""The recurrent Q-learner as a Stable-Baselines3 algorithm (its memory also in test_recurrent_networks.py)."""

from __future__ import annotations

import warnings
from itertools import product

import gymnasium as gym
import numpy as np
import pytest
import torch
from drqn_envs import SMALL, Choices, Counting, Forbidding, Recall, small_drqn
from env_runs import new_gymnasium
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, EvalCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

from agents.drqn import DRQN, LinearRate, MaskedPolicy, ScaledExtractor
from agents.drqn.drqn import epsilon_greedy


def counting(n=2, kind=Counting, **arguments):
    return DummyVecEnv([lambda i=i: Monitor(kind(first=100 * i, **arguments)) for i in range(n)])


def parameters(model):
    return torch.cat([p.detach().flatten() for p in model.policy.parameters()]).numpy()


def walk(model, episode, **arguments):
    """Q-values step by step along observations ``[S, ..]``, as when acting."""
    found, state = [], None
    for t, obs in enumerate(episode):
        q, state, _ = model.policy.q_values(obs[None], state, np.array([t == 0]))
        found.append(q[0].numpy())
    return np.array(found)


# A small problem whose Q-values are known.


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"double_q": False, "n_steps": 2, "policy_kwargs": SMALL | {"cell": "gru"}},
        {"policy_kwargs": SMALL | {"skip_connection": True, "n_lstm_layers": 2}},
    ],
)
def test_known_q_values_are_found(arguments):
    model = small_drqn(
        DummyVecEnv([Choices] * 16),
        gamma=0.9,
        learning_rate=LinearRate(0.02, 0.001),
        batch_size=16,
        train_freq=1,
        gradient_steps=4,
        target_update_interval=64,
        exploration_initial_eps=1.0,
        exploration_final_eps=1.0,
        **arguments,
    ).learn(1280)
    # Uncorrected n-step targets are worth what the behaviour is worth: after action 0, a half of 1.
    expected = [[0.9 if model.n_steps == 1 else 0.45, 0.5], [1.0, 0.0]]
    np.testing.assert_allclose(walk(model, np.eye(2, dtype=np.float32)), expected, atol=0.06)
    action, _ = model.predict(np.array([1, 0], dtype=np.float32), deterministic=True)
    assert action == (0 if expected[0][0] > 0.5 else 1)


# A task that needs memory (:class:`drqn_envs.Recall`): with it everything can be had, without it provably one half.


def earned(algorithm, policy, steps, total, seed, **arguments):
    """What a trained agent gets: both cues once, nothing is random."""
    model = algorithm(
        policy,
        DummyVecEnv([lambda: Recall(steps)] * 16),
        learning_rate=3e-3,
        learning_starts=500,
        train_freq=1,
        gradient_steps=2,
        target_update_interval=400,
        exploration_initial_eps=1.0,
        exploration_final_eps=0.2,
        seed=seed,
        device="cpu",
        **arguments,
    ).learn(total)
    both = DummyVecEnv([lambda: Monitor(Recall(steps, 0)), lambda: Monitor(Recall(steps, 1))])
    return evaluate_policy(model, both, n_eval_episodes=2)[0]


@pytest.mark.parametrize(
    ("steps", "total", "seed", "cell"),
    [
        (3, 4000, 0, "lstm"),
        *(
            pytest.param(10, 30_000, seed, cell, marks=pytest.mark.slow)
            for seed, cell in product((0, 1), ("lstm", "gru"))
        ),
    ],
)
def test_a_cue_is_remembered(steps, total, seed, cell):
    policy_kwargs = {"lstm_hidden_size": 16, "net_arch": [16], "cell": cell}
    assert earned(DRQN, "MlpLstmPolicy", steps, total, seed, policy_kwargs=policy_kwargs) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_its_memoryless_twin_gets_one_half_at_most(seed):
    assert earned(DQN, "MlpPolicy", 10, 30_000, seed, batch_size=128) <= 0.5


# Memory: acting, learning, starts of episodes.


def test_learning_sees_the_values_that_acting_saw():
    model = small_drqn(counting(3), learning_starts=10**6)
    acted = []
    ask = model.policy.q_values

    def spy(obs, *rest):
        answer = ask(obs, *rest)
        acted.append((obs.copy(), answer[0].numpy()))
        return answer

    model.policy.q_values = spy
    model.learn(3 * 60)
    found = {tuple(o[:2]): q for obs, qs in acted for o, q in zip(obs, qs, strict=True)}
    batch = model.replay_buffer.batch(np.arange(len(model.replay_buffer.episodes)))
    lengths = model.replay_buffer.lengths
    assert set(lengths.tolist()) == {1, 3, 20}
    q = model.q_net.sequence(batch.obs, batch.seen).detach().numpy()
    steps = 0
    for i, k in enumerate(lengths.tolist()):
        for t in range(k):
            np.testing.assert_allclose(q[i, t], found[tuple(batch.obs[i, t, :2].tolist())], atol=1e-5)
            steps += 1
    assert steps == model.replay_buffer.size() > 100


def test_calls_without_a_state():
    model = small_drqn(Counting())
    obs = np.ones((2, 3), dtype=np.float32)
    actions, state = model.predict(obs, deterministic=True)
    assert [part.shape for part in state] == [(1, 2, 8), (1, 2, 8)]
    # A start is a start, said or not.
    again, _ = model.predict(obs, state, np.array([True, True]), deterministic=True)
    np.testing.assert_array_equal(actions, again)
    with pytest.raises(ValueError, match="shapes"):
        model.predict(obs[:1], state)
    single, state = model.predict(obs[0], deterministic=True)
    assert single.shape == ()
    assert state[0].shape == (1, 1, 8)
    assert single == actions[0]
    assert model.policy(torch.from_numpy(obs)).tolist() == actions.tolist()


# Chance.


def test_every_row_tosses_its_own_coin():
    model = small_drqn(Counting())
    model.exploration_rate = 0.5
    obs = np.ones((4000, 3), dtype=np.float32)
    greedy, _ = model.predict(obs, deterministic=True)
    drawn, _ = model.predict(obs)
    # Half of the rows explore and half of these change: .25, standard error .007.
    assert np.mean(drawn != greedy) == pytest.approx(0.25, abs=0.03)


def test_exploring_draws_uniformly_among_what_is_allowed():
    # Rows that do not explore say -1; the second action is forbidden in the second half of the rows.
    greedy, allowed = np.full(80_000, -1), np.ones((80_000, 3), dtype=bool)
    allowed[40_000:, 1] = False
    taken = epsilon_greedy(greedy, 0.3, 3, allowed, np.random.default_rng(0))
    assert np.mean(taken >= 0) == pytest.approx(0.3, abs=0.01)
    for rows, shares in ((taken[:40_000], [1 / 3] * 3), (taken[40_000:], [1 / 2, 0, 1 / 2])):
        # About 12,000 draws: a standard error of .005 at most.
        assert [np.mean(rows[rows >= 0] == a) for a in range(3)] == pytest.approx(shares, abs=0.02)


def test_same_seed_same_bytes_and_evaluating_changes_nothing():
    def learnt(seed, callback=None):
        return parameters(small_drqn(counting(), seed=seed).learn(160, callback))

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Training and eval env")
        evaluated = learnt(0, EvalCallback(counting(1), eval_freq=20, deterministic=False, verbose=0))
    first = learnt(0)
    assert first.tobytes() == evaluated.tobytes()
    assert first.tobytes() != learnt(1).tobytes()


# Going on.


def test_learning_in_two_parts_is_learning_in_one():
    whole, parts = (small_drqn(counting(), exploration_initial_eps=0.3, exploration_final_eps=0.3) for _ in range(2))
    whole.learn(240)
    parts.learn(120).learn(120, reset_num_timesteps=False)
    assert parameters(whole).tobytes() == parameters(parts).tobytes()
    assert whole.replay_buffer.size() == parts.replay_buffer.size()


class StopAt(BaseCallback):
    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def _on_step(self):
        return self.n_calls < self.calls


@pytest.mark.parametrize("reset", [False, True])
def test_an_interrupted_episode_does_not_go_on_in_the_replay(reset):
    model = small_drqn(counting(1))
    model.learn(200, StopAt(10))
    # Lengths 1, 3 and then 20, of which six steps were taken and are forgotten.
    model.learn(60, reset_num_timesteps=reset)
    model.learn(30)
    batch = model.replay_buffer.batch(np.arange(len(model.replay_buffer.episodes)))
    for row, k in enumerate(batch.mask.sum(1).tolist()):
        assert batch.obs[row, : k + 1, 1].tolist() == list(range(k + 1))
        assert len(set(batch.obs[row, : k + 1, 0].tolist())) == 1


def test_saving_and_loading(tmp_path):
    model = small_drqn(counting(), n_steps=2).learn(120)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "replay")
    loaded = DRQN.load(tmp_path / "model", env=counting(), device="cpu")
    loaded.load_replay_buffer(tmp_path / "replay")
    obs = np.random.default_rng(0).random((6, 3)).astype(np.float32)
    np.testing.assert_array_equal(walk(model, obs), walk(loaded, obs))
    assert (loaded.n_steps, loaded.num_timesteps) == (2, 120)
    assert loaded.replay_buffer.size() == model.replay_buffer.size() > 0
    # Drawn numbers go on from where they were.
    model.exploration_rate = loaded.exploration_rate = 0.5
    many = np.ones((50, 3), dtype=np.float32)
    np.testing.assert_array_equal(model.predict(many)[0], loaded.predict(many)[0])
    # From fresh environments both go on alike, to the byte.
    model.set_env(counting())
    model._last_obs = None
    for one in (model, loaded):
        one.learn(80, reset_num_timesteps=False)
    assert parameters(model).tobytes() == parameters(loaded).tobytes()
    alone = DRQN.load(tmp_path / "model", device="cpu")
    alone.predict(many)


def test_another_number_of_environments_after_loading(tmp_path):
    model = small_drqn(counting(3)).learn(90)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "replay")
    loaded = DRQN.load(tmp_path / "model", env=counting(1), device="cpu")
    loaded.load_replay_buffer(tmp_path / "replay")
    before = loaded.replay_buffer.size()
    loaded.learn(48, reset_num_timesteps=False)
    assert loaded.replay_buffer.size() == before + 48


def test_a_policy_saved_by_itself(tmp_path):
    # Before, no policy could be loaded with torch >= 2.6.
    pytest.importorskip("stable_baselines3", minversion="2.4")
    model = small_drqn(Counting(), policy_kwargs=SMALL | {"cell": "gru"})
    model.policy.save(tmp_path / "policy.pt")
    policy = type(model.policy).load(tmp_path / "policy.pt", device="cpu")
    obs = np.random.default_rng(0).random((5, 3)).astype(np.float32)
    np.testing.assert_array_equal(policy.predict(obs)[0], model.predict(obs, deterministic=True)[0])


# Action masks.


@pytest.mark.parametrize("start", [0, 3])
@pytest.mark.parametrize("told", [True, False])
def test_forbidden_actions_are_never_taken(start, told):
    """The environment raises where one is."""
    envs = counting(2, Forbidding, start=start, tell_last=told)
    model = small_drqn(envs, exploration_initial_eps=0.7, n_steps=2).learn(200)
    batch = model.replay_buffer.sample(16)
    assert int(batch.actions[batch.mask].min()) >= 0
    assert int(batch.actions[batch.mask].max()) <= 3
    taken = batch.allowed[:, :-1].gather(2, batch.actions[..., None]).squeeze(2)
    assert taken[batch.mask].all()
    assert (model.logger.name_to_value["train/unknown_masks"] > 0) == (not told)
    model.exploration_rate = 0.5
    for deterministic in (True, False):
        evaluate_policy(MaskedPolicy(model, envs), envs, n_eval_episodes=6, deterministic=deterministic)


def test_masks_that_cannot_be():
    model = small_drqn(Forbidding())
    obs = np.zeros((2, 3), dtype=np.float32)
    with pytest.raises(ValueError, match=r"\[2, 4\]"):
        model.predict(obs, action_masks=np.ones((2, 3)))
    with pytest.raises(ValueError, match="row 1"):
        model.predict(obs, action_masks=[[1, 1, 1, 1], [0, 0, 0, 0]])
    single, _ = model.predict(obs[0], action_masks=[False, False, True, False], deterministic=True)
    assert single == 2


def test_masks_that_come_or_go_are_refused(tmp_path):
    model = small_drqn(counting(2, Forbidding)).learn(60)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "replay")
    alone = DRQN.load(tmp_path / "model", device="cpu")
    with pytest.raises(ValueError, match="action masks"):
        alone.load_replay_buffer(tmp_path / "replay")
    alone.set_env(counting(2, Forbidding))
    with pytest.raises(ValueError, match="action masks"):
        alone.learn(10)


# Beside the rest of Stable-Baselines3.


class Eight(gym.Env):
    """Episodes of 8 steps with any observations; nothing to learn."""

    action_space = spaces.Discrete(2)

    def __init__(self, space):
        self.observation_space = space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.t += 1
        return self.observation_space.sample(), 0.0, self.t == 8, False, {}


@pytest.mark.parametrize(
    ("space", "more"),
    [
        (spaces.Discrete(5), {}),
        (spaces.MultiBinary(4), {}),
        (spaces.Box(0, 9, (2, 2)), {"features_extractor_class": ScaledExtractor}),
    ],
)
def test_kinds_of_observations(space, more):
    space.seed(0)
    envs = DummyVecEnv([lambda: Monitor(Eight(space))] * 2)
    model = small_drqn(envs, policy_kwargs=SMALL | more, gradient_steps=-1).learn(40)
    assert model._n_updates > 0
    mean, _ = evaluate_policy(model, envs, n_eval_episodes=2)
    assert mean == 0


def test_normalised_environments():
    envs = VecNormalize(counting(2))
    model = small_drqn(envs).learn(120)
    batch = model.replay_buffer.batch(np.arange(4))
    # Stored in raw units, normalised on the way to the network.
    assert set(batch.obs[:, 0, 1].tolist()) == {0.0}
    assert batch.rewards.max() >= 3
    assert model.replay_buffer.sample(8, env=envs).rewards.max() < 3
    envs.training = False
    evaluate_policy(model, envs, n_eval_episodes=3)


def test_callbacks_logs_and_schedules(tmp_path):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Training and eval env")
        watch = EvalCallback(counting(1), eval_freq=50, best_model_save_path=str(tmp_path), verbose=0)
        model = small_drqn(
            counting(1), learning_rate=LinearRate(1e-3, 1e-4), train_freq=(1, "episode"), tensorboard_log=None
        )
        model.learn(160, CallbackList([watch]), log_interval=1)
    assert 1 <= watch.last_mean_reward <= 210
    assert (tmp_path / "best_model.zip").exists()
    assert model.logger.name_to_value["train/loss"] >= 0
    assert model.logger.name_to_value["train/learning_rate"] == pytest.approx(1e-4)


@new_gymnasium
def test_the_native_vector_environment():
    from agents.sb3_vec_env import make_native_vec_env

    envs = make_native_vec_env("CIRLTumour-v0", 8, seed=0)
    kwargs = SMALL | {"features_extractor_class": ScaledExtractor}
    model = small_drqn(envs, policy_kwargs=kwargs, horizon_is_terminal=True).learn(480)
    assert isinstance(envs, VecMonitor)
    assert evaluate_policy(model, envs, n_eval_episodes=8)[0] < 0
    lengths = model.replay_buffer.lengths
    assert lengths.max() == 20
    # With a finite horizon every episode ends.
    batch = model.replay_buffer.batch(np.arange(len(lengths)))
    np.testing.assert_array_equal(batch.terminated.sum(1), np.ones(len(lengths)))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"n_steps": 0}, "n_steps"),
        ({"gamma": 2.0}, "gamma"),
        ({"gamma": -0.1}, "gamma"),
        ({"policy": "CnnLstmPolicy"}, "CnnLstmPolicy"),
        ({"policy_kwargs": {"cell": "rnn"}}, "cell"),
    ],
)
def test_an_agent_that_cannot_be(arguments, told):
    with pytest.raises(ValueError, match=told):
        small_drqn(Counting(), **arguments)


def test_other_action_spaces_are_refused():
    with pytest.raises(AssertionError, match="Discrete"):
        small_drqn(Counting(action_space=spaces.MultiDiscrete([2, 2])))
