"""imitation: BC, GAIL and AIRL learn from the simulated expert on CIRLTumour-v0.

In a fresh environment, where it brings gymnasium 0.29.1 and stable-baselines3 2.2.1:

    pip install torch==2.13.0
    pip install cirl-gym imitation==1.0.1 stable-baselines3==2.2.1 sb3-contrib==2.2.1

or beside gymnasium 1.4.0 and stable-baselines3 2.9.2:

    pip install torch==2.13.0
    pip install cirl-gym
    pip install scikit-learn tqdm rich matplotlib tensorboard datasets pyyaml wasabi jsonpickle
    pip install --no-deps imitation==1.0.1 seals==0.2.1 huggingface-sb3==3.0

    python examples/imitation_baselines.py [--steps 25000] [--episodes 500] [--seed 0] [--batch runs/demo/batch.npz]

Tried with Python 3.11. Episodes end when the patient is cured or a limit is reached, so GAIL and AIRL must be told
``allow_variable_horizon=True``. The policies of all three have no memory, but the process remembers its last five
steps: ``HistoryObservation`` shows them as many. (RecurrentPPO cannot be the learner of GAIL or AIRL.)
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import torch
from baseline_returns import FEATURE_MAP, GAMMA, WEIGHTS
from comparison import FRAMES, Feedforward, demonstrations, histories, print_returns
from imitation.algorithms.adversarial.airl import AIRL
from imitation.algorithms.adversarial.gail import GAIL
from imitation.algorithms.bc import BC
from imitation.data.types import TrajectoryWithRew
from imitation.policies.base import NormalizeFeaturesExtractor
from imitation.rewards.reward_nets import BasicRewardNet, BasicShapedRewardNet
from imitation.util.logger import configure
from imitation.util.networks import RunningNorm
from stable_baselines3 import PPO
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.vec_env import DummyVecEnv

from cirl_gym import Batch
from cirl_gym.interop import to_imitation
from cirl_gym.wrappers.history import HistoryObservation

ENVS = 16
SCALED = {
    "features_extractor_class": NormalizeFeaturesExtractor,
    "features_extractor_kwargs": {"normalize_class": RunningNorm},
}
"""Of a policy: it sees observations scaled to about mean 0 and spread 1."""


def make_env() -> gymnasium.Env:
    """An observation is the last five of [x, z, previous action]."""
    return HistoryObservation(gymnasium.make("cirl_gym:CIRLTumour-v0"), length=FRAMES)


def trajectories(batch: Batch) -> list[TrajectoryWithRew]:
    """The batch as imitation has demonstrations, seen as :func:`make_env` shows them."""
    plain = to_imitation(batch, FEATURE_MAP, WEIGHTS)
    return [replace(trajectory, obs=histories(trajectory.obs[None])[0]) for trajectory in plain]


def clone(demos: list[TrajectoryWithRew], steps: int, seed: int) -> BasePolicy:
    """Behaviour cloning; ``steps`` samples of the demonstrations."""
    env = make_env()
    spaces = env.observation_space, env.action_space
    policy = ActorCriticPolicy(*spaces, lr_schedule=lambda _: 1e-3, net_arch=[64, 64], **SCALED)
    cloning = BC(
        observation_space=spaces[0],
        action_space=spaces[1],
        rng=np.random.default_rng(seed),
        policy=policy,
        demonstrations=demos,
        batch_size=64,
        custom_logger=configure(format_strs=[]),
    )
    cloning.train(n_batches=max(1, steps // 64), progress_bar=False)
    return cloning.policy


def compete(kind: type[GAIL] | type[AIRL], demos: list[TrajectoryWithRew], steps: int, seed: int) -> BasePolicy:
    """GAIL or AIRL: PPO learns for ``steps`` steps in the simulator to be taken for the expert."""
    envs = DummyVecEnv([make_env] * ENVS)
    envs.seed(seed)
    learner = PPO(
        "MlpPolicy",
        envs,
        n_steps=128,
        batch_size=256,
        n_epochs=6,
        learning_rate=1e-3,
        gamma=GAMMA,
        ent_coef=0.01,
        policy_kwargs=SCALED,
        seed=seed,
    )
    net = BasicRewardNet if kind is GAIL else BasicShapedRewardNet
    trainer = kind(
        demonstrations=demos,
        demo_batch_size=min(512, sum(len(trajectory) for trajectory in demos)),
        venv=envs,
        gen_algo=learner,
        reward_net=net(envs.observation_space, envs.action_space, normalize_input_layer=RunningNorm),
        n_disc_updates_per_round=16,
        allow_variable_horizon=True,
        custom_logger=configure(format_strs=[]),
    )
    trainer.train(max(steps, 128 * ENVS))
    return learner.policy


def main() -> None:
    parser = argparse.ArgumentParser(description="BC, GAIL and AIRL by imitation on CIRLTumour-v0.")
    parser.add_argument("--steps", type=int, default=25_000, help="steps of training of each algorithm")
    parser.add_argument("--episodes", type=int, default=500, help="episodes of the expert, and patients to compare on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=Path, help="the expert's episodes, a file that `cirl demo` wrote")
    arguments = parser.parse_args()
    steps, seed = arguments.steps, arguments.seed
    torch.manual_seed(seed)
    demos = trajectories(demonstrations(arguments.batch, arguments.episodes, seed))
    policies = {
        "BC": clone(demos, steps, seed),
        "GAIL": compete(GAIL, demos, steps, seed),
        "AIRL": compete(AIRL, demos, steps, seed),
    }
    learnt = {
        name: Feedforward(lambda seen, p=p: p.predict(seen, deterministic=True)[0]) for name, p in policies.items()
    }
    print_returns(learnt, arguments.episodes, seed + 1)


if __name__ == "__main__":
    main()
