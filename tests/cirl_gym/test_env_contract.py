"""What both environments promise in every form, first of all where users of other environments have met faults.

A wheel that registers nothing, observations outside the space, arrays shared between calls, randomness from elsewhere,
two time limits, reset observations taken for outcomes.
"""

from __future__ import annotations

import copy
import os
import random
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from env_runs import IDS, AutoresetMode, assert_refused, assert_same, copied, episode, native, new_gymnasium
from sb3_contrib import RecurrentPPO
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from scripted import Scripted
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv

from cirl_gym import CounterfactualWorld, TumourWorld, rollout
from cirl_gym.outcome_models.oracle import OracleModel

ROOT = Path(__file__).parents[2]


def test_the_wheel_registers_with_no_other_import_and_holds_every_file_that_is_read(tmp_path):
    if not (ROOT / "cirl_gym").exists():
        pytest.skip("needs the source tree")
    packages, installed = ("cirl_gym", "agents", "irl"), tmp_path / "installed"
    for name in packages:
        shutil.copytree(ROOT / name, tmp_path / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / "source")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", tmp_path]
    subprocess.run([*build, tmp_path / "source"], check=True, capture_output=True)
    (built,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(built).extractall(installed)

    def files(root):
        paths = (path for name in packages for path in (root / name).rglob("*"))
        return {path.relative_to(root) for path in paths if path.is_file() and "__pycache__" not in path.parts}

    assert files(installed) == files(ROOT)
    for env_id in IDS:
        code = f"""
import gymnasium
env = gymnasium.make("cirl_gym:{env_id}")
env.reset(seed=0)
env.step(1)
import cirl_gym, importlib
assert cirl_gym.__file__.startswith({str(installed)!r}), cirl_gym.__file__
importlib.reload(cirl_gym)
gymnasium.make("{env_id}").reset(seed=0)
"""
        # With warnings as errors.
        command, environment = [sys.executable, "-W", "error", "-c", code], {**os.environ, "PYTHONPATH": str(installed)}
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("env_id", IDS)
def test_spawned_workers_of_stable_baselines_find_it_and_are_asked_for_masks(env_id):
    workers = {"vec_env_cls": SubprocVecEnv, "vec_env_kwargs": {"start_method": "spawn"}}
    rules = {"forbid": ["1 when Above(side_effects, 2)"]}
    env = make_vec_env(f"cirl_gym:{env_id}", 2, seed=7, env_kwargs=rules, **workers)
    try:
        obs = env.reset()
        assert is_masking_supported(env)
        assert get_action_masks(env).tolist() == [[True, row[1] <= 2] for row in obs]
        assert env.step(np.array([0, 0]))[0].shape == (2, 4)
    finally:
        env.close()
    for i in range(2):
        np.testing.assert_array_equal(obs[i], gym.make(env_id).reset(seed=7 + i)[0])


def first_observation(env_id, start):
    """Where every episode begins; None: drawn."""
    if start == "drawn" or env_id == "CIRLTumour-v0":
        return {"drawn": None, "highest": (49.9, 14.9), "lowest": (1e-3, 0.0)}[start]
    space = gym.make(env_id).observation_space
    return (space.high if start == "highest" else space.low)[:2]


@new_gymnasium
@pytest.mark.parametrize("start", ["drawn", "highest", "lowest"])
@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("env_id", IDS)
def test_five_thousand_episodes_stay_inside_the_space(env_id, chance, start):
    n, episodes, rng = 500, 0, np.random.default_rng(0)
    # The world model's bounds are 127 and 17.8, of ranges 50 and 15.
    most = {"CIRLTumour-v0": 1.3, "CIRLCounterfactual-v0": 0.31 * 127.5 / 50 + 0.7 * 17.8 / 15}[env_id]
    arguments = {"outcome": "sampled"} if env_id == "CIRLCounterfactual-v0" else {}
    env = native(env_id, AutoresetMode.SAME_STEP, n, **arguments, patient=first_observation(env_id, start))
    obs, _ = env.reset(seed=0)
    while episodes < 5000:
        assert obs.dtype == np.float32
        assert obs in env.observation_space
        obs, rewards, _, _, info = env.step((rng.random(n) < chance).astype(np.int64))
        assert (np.abs(rewards) <= most).all()
        ended = info.get("_final_obs", np.zeros(n, dtype=bool))
        if ended.any():
            last = np.stack(info["final_obs"][ended])
            assert last.dtype == np.float32
            assert (last >= env.single_observation_space.low).all()
            assert (last <= env.single_observation_space.high).all()
            episodes += int(ended.sum())


@pytest.mark.slow
@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("env_id", IDS)
def test_five_thousand_episodes_of_the_single_form(env_id, chance):
    env, rng = gym.make(env_id), random.Random(0)
    for k in range(5000):
        options = {"patient": first_observation(env_id, "highest")} if k % 4 == 0 else None
        actions = (int(rng.random() < chance) for _ in range(20))
        seen, _ = episode(env, actions, seed=0 if k == 0 else None, options=options)
        assert all(obs.dtype == np.float32 and obs in env.observation_space for obs in seen)


@pytest.mark.parametrize("env_id", IDS)
def test_nothing_returned_is_shared_with_the_environment(env_id):
    env, reference = gym.make(env_id), gym.make(env_id)
    returned = [env.reset(seed=1), *(env.step(1) for _ in range(5))]
    frozen = copy.deepcopy(returned)
    later = [env.step(0), env.reset()]
    assert_same(returned, frozen)
    for obs, *_, info in (*returned, *later):
        for array in (obs, *(value for value in info.values() if isinstance(value, np.ndarray))):
            array[...] = -1
    reference.reset(seed=1)
    for action in (1, 1, 1, 1, 1, 0):
        reference.step(action)
    reference.reset()
    for action in (1, 0):
        assert_same(env.step(action), reference.step(action))


@copied
@pytest.mark.parametrize("env_id", IDS)
def test_a_copy_goes_on_like_the_original(env_id, copied):
    # Gymnasium's own wrapper would end the episode.
    env = gym.make(env_id, max_episode_steps=100).unwrapped
    env.reset(seed=0, options={"patient": (30, 2)})
    env.step(0)
    twin = copied(env)
    # Beyond the first block of noise, and into the next episode.
    for action in [1, 0, 0, 0, 0] * 5:
        assert_same(env.step(action), twin.step(action))
    assert_same(env.reset(), twin.reset())


@pytest.mark.parametrize("action", [2, -1, 0.5, "1", None, np.array([1]), np.float32(1)])
@pytest.mark.parametrize("env_id", IDS)
def test_a_bad_action_leaves_the_state_alone(env_id, action):
    assert_refused(lambda: gym.make(env_id).unwrapped, lambda env: env.step(action), "action must be")


@pytest.mark.parametrize("env_id", IDS)
def test_step_needs_an_episode(env_id):
    env = gym.make(env_id).unwrapped
    with pytest.raises(gym.error.ResetNeeded):
        env.step(0)
    env.reset(seed=0, options={"horizon": 1})
    env.step(0)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(0)


@pytest.mark.parametrize(("env_id", "algorithm"), [(IDS[0], PPO), (IDS[0], RecurrentPPO), (IDS[1], PPO)])
def test_stable_baselines_learns_without_a_warning(env_id, algorithm):
    policy, options = "MlpPolicy", {}
    if algorithm is RecurrentPPO:
        shared = {"lstm_hidden_size": 16, "shared_lstm": True, "enable_critic_lstm": False}
        policy, options = "MlpLstmPolicy", {"policy_kwargs": shared}
    agent = algorithm(policy, gym.make(env_id), n_steps=64, seed=0, device="cpu", **options)
    before = {name: value.clone() for name, value in agent.policy.state_dict().items()}
    agent.learn(128)
    assert agent.num_timesteps == 128
    assert any((value != before[name]).any() for name, value in agent.policy.state_dict().items())


def test_collected_episodes_are_nobodys_arrays():
    world = TumourWorld()
    batch = rollout(world, Scripted(0.5), 5, np.random.default_rng(0))
    imagined = CounterfactualWorld(OracleModel(), batch.start, 20)
    before = batch.obs.tobytes()
    again = rollout(imagined, Scripted(0.5), 5, np.random.default_rng(0))
    assert batch.obs.tobytes() == before
    for array in (batch.obs, batch.actions, again.obs):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0


@pytest.mark.parametrize("env_id", IDS)
def test_all_randomness_is_the_environments_own(env_id):
    def states():
        return random.getstate(), np.random.get_state()[1].tobytes(), torch.random.get_rng_state().tolist()  # noqa: NPY002

    runs = []
    for k in range(2):
        env = gym.make(env_id, **({"outcome": "sampled"} if env_id == IDS[1] else {}))
        env.reset(seed=5)
        seen = []
        for _ in range(4):
            # The process-wide generators are nobody's business here.
            random.seed(k)
            np.random.seed(k)  # noqa: NPY002
            torch.manual_seed(k)
            before = states()
            seen.append(np.array([env.reset()[0], *(env.step(a)[0] for a in (1, 0, 0))]))
            assert states() == before
        runs.append(seen)
    assert_same(*runs)
    assert len({episode.tobytes() for episode in runs[0]}) == 4


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("vectorization_mode", ["sync", pytest.param("vector_entry_point", marks=new_gymnasium)])
def test_row_i_is_seeded_with_s_plus_i(env_id, vectorization_mode):
    obs, _ = gym.make_vec(env_id, 3, vectorization_mode).reset(seed=7)
    for i in range(3):
        assert gym.make(env_id).reset(seed=7 + i)[0].tobytes() == obs[i].tobytes()


@pytest.mark.parametrize(("asked", "steps"), [(None, 20), (5, 5), (50, 50), (-1, None)])
@pytest.mark.parametrize("form", ["single", pytest.param("native", marks=new_gymnasium)])
@pytest.mark.parametrize("env_id", IDS)
def test_one_place_owns_the_time_limit(env_id, form, asked, steps):
    if asked == -1 and gym.__version__.startswith("0."):
        pytest.skip("-1 removes the limit from Gymnasium 1.0 on")
    arguments = {} if asked is None else {"max_episode_steps": asked}
    if env_id == "CIRLCounterfactual-v0":
        arguments["end"] = "never"
    env = gym.make(env_id, **arguments) if form == "single" else native(env_id, AutoresetMode.DISABLED, 1, **arguments)
    env.reset(seed=0, options={"patient": (30, 2)})
    for t in range(1, 61):
        action = int(t % 5 == 1)  # balanced: neither cured nor failing
        _, _, terminated, truncated, _ = env.step(action if form == "single" else np.array([action]))
        assert not np.any(terminated)
        assert bool(np.all(truncated)) == (t == steps)
        if t == steps:
            return
    assert steps is None


def test_contradicting_limits_are_refused_by_name():
    with pytest.raises(ValueError, match=r"horizon=12 and max_episode_steps=50.*give max_episode_steps=12"):
        gym.make("CIRLCounterfactual-v0", horizon=12, max_episode_steps=50)
    with pytest.raises(ValueError, match="at least 1"):
        gym.make("CIRLCounterfactual-v0", max_episode_steps=0)


# One frozen trajectory per environment: a change here is a change of the environment and needs a new id.
ACTIONS = [1, 0, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
GOLDEN = {
    "CIRLTumour-v0": (
        """
        35.143711 3.6530645 35.258385 2.0557463 35.027367 1.8403205 32.729511 2.5219707 29.841566
        3.3199177 26.164085 4.1050715 26.693411 3.4170458 22.596081 4.6220174 19.967289 5.0535674
        17.423378 5.5259562 15.159155 5.8966737 10.314453 7.4194307 7.0252237 8.1782999 3.9557135
        8.9565992 0.73245907 9.7226181 0.0 10.577182
        """,
        """
        -0.30748514 -0.29604582 -0.31406904 -0.33397889 -0.34855452 -0.3196226 -0.35127063 -0.35563688
        -0.36241822 -0.36613303 -0.40812682 -0.42380534 -0.44170891 -0.45811693 -0.49360182
        """,
    ),
    "CIRLCounterfactual-v0": (
        """
        31.903875 2.6642292 31.912302 1.1748902 31.908062 0.86438888 29.404009 1.5100073 26.412958
        2.2758124 22.811306 3.1974339 23.495787 2.3058276 19.309401 3.5296311 16.791471 4.0649672
        14.26985 4.5712609 11.840283 5.0333076 7.1480169 6.4004583 3.8781908 7.2205534 0.79311663
        7.9601984 0.0 8.7397003
        """,
        """
        -0.25016112 -0.2357877 -0.25025042 -0.26727752 -0.28775667 -0.25075929 -0.28161242 -0.29089413
        -0.29881122 -0.30524879 -0.33962058 -0.35744518 -0.37268638 -0.40383695
        """,
    ),
}
"""Observed features of every step, row by row; rewards."""


@pytest.mark.parametrize("env_id", IDS)
def test_golden_trajectory(env_id):
    seen, steps = episode(gym.make(env_id), ACTIONS, seed=2024)
    rewards, *ends = zip(*(step[:3] for step in steps), strict=True)
    numbers, earned = (np.array(text.split(), dtype=float) for text in GOLDEN[env_id])
    np.testing.assert_allclose(np.array(seen)[:, :2].ravel(), numbers, rtol=2e-6)
    np.testing.assert_allclose(rewards, earned, rtol=2e-6)
    assert ends == [(False,) * (len(steps) - 1) + (True,), (False,) * len(steps)]
