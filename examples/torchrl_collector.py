"""TorchRL: PPO on 64 patients at once, data by TorchRL's Collector from the native vector environment.

    pip install torch==2.13.0
    pip install cirl-gym torchrl==0.14.1
    python examples/torchrl_collector.py [--steps 80000] [--episodes 500] [--seed 0]

Tried with Python 3.11, gymnasium 1.4.0, tensordict 0.14.3. Three things to know:

- TorchRL resets environments itself: ask ``make_vec`` for ``AutoresetMode.DISABLED`` (it refuses the default).
- The process remembers its last five steps, a feed-forward network remembers nothing: ``CatFrames`` shows it the last
  five observations, each with the action before it.
- ``"cirl_gym:CIRLTumour-v0"`` instead of the bare id also works in TorchRL's worker processes.
"""

from __future__ import annotations

import argparse

import gymnasium
import torch
from gymnasium.vector import AutoresetMode
from tensordict.nn import TensorDictModule
from torch import nn
from torch.nn import functional
from torchrl.collectors import Collector
from torchrl.envs import CatFrames, Compose, GymWrapper, InitTracker, ObservationNorm, RewardSum, TransformedEnv
from torchrl.modules import OneHotCategorical, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

FRAMES, WIDTH, HORIZON = 5, 64, 20
MEAN, SPREAD = torch.tensor([28.0, 3.0, 0.5, 0.5]), torch.tensor([8.0, 3.0, 0.5, 0.5])
"""About those of [x, z, one-hot previous action] among all patients."""


def make_env(patients: int, seed: int) -> TransformedEnv:
    """``patients`` environments in one; an observation is the last five of [x, z, previous action]."""
    vector = gymnasium.make_vec("cirl_gym:CIRLTumour-v0", num_envs=patients, autoreset_mode=AutoresetMode.DISABLED)
    env = GymWrapper(vector)
    transforms = Compose(
        ObservationNorm(MEAN, SPREAD, in_keys=["observation"], standard_normal=True),
        CatFrames(FRAMES, dim=-1, in_keys=["observation"], padding="constant"),
        RewardSum(),
        InitTracker(),
    )
    env = TransformedEnv(env, transforms)
    env.set_seed(seed)
    return env


def network(out: int) -> nn.Sequential:
    """Two hidden layers."""
    return nn.Sequential(nn.LazyLinear(WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, out))


def train(env: TransformedEnv, steps: int) -> ProbabilisticActor:
    """PPO for about ``steps`` steps of one patient."""
    logits = TensorDictModule(network(2), in_keys=["observation"], out_keys=["logits"])
    actor = ProbabilisticActor(
        logits, spec=env.action_spec, in_keys=["logits"], distribution_class=OneHotCategorical, return_log_prob=True
    )
    critic = ValueOperator(network(1), in_keys=["observation"])
    first = env.reset()
    actor(first), critic(first)  # the lazy layers learn their input's size
    loss = ClipPPOLoss(actor, critic, entropy_coeff=0.01)
    advantage = GAE(gamma=0.99, lmbda=0.95, value_network=critic)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-3)
    patients = env.batch_size[0]
    per_batch = 2 * HORIZON * patients
    collector = Collector(env, actor, frames_per_batch=per_batch, total_frames=per_batch * max(1, steps // per_batch))
    for number, data in enumerate(collector):
        for _ in range(6):
            with torch.no_grad():
                advantage(data)
            rows = data.reshape(-1)
            for part in torch.randperm(len(rows)).split(256):
                losses = loss(rows[part])
                total = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
                optimizer.zero_grad()
                total.backward()
                nn.utils.clip_grad_norm_(loss.parameters(), 0.5)
                optimizer.step()
        if number % 10 == 0:
            ended = data["next", "episode_reward"][data["next", "done"]]
            print(f"batch {number}: mean return of {len(ended)} episodes {ended.mean():.3f}", flush=True)
    collector.shutdown()
    return actor


def blind(chance: float) -> TensorDictModule:
    """Treats with this probability, whatever it sees; actions are one-hot in TorchRL."""

    def act(seen: torch.Tensor) -> torch.Tensor:
        return functional.one_hot((torch.rand(seen.shape[:-1]) < chance).long(), 2)

    return TensorDictModule(act, in_keys=["observation"], out_keys=["action"])


def mean_return(policy: TensorDictModule, episodes: int, seed: int) -> float:
    """Mean over the first episode of each patient; the same seed gives the same patients and noise."""
    with torch.no_grad():
        played = make_env(episodes, seed).rollout(HORIZON, policy, break_when_any_done=False)
    first = played["next", "done"].int().argmax(dim=1, keepdim=True)
    return float(played["next", "episode_reward"].gather(1, first).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description="PPO by TorchRL on CIRLTumour-v0.")
    parser.add_argument("--steps", type=int, default=80_000, help="steps of training")
    parser.add_argument("--episodes", type=int, default=500, help="patients to compare on")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    actor = train(make_env(64, arguments.seed), arguments.steps)
    print(f"mean return over {arguments.episodes} patients")
    policies = {"TorchRL PPO": actor, "never treat": blind(0), "always treat": blind(1), "random": blind(0.5)}
    for name, policy in policies.items():
        print(f"{name:<14}{mean_return(policy, arguments.episodes, arguments.seed + 1):8.3f}")


if __name__ == "__main__":
    main()
