"""RL Baselines3 Zoo: PPO trained by the Zoo's own command, with this file as its table of hyper-parameters.

    pip install torch==2.13.0
    pip install cirl-gym rl-zoo3==2.9.2 requests pandas
    python examples/rl_zoo.py [--steps 60000] [--episodes 300] [--seed 0] [--folder runs/zoo]

Tried with Python 3.11, stable-baselines3 2.9.2, gymnasium 1.4.0. The command that it runs is

    python -m rl_zoo3.train --algo ppo --gym-packages cirl_gym --env CIRLTumour-v0 --conf-file examples/rl_zoo.py

The id is the bare one, made known by ``--gym-packages`` (the Zoo refuses ``cirl_gym:CIRLTumour-v0``). The process
remembers its last five steps and PPO nothing: ``frame_stack`` shows it the last five observations, each with the action
before it. (``--algo ppo_lstm`` remembers by itself, but takes minutes.) The Zoo's other commands take the same two
options: ``python -m rl_zoo3.enjoy``, and ``rl_zoo3.train --optimize-hyperparameters``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ENV, ALGORITHM = "CIRLTumour-v0", "ppo"

hyperparams = {
    ENV: {
        "policy": "MlpPolicy",
        "n_envs": 16,
        "n_timesteps": 60_000.0,
        "frame_stack": 5,
        "normalize": {"norm_obs": True, "norm_reward": False},
        "n_steps": 128,
        "batch_size": 256,
        "n_epochs": 6,
        "learning_rate": 1e-3,
        "ent_coef": 0.01,
        "gamma": 0.99,
    }
}
"""What the Zoo looks for in a configuration file: one entry per environment."""


def train(steps: int, seed: int, folder: Path) -> Path:
    """Run the Zoo; the folder of what it has trained."""
    command = [sys.executable, "-m", "rl_zoo3.train", "--algo", ALGORITHM, "--gym-packages", "cirl_gym", "--env", ENV]
    command += ["--conf-file", __file__, "--n-timesteps", str(steps), "--seed", str(seed)]
    command += ["--log-folder", str(folder), "--eval-freq", "-1", "--log-interval", "10", "--num-threads", "1"]
    subprocess.run(command, check=True)
    return max((folder / ALGORITHM).glob(f"{ENV}_*"), key=lambda run: int(run.name.rsplit("_", 1)[1]))


def print_returns(run: Path, episodes: int, seed: int) -> None:
    """The trained policy beside those that look at nothing; all have the same patients and noise."""
    import numpy as np
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize

    from agents.policies.policy import ConstantPolicy

    env = VecNormalize.load(str(run / ENV / "vecnormalize.pkl"), make_vec_env(f"cirl_gym:{ENV}", n_envs=16))
    env.training, env.norm_reward = False, False
    env = VecFrameStack(env, hyperparams[ENV]["frame_stack"])
    rng = np.random.default_rng(seed)
    policies = {
        "RL Zoo PPO": PPO.load(run / f"{ENV}.zip"),
        "never treat": ConstantPolicy(0, 2, rng),
        "always treat": ConstantPolicy(1, 2, rng),
        "random": ConstantPolicy(None, 2, rng),
    }
    print(f"mean return over {episodes} patients")
    for name, policy in policies.items():
        env.seed(seed)
        mean, _ = evaluate_policy(policy, env, n_eval_episodes=episodes)
        print(f"{name:<14}{mean:8.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="PPO by RL Baselines3 Zoo on CIRLTumour-v0.")
    parser.add_argument("--steps", type=int, default=60_000, help="steps of training")
    parser.add_argument("--episodes", type=int, default=300, help="patients to compare on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("runs/zoo"), help="where the Zoo writes its runs")
    arguments = parser.parse_args()
    run = train(arguments.steps, arguments.seed, arguments.folder)
    print_returns(run, arguments.episodes, arguments.seed + 1)


if __name__ == "__main__":
    main()
