"""tianshou: its GAIL imitates the simulated expert on CIRLTumour-v0.

    pip install torch==2.13.0
    pip install cirl-gym tianshou==2.0.1 joblib jsonargparse rliable "pandas<3"
    python examples/tianshou_gail.py [--steps 60000] [--episodes 500] [--seed 0] [--batch runs/demo/batch.npz]

Tried with Python 3.11, gymnasium 1.4.0, pandas 2.3.3. GAIL sees no reward: a network learns to tell the expert's
actions from the policy's, and the policy learns (by PPO) to be taken for the expert. tianshou's GAIL is written for
continuous actions; :class:`DiscreteGAIL` shows its discriminator discrete ones.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gymnasium
import numpy as np
import torch
from comparison import FRAMES, Feedforward, demonstrations, histories, print_returns
from tianshou.algorithm.imitation.gail import GAIL
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch as Rows
from tianshou.data import Collector, ReplayBuffer, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic, dist_fn_categorical_from_logits
from torch import nn
from torch.nn.functional import one_hot

import cirl_gym
from cirl_gym.interop import shown_observations
from cirl_gym.wrappers.history import HistoryObservation

ENVS = 16


class DiscreteGAIL(GAIL):
    """GAIL whose discriminator sees [observation, one-hot action]."""

    def disc(self, batch: Rows) -> torch.Tensor:
        """Logits ``[n, 1]``, positive for what looks like the expert."""
        action = one_hot(torch.as_tensor(batch.act).long(), self.action_dim)
        return self.disc_net(torch.cat([torch.as_tensor(batch.obs), action], dim=1))


def make_env() -> gymnasium.Env:
    """GAIL's policy has no memory: it sees the last five of [x, z, previous action], all that the process remembers."""
    return HistoryObservation(gymnasium.make("cirl_gym:CIRLTumour-v0"), length=FRAMES)


def expert_buffer(demos: cirl_gym.Batch) -> ReplayBuffer:
    """Every step of the demonstrations, as tianshou stores them; GAIL reads observations and actions only."""
    seen = histories(shown_observations(demos))
    buffer = ReplayBuffer(size=demos.n_steps)
    for i, length in enumerate(demos.lengths):
        for t in range(length):
            last = t == length - 1
            ends = {"terminated": last and demos.terminated[i], "truncated": last and demos.truncated[i]}
            step = Rows(obs=seen[i, t], act=demos.actions[i, t], rew=0.0, obs_next=seen[i, t + 1], info={}, **ends)
            buffer.add(step)
    return buffer


def train(demos: cirl_gym.Batch, steps: int, seed: int) -> ProbabilisticActorPolicy:
    """GAIL for about ``steps`` steps in the simulator."""
    env = make_env()
    size, hidden = env.observation_space.shape[0], {"hidden_sizes": (64, 64), "norm_layer": nn.LayerNorm}
    actor = DiscreteActor(preprocess_net=Net(state_shape=size, **hidden), action_shape=2, softmax_output=False)
    policy = ProbabilisticActorPolicy(
        actor=actor,
        dist_fn=dist_fn_categorical_from_logits,
        deterministic_eval=True,
        action_space=env.action_space,
        action_scaling=False,
    )
    algorithm = DiscreteGAIL(
        policy=policy,
        critic=DiscreteCritic(preprocess_net=Net(state_shape=size, **hidden)),
        optim=AdamOptimizerFactory(lr=1e-3),
        expert_buffer=expert_buffer(demos),
        disc_net=nn.Sequential(nn.Linear(size + 2, 64), nn.LayerNorm(64), nn.Tanh(), nn.Linear(64, 1)),
        disc_optim=AdamOptimizerFactory(lr=3e-3),
        disc_update_num=16,
    )
    collector = Collector(algorithm, DummyVectorEnv([make_env] * ENVS), VectorReplayBuffer(20_000, ENVS))
    collector.reset(gym_reset_kwargs={"seed": seed})
    parameters = OnPolicyTrainerParams(
        training_collector=collector,
        max_epochs=max(1, steps // 10_240),
        epoch_num_steps=min(steps, 10_240),
        collection_step_num_env_steps=min(steps, 2048),
        update_step_num_repetitions=6,
        batch_size=256,
        show_progress=False,
        verbose=False,
    )
    result = algorithm.run_training(parameters)
    print(f"{result.train_step} steps in {result.timing.total_time:.0f} s")
    return policy


def main() -> None:
    parser = argparse.ArgumentParser(description="GAIL by tianshou on CIRLTumour-v0.")
    parser.add_argument("--steps", type=int, default=60_000, help="steps of training in the simulator")
    parser.add_argument("--episodes", type=int, default=500, help="episodes of the expert, and patients to compare on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=Path, help="the expert's episodes, a file that `cirl demo` wrote")
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    np.random.seed(arguments.seed)  # noqa: NPY002  # tianshou draws from it
    demos = demonstrations(arguments.batch, arguments.episodes, arguments.seed)
    policy = train(demos, arguments.steps, arguments.seed).eval()
    with torch.no_grad():
        learnt = Feedforward(lambda recent: policy(Rows(obs=recent, info={})).logits.argmax(dim=1))
        print_returns({"tianshou GAIL": learnt}, arguments.episodes, arguments.seed + 1)


if __name__ == "__main__":
    main()
