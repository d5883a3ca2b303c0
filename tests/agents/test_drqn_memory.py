"""A task that needs memory: with it everything can be had, without it provably one half (:class:`drqn_envs.Recall`)."""

from __future__ import annotations

import numpy as np
import pytest
from drqn_envs import Recall
from stable_baselines3 import DQN
from stable_baselines3.common.vec_env import DummyVecEnv

from agents.drqn.drqn import DRQN


def mean_return(model, steps):
    """Exact: both cues once, nothing is random."""
    found = []
    for cue in (0, 1):
        env = Recall(steps, cue)
        obs, _ = env.reset()
        state, done = None, False
        while not done:
            action, state = model.predict(obs, state, deterministic=True)
            obs, reward, done, _, _ = env.step(int(action))
        found.append(reward)
    return float(np.mean(found))


def trained(algorithm, policy, steps, total, seed, **arguments):
    envs = DummyVecEnv([lambda: Recall(steps)] * 16)
    model = algorithm(
        policy,
        envs,
        learning_rate=3e-3,
        learning_starts=500,
        train_freq=1,
        target_update_interval=400,
        exploration_initial_eps=1.0,
        exploration_final_eps=0.2,
        seed=seed,
        device="cpu",
        **arguments,
    )
    return model.learn(total)


def recurrent(steps, total, seed, **policy):
    policy_kwargs = {"lstm_hidden_size": 16, "net_arch": [16]} | policy
    return trained(DRQN, "MlpLstmPolicy", steps, total, seed, gradient_steps=2, policy_kwargs=policy_kwargs)


def test_a_cue_is_remembered_for_three_steps():
    assert mean_return(recurrent(3, 4000, 0), 3) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_cue_is_remembered_for_ten_steps(cell, seed):
    assert mean_return(recurrent(10, 30_000, seed, cell=cell), 10) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_its_memoryless_twin_gets_one_half_at_most(seed):
    twin = trained(DQN, "MlpPolicy", 10, 30_000, seed, batch_size=128, gradient_steps=2)
    assert mean_return(twin, 10) <= 0.5
