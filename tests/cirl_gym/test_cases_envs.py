"""Faults that users of other environments have met, each for both environments and every form of them.

Numbers and names follow public reports: the wheel that registers nothing, observations outside the space, arrays shared
between calls, randomness from elsewhere, two time limits, reset observations taken for outcomes.
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
from env_runs import CHANCES, IDS, assert_same, assert_single_courses, cut, native
from scripted import Scripted
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv

from cirl_gym import CounterfactualWorld, TumourWorld, rollout
from cirl_gym.outcome_models.oracle import OracleModel

ROOT = Path(__file__).parents[2]
AutoresetMode = getattr(gym.vector, "AutoresetMode", None)
new_gymnasium = pytest.mark.skipif(AutoresetMode is None, reason="needs gymnasium >= 1.1")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The built wheel, unpacked."""
    if not (ROOT / "cirl_gym").exists():
        pytest.skip("needs the source tree")
    folder = tmp_path_factory.mktemp("wheel")
    kept = ("cirl_gym", "agents", "irl")
    for name in kept:
        shutil.copytree(ROOT / name, folder / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder]
    subprocess.run([*build, folder / "source"], check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    zipfile.ZipFile(built).extractall(folder / "installed")
    return folder / "installed"


def run_elsewhere(code, installed, cwd):
    """Run code with the unpacked wheel, outside the source tree, with warnings as errors."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("env_id", IDS)
def test_case_1_the_wheel_registers_with_no_other_import(wheel, tmp_path, env_id):
    code = f"""
import gymnasium
env = gymnasium.make("cirl_gym:{env_id}")
env.reset(seed=0)
env.step(1)
import cirl_gym, importlib
assert cirl_gym.__file__.startswith({str(wheel)!r}), cirl_gym.__file__
importlib.reload(cirl_gym)
gymnasium.make("{env_id}").reset(seed=0)
"""
    assert run_elsewhere(code, wheel, tmp_path) == ""


def test_case_1_the_wheel_holds_every_file_that_is_read(wheel):
    def files(root):
        kept = (path for name in ("cirl_gym", "agents", "irl") for path in (root / name).rglob("*"))
        return {path.relative_to(root) for path in kept if path.is_file() and "__pycache__" not in path.parts}

    assert files(wheel) == files(ROOT)


@pytest.mark.parametrize("env_id", IDS)
def test_case_1_spawned_workers_of_stable_baselines_find_it(env_id):
    workers = {"vec_env_cls": SubprocVecEnv, "vec_env_kwargs": {"start_method": "spawn"}}
    env = make_vec_env(f"cirl_gym:{env_id}", 2, seed=7, **workers)
    try:
        obs = env.reset()
        assert env.step(np.array([1, 0]))[0].shape == (2, 4)
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
def test_case_2_five_thousand_episodes_stay_inside_the_space(env_id, chance, start):
    n, episodes, rng = 500, 0, np.random.default_rng(0)
    arguments = {"outcome": "sampled"} if env_id == "CIRLCounterfactual-v0" else {}
    env = native(env_id, AutoresetMode.SAME_STEP, n, **arguments, patient=first_observation(env_id, start))
    obs, _ = env.reset(seed=0)
    while episodes < 5000:
        assert obs.dtype == np.float32
        assert obs in env.observation_space
        obs, rewards, _, _, info = env.step((rng.random(n) < chance).astype(np.int64))
        assert (np.abs(rewards) <= 1.3).all()
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
def test_case_2_five_thousand_episodes_of_the_single_form(env_id, chance):
    env, rng = gym.make(env_id), random.Random(0)
    for k in range(5000):
        options = {"patient": first_observation(env_id, "highest")} if k % 4 == 0 else None
        obs, _ = env.reset(seed=0 if k == 0 else None, options=options)
        over = False
        while not over:
            assert obs.dtype == np.float32
            assert obs in env.observation_space
            obs, _, terminated, truncated, _ = env.step(int(rng.random() < chance))
            over = terminated or truncated
        assert obs in env.observation_space


@pytest.mark.parametrize("env_id", IDS)
def test_case_3_what_was_returned_does_not_change_later(env_id):
    env = gym.make(env_id)
    kept = [env.reset(seed=1)]
    kept += [env.step(1) for _ in range(5)]
    frozen = copy.deepcopy(kept)
    for _ in range(3):
        env.step(0)
    env.reset()
    for a, b in zip(kept, frozen, strict=True):
        assert_same(a, b)


def test_case_3_collected_episodes_are_nobodys_arrays():
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
def test_case_4_all_randomness_is_the_environments_own(env_id):
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
            states = random.getstate(), np.random.get_state()[1].tobytes(), torch.random.get_rng_state().tolist()  # noqa: NPY002
            seen.append(np.array([env.reset()[0], *(env.step(a)[0] for a in (1, 0, 0))]))
            assert states == (
                random.getstate(),
                np.random.get_state()[1].tobytes(),  # noqa: NPY002
                torch.random.get_rng_state().tolist(),
            )
        runs.append(seen)
    for a, b in zip(*runs, strict=True):
        assert a.tobytes() == b.tobytes()
    assert len({episode.tobytes() for episode in runs[0]}) == 4


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("vectorization_mode", ["sync", pytest.param("vector_entry_point", marks=new_gymnasium)])
def test_case_4_row_i_is_seeded_with_s_plus_i(env_id, vectorization_mode):
    obs, _ = gym.make_vec(env_id, 3, vectorization_mode).reset(seed=7)
    for i in range(3):
        assert gym.make(env_id).reset(seed=7 + i)[0].tobytes() == obs[i].tobytes()


@pytest.mark.parametrize(("asked", "steps"), [(None, 20), (5, 5), (50, 50), (-1, None)])
@pytest.mark.parametrize("form", ["single", pytest.param("native", marks=new_gymnasium)])
@pytest.mark.parametrize("env_id", IDS)
def test_case_5_one_place_owns_the_time_limit(env_id, form, asked, steps):
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


def test_case_5_contradicting_limits_are_refused_by_name():
    with pytest.raises(ValueError, match=r"horizon=12 and max_episode_steps=50.*give max_episode_steps=12"):
        gym.make("CIRLCounterfactual-v0", horizon=12, max_episode_steps=50)
    with pytest.raises(ValueError, match="at least 1"):
        gym.make("CIRLCounterfactual-v0", max_episode_steps=0)


MODES = [] if AutoresetMode is None else [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]


@new_gymnasium
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("vectorization_mode", ["sync", "async", "vector_entry_point"])
def test_case_6_cut_trajectories_are_those_of_single_environments(vectorization_mode, mode):
    chosen = {"vector_kwargs": {"autoreset_mode": mode, "context": "spawn"}}
    if vectorization_mode == "sync":
        chosen = {"vector_kwargs": {"autoreset_mode": mode}}
    if vectorization_mode == "vector_entry_point":
        chosen = {"autoreset_mode": mode}
    env = gym.make_vec("cirl_gym:CIRLTumour-v0", 3, vectorization_mode, **chosen)
    actions = (np.random.default_rng(1).random((60, 3)) < CHANCES).astype(np.int64)
    try:
        found, used = cut(env, actions, mode)
    finally:
        env.close()
    for i in range(3):
        assert len({len(episode) for episode in found[i]}) > 1 or i == 2
    assert_single_courses("CIRLTumour-v0", found, used)
