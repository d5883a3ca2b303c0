"""The recurrent Q-learner as a Stable-Baselines3 algorithm (its memory also in test_recurrent_networks.py).

Scaled features, the ready settings, and how near they come to the exact optimum, too.
"""

from __future__ import annotations

from itertools import product

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

from agents.drqn import DRQN, LinearRate, MaskedPolicy, ScaledExtractor, paper_settings, tumour_settings
from agents.drqn.drqn import epsilon_greedy
from agents.expert import noise_free_values
from cirl_gym.outcome_models.inputs import Scaler
from cirl_gym.worlds import tumour
from cirl_gym.worlds.exact import optimum
from cirl_gym.worlds.tumour import TumourParameters


def counting(n=2, kind=Counting, **arguments):
    return DummyVecEnv([lambda i=i: Monitor(kind(first=100 * i, **arguments)) for i in range(n)])


def parameters(model):
    return torch.cat([p.detach().flatten() for p in model.policy.parameters()]).numpy()


def everything(replay):
    """The whole replay as one batch, and the lengths of its episodes."""
    batch = replay.batch(np.arange(len(replay.episodes)))
    return batch, batch.mask.sum(1).tolist()


def walk(model, episode):
    """Q-values step by step along observations ``[S, ..]``, as when acting."""
    found, state = [], None
    for t, obs in enumerate(episode):
        q, state, _ = model.policy.q_values(obs[None], state, np.array([t == 0]))
        found.append(q[0].numpy())
    return np.array(found)


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


def earned(algorithm, policy, steps, total, seed, **arguments):
    """What a trained agent gets where a cue is to be remembered (:class:`drqn_envs.Recall`): both once, without chance.

    With memory everything can be had, without it provably one half.
    """
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
    batch, lengths = everything(model.replay_buffer)
    assert set(lengths) == {1, 3, 20}
    assert sum(lengths) == model.replay_buffer.size() > 100
    seen = [found[tuple(obs[:2].tolist())] for obs in batch.obs[:, :-1][batch.mask]]
    q = model.q_net.sequence(batch.obs, batch.seen)[:, :-1][batch.mask].detach().numpy()
    np.testing.assert_allclose(q, seen, rtol=0, atol=1e-5)


def test_calls_without_a_state_greedy_and_exploring():
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
    assert (single.shape, state[0].shape, single) == ((), (1, 1, 8), actions[0])
    assert model.policy(torch.from_numpy(obs)).tolist() == actions.tolist()
    # Every row tosses its own coin.
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


@pytest.mark.filterwarnings("ignore:Training and eval env")
def test_same_seed_same_bytes_and_evaluating_changes_nothing():
    def learnt(seed, callback=None):
        return parameters(small_drqn(counting(), seed=seed).learn(160, callback))

    evaluated = learnt(0, EvalCallback(counting(1), eval_freq=20, deterministic=False, verbose=0))
    first = learnt(0)
    assert first.tobytes() == evaluated.tobytes()
    assert first.tobytes() != learnt(1).tobytes()


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
    batch, lengths = everything(model.replay_buffer)
    for row, k in enumerate(lengths):
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
    DRQN.load(tmp_path / "model", device="cpu").predict(many)
    # With another number of environments, too: whole episodes of 1, 3 and 20 steps, twice.
    other = DRQN.load(tmp_path / "model", env=counting(1), device="cpu")
    other.load_replay_buffer(tmp_path / "replay")
    before = other.replay_buffer.size()
    other.learn(48, reset_num_timesteps=False)
    assert other.replay_buffer.size() == before + 48


def test_a_policy_saved_by_itself(tmp_path):
    # Before, no policy could be loaded with torch >= 2.6.
    pytest.importorskip("stable_baselines3", minversion="2.4")
    model = small_drqn(Counting(), policy_kwargs=SMALL | {"cell": "gru"})
    model.policy.save(tmp_path / "policy.pt")
    policy = type(model.policy).load(tmp_path / "policy.pt", device="cpu")
    obs = np.random.default_rng(0).random((5, 3)).astype(np.float32)
    np.testing.assert_array_equal(policy.predict(obs)[0], model.predict(obs, deterministic=True)[0])


@pytest.mark.parametrize("start", [0, 3])
@pytest.mark.parametrize("told", [True, False])
def test_forbidden_actions_are_never_taken(start, told):
    """The environment raises where one is."""
    envs = counting(2, Forbidding, start=start, tell_last=told)
    model = small_drqn(envs, exploration_initial_eps=0.7, n_steps=2).learn(200)
    batch = model.replay_buffer.sample(16)
    taken = batch.allowed[:, :-1].gather(2, batch.actions[..., None]).squeeze(2)
    assert taken[batch.mask].all()
    assert (model.logger.name_to_value["train/unknown_masks"] > 0) == (not told)
    model.exploration_rate = 0.5
    for deterministic in (True, False):
        evaluate_policy(MaskedPolicy(model, envs), envs, n_eval_episodes=6, deterministic=deterministic)


def test_masks_that_cannot_be_come_or_go_are_refused(tmp_path):
    model = small_drqn(counting(2, Forbidding)).learn(60)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "replay")
    alone = DRQN.load(tmp_path / "model", device="cpu")
    with pytest.raises(ValueError, match="action masks"):
        alone.load_replay_buffer(tmp_path / "replay")
    alone.set_env(counting(2, Forbidding))
    with pytest.raises(ValueError, match="action masks"):
        alone.learn(10)
    obs = np.zeros((2, 3), dtype=np.float32)
    with pytest.raises(ValueError, match=r"\[2, 4\]"):
        model.predict(obs, action_masks=np.ones((2, 3)))
    with pytest.raises(ValueError, match="row 1"):
        model.predict(obs, action_masks=[[1, 1, 1, 1], [0, 0, 0, 0]])
    single, _ = model.predict(obs[0], action_masks=[False, False, True, False], deterministic=True)
    assert single == 2


class Eight(Counting):
    """Episodes of 8 steps with any observations; nothing to learn."""

    def __init__(self, space):
        super().__init__((8,))
        self.observation_space = space

    def _see(self):
        return self.observation_space.sample()


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
    assert evaluate_policy(model, envs, n_eval_episodes=2)[0] == sum(range(1, 9))


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


@pytest.mark.filterwarnings("ignore:Training and eval env")
def test_callbacks_logs_and_schedules(tmp_path):
    watch = EvalCallback(counting(1), eval_freq=50, best_model_save_path=str(tmp_path), verbose=0)
    model = small_drqn(counting(1), learning_rate=LinearRate(1e-3, 1e-4), train_freq=(1, "episode"))
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
    batch, lengths = everything(model.replay_buffer)
    assert max(lengths) == 20
    # With a finite horizon every episode ends.
    assert (batch.terminated.sum(1) == 1).all()


def test_an_agent_that_cannot_be():
    for name, value in (("n_steps", 0), ("gamma", 2.0), ("gamma", -0.1), ("policy", "CnnLstmPolicy")):
        with pytest.raises(ValueError, match="CnnLstmPolicy" if name == "policy" else name):
            small_drqn(Counting(), **{name: value})
    with pytest.raises(ValueError, match="cell"):
        small_drqn(Counting(), policy_kwargs={"cell": "rnn"})
    with pytest.raises(AssertionError, match="Discrete"):
        small_drqn(Counting(action_space=spaces.MultiDiscrete([2, 2])))


def test_bounds_or_a_scaler_scale_observations():
    space = spaces.Box(np.array([0, -np.inf, 5]), np.array([10, np.inf, 5]), dtype=np.float64)
    extractor = ScaledExtractor(space)
    # From its bounds to [-1, 1]; without bounds, and where there is nothing to scale, as it is.
    assert extractor(torch.tensor([[0.0, 7.0, 5.0], [10.0, -7.0, 5.0]])).tolist() == [[-1, 7, 5], [1, -7, 5]]
    for other in (spaces.Discrete(3), spaces.Box(0, 255, (3, 36, 36), np.uint8)):
        with pytest.raises(ValueError, match="needs a Box that is no image"):
            ScaledExtractor(other)
    # Or the first features by a scaler; what follows is left as it is.
    scaler = Scaler(np.array([1.0, 2.0]), np.array([2.0, 4.0]))
    extractor = ScaledExtractor(spaces.Box(-9, 9, (3,)), scaler)
    assert extractor(torch.tensor([[3.0, -2.0, 5.0]])).tolist() == [[1, -1, 5]]
    with pytest.raises(ValueError, match="Box of 2 features and what follows"):
        ScaledExtractor(spaces.Box(-9, 9, (1,)), scaler)
    with pytest.raises(ValueError, match="no logarithms"):
        ScaledExtractor(spaces.Box(-9, 9, (3,)), Scaler(scaler.mean, scaler.scale, np.array([0.0, 1.0])))


def test_the_papers_settings():
    settings = paper_settings()
    model = DRQN("MlpLstmPolicy", "CIRLTumour-v0", seed=0, device="cpu", **settings.arguments)
    assert model.q_net.memory.hidden_size == 128
    assert len(model.q_net.head) == 1
    assert (model.batch_size, model.buffer_size, model.target_update_interval) == (256, 10_000, 200)
    assert model.replay_buffer.unit == "episodes"
    # .9, .00005 less per step: 0 after 18,000 of 41,000.
    left = lambda step: 1 - step / settings.total_timesteps  # noqa: E731
    assert model.exploration_schedule(left(0)) == 0.9
    assert model.exploration_schedule(left(1000)) == pytest.approx(0.85)
    assert model.exploration_schedule(left(18_000)) == pytest.approx(0, abs=1e-9)
    other = paper_settings("D")
    assert (other.arguments["exploration_final_eps"], other.arguments["target_update_interval"]) == (0.7, 100)
    with pytest.raises(ValueError, match="appendix"):
        paper_settings("F")


@new_gymnasium
def test_settings_for_the_tumour():
    from agents.sb3_vec_env import make_native_vec_env

    settings = tumour_settings()
    envs = make_native_vec_env("CIRLTumour-v0", settings.n_envs, seed=0)
    model = DRQN("MlpLstmPolicy", envs, seed=0, device="cpu", **settings.arguments)
    before = parameters(model)
    model.learn(model.learning_starts + 2 * settings.n_envs)
    assert model._n_updates == 2 * model.gradient_steps
    assert (before != parameters(model)).any()
    assert [settings.arguments["learning_rate"](left) for left in (1, 0, -0.1)] == pytest.approx([2e-3, 1e-4, 1e-4])


@new_gymnasium
@pytest.mark.slow
@pytest.mark.parametrize(
    ("weights", "gamma", "within"), [((-0.3, -0.7), 0.99, 0.1), ((-0.7, -0.3), 0.99, 0.1), ((-0.3, -0.7), 0.5, 0.02)]
)
def test_the_optimum_is_near(weights, gamma, within):
    from agents.sb3_vec_env import make_native_vec_env

    settings, given = tumour_settings(), TumourParameters()
    envs = make_native_vec_env("CIRLTumour-v0", settings.n_envs, seed=0, weights=weights)
    model = DRQN("MlpLstmPolicy", envs, gamma=gamma, seed=0, device="cpu", **settings.arguments)
    model.learn(settings.total_timesteps)
    starts = tumour.draw_start(given, 24, np.random.default_rng(5)).astype(np.float32).astype(np.float64)
    best = optimum(given, starts, [(weights, gamma)]).values[:, 0]
    short = best - noise_free_values(model, given, starts, weights, gamma)
    # The simulator's rewards are of float32 observations.
    assert short.min() > -1e-4
    assert short.mean() < within


def test_a_recurrent_q_learner_changes_by_training_alone():
    model = small_drqn(DummyVecEnv([Recall]), train_freq=1, gradient_steps=1)
    before = {name: value.clone() for name, value in model.policy.state_dict().items()}
    model.learn(60)
    trained = {name: value.clone() for name, value in model.policy.state_dict().items()}
    moved = [name for name, value in trained.items() if not torch.equal(value, before[name])]
    assert {f"q_net.{name}" for name, _ in model.policy.q_net.named_parameters()} <= set(moved)
    model.predict(model.env.reset(), deterministic=True, episode_start=np.ones(1, dtype=np.bool_))
    assert all(torch.equal(value, trained[name]) for name, value in model.policy.state_dict().items())
