"""d3rlpy: offline reinforcement learning from the expert's episodes alone, by discrete CQL.

    pip install torch==2.13.0
    pip install cirl-gym
    pip install --no-deps d3rlpy==2.8.1 gym==0.26.2
    pip install structlog dataclasses-json click colorama tqdm scikit-learn h5py
    python examples/d3rlpy_offline.py [--steps 2000] [--episodes 1000] [--seed 0] [--batch runs/demo/batch.npz]

Tried with Python 3.11 and gymnasium 1.4.0 (d3rlpy's own requirements would replace it by 1.0.0, hence ``--no-deps``).
``to_d3rlpy`` loses neither the last action of an episode that was cut nor the observation that ended one. The
simulator is used at the end only, to see what was learnt.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import d3rlpy
from baseline_returns import FEATURE_MAP, GAMMA, WEIGHTS
from comparison import Feedforward, demonstrations, histories, print_returns
from d3rlpy.dataset import InfiniteBuffer, ReplayBuffer
from d3rlpy.logging import NoopAdapterFactory

from cirl_gym import Batch
from cirl_gym.interop import KeepLastObservation, to_d3rlpy


def dataset(batch: Batch) -> ReplayBuffer:
    """The batch as d3rlpy has data, every observation replaced by the last five: CQL's network has no memory."""
    plain = to_d3rlpy(batch, FEATURE_MAP, WEIGHTS)
    return ReplayBuffer(
        InfiniteBuffer(),
        transition_picker=KeepLastObservation(),
        episodes=[
            replace(episode, observations=histories(episode.observations[None])[0]) for episode in plain.episodes
        ],
        action_space=d3rlpy.ActionSpace.DISCRETE,
        action_size=batch.n_actions,
    )


def train(data: ReplayBuffer, steps: int) -> d3rlpy.algos.DiscreteCQL:
    """Conservative Q-learning from the data alone."""
    settings = d3rlpy.algos.DiscreteCQLConfig(
        batch_size=256,
        gamma=GAMMA,
        learning_rate=1e-3,
        target_update_interval=200,
        alpha=0.1,
        observation_scaler=d3rlpy.preprocessing.StandardObservationScaler(),
    )
    algorithm = settings.create(device="cpu")
    algorithm.fit(
        data,
        n_steps=steps,
        n_steps_per_epoch=steps,
        logger_adapter=NoopAdapterFactory(),
        show_progress=False,
    )
    return algorithm


def main() -> None:
    parser = argparse.ArgumentParser(description="Discrete CQL by d3rlpy on an expert's episodes.")
    parser.add_argument("--steps", type=int, default=2000, help="gradient steps")
    parser.add_argument("--episodes", type=int, default=1000, help="episodes of the expert, and patients to compare on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=Path, help="the expert's episodes, a file that `cirl demo` wrote")
    arguments = parser.parse_args()
    d3rlpy.seed(arguments.seed)
    batch = demonstrations(arguments.batch, arguments.episodes, arguments.seed)
    data = dataset(batch)
    print(f"{data.size()} episodes, {data.transition_count} transitions")
    learnt = train(data, arguments.steps)
    print_returns({"d3rlpy CQL": Feedforward(learnt.predict)}, arguments.episodes, arguments.seed + 1)


if __name__ == "__main__":
    main()
