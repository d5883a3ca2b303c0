"""tianshou: its recurrent DQN in the race of agent_speed.py, beside successor features and DRQN of this package.

    pip install torch==2.13.0
    pip install cirl-gym tianshou==2.0.1 joblib jsonargparse rliable "pandas<3"
    python benchmarks/tianshou_drqn.py [--weights -0.3 -0.7] [--gamma 0.99] [--patients 10] [--seed 0] [--limit 300]

Tried with Python 3.11, gymnasium 1.4.0, numpy 2.4.6. tianshou replays single steps with the ``stack_num`` observations
before them, and carries its LSTM's memory while it acts. Rates, replay, batches and exploration are those of tianshou's
own example, made for CartPole. What differs serves this task or the clock: stacks as long as an episode (a shorter one
is filled up with its first observation), the task's gamma, observations scaled to [-1, 1] and a horizon that ends the
episode for good, both as our DRQN has them, a network of our DRQN's size, a target network every 100 updates (not 320),
and no search of the whole replay for NaN after every collection. What numba compiles first is not counted either. "not
within" says that training ended below.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from agent_speed import Race, begin, options, reached, run_ours
from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch as Rows
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Recurrent
from tianshou.utils.torch_utils import policy_within_training_step

from agents.solvers import Point

ENVS = 16
BATCH = 128
LOOK = 800
"""Steps between two looks at the policy."""


class EndsAtHorizon(gymnasium.Wrapper):
    """The horizon ends an episode for good; without infos, which the replay would stack as well."""

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """As the environment, without infos."""
        return self.env.reset(**arguments)[0], {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As the environment, never truncated."""
        obs, reward, terminated, truncated, _ = self.env.step(action)
        return obs, reward, terminated or truncated, False, {}


class UncheckedReplay(VectorReplayBuffer):
    """Not searched for NaN: tianshou does that after every collection, in all stacks of the whole replay at once."""

    def hasnull(self) -> bool:
        """No."""
        return False


def make_env(weights: tuple[float, float]) -> gymnasium.Env:
    """What tianshou trains on."""
    env = gymnasium.make("CIRLTumour-v0", weights=weights)
    return EndsAtHorizon(gymnasium.wrappers.RescaleObservation(env, -1, 1))


class CarriedMemory:
    """tianshou's policy as one of this project, acting as its Collector does: memory carried from step to step."""

    def __init__(self, policy: DiscreteQLearningPolicy, space: gymnasium.spaces.Box) -> None:
        self._policy, self._low, self._high = policy, space.low, space.high

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, Any]:
        """Greedy actions ``[n]`` and the memory (hidden, cell); all rows begin together, where there is none."""
        memory = None if state is None else Rows(hidden=state[0], cell=state[1])
        seen = 2 * (observation - self._low) / (self._high - self._low) - 1
        with torch.no_grad():
            result = self._policy(Rows(obs=seen, info={}), memory)
        return result.act, (result.state.hidden, result.state.cell)


def train(race: Race, seed: int, limit: float) -> tuple[Point, ...]:
    """The curve of tianshou's recurrent DQN, until it is there or out of time."""
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002  # tianshou draws from it
    new_env = partial(make_env, race.setting.weights)
    env, horizon = new_env(), race.setting.parameters.horizon
    policy = DiscreteQLearningPolicy(
        model=Recurrent(
            layer_num=1, state_shape=env.observation_space.shape, action_shape=env.action_space.n, hidden_layer_size=64
        ),
        action_space=env.action_space,
        eps_training=0.1,
    )
    algorithm = DQN(
        policy=policy,
        optim=AdamOptimizerFactory(lr=1e-3),
        gamma=race.setting.gamma,
        n_step_return_horizon=3,
        target_update_freq=100,
    )
    buffer = UncheckedReplay(20_000, ENVS, stack_num=horizon, ignore_obs_next=True)
    collector = Collector(algorithm, DummyVectorEnv([new_env] * ENVS), buffer, exploration_noise=True)
    # By here numba has compiled what tianshou needs; that is not counted.
    begun = time.perf_counter()
    collector.reset(gym_reset_kwargs={"seed": seed})
    with policy_within_training_step(policy):
        collector.collect(n_step=BATCH * ENVS)
    trainer = algorithm.create_trainer(
        OffPolicyTrainerParams(
            training_collector=collector,
            epoch_num_steps=LOOK,
            collection_step_num_env_steps=ENVS,
            batch_size=BATCH,
            update_step_num_gradient_steps_per_sample=1 / ENVS,
            show_progress=False,
            verbose=False,
        )
    )
    trainer.reset(reset_collectors=False)
    shown = CarriedMemory(policy.eval(), env.unwrapped.observation_space)
    seconds, points = time.perf_counter() - begun, []
    while True:
        points.append(Point(collector.collect_step, seconds, race.watch(shown)))
        if points[-1].value >= race.target or seconds > limit:
            return tuple(points)
        begun = time.perf_counter()
        trainer.execute_epoch()
        seconds += time.perf_counter() - begun


def main() -> None:
    arguments = options((__doc__ or "").splitlines()[0], "tianshou's recurrent DQN").parse_args()
    race = begin(arguments.weights, arguments.gamma, arguments.patients)
    run_ours(race, ("successor", "drqn"), arguments.seed)
    print(
        f"  tianshou's recurrent DQN: {reached(train(race, arguments.seed, arguments.limit), race.target)}", flush=True
    )


if __name__ == "__main__":
    main()
