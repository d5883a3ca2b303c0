"""Minari: write the expert's episodes as a data set, read them as any Minari user would, and learn from them.

    pip install torch==2.13.0
    pip install cirl-gym minari==0.5.4 h5py pillow
    python examples/minari_dataset.py [--steps 3000] [--episodes 1000] [--seed 0] [--folder runs/minari]

Tried with Python 3.11, gymnasium 1.4.0, h5py 3.16.0. Nothing leaves this machine: Minari writes below the folder that
the environment variable MINARI_DATASETS_PATH names. Writing takes about 3 ms an episode; to keep data for this project
alone, ``Batch.save`` is a hundred times faster and smaller.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import gymnasium
import minari
import numpy as np
import torch
from baseline_returns import FEATURE_MAP, WEIGHTS
from comparison import Feedforward, demonstrations, histories, print_returns
from torch import nn

from cirl_gym import Batch
from cirl_gym.interop import from_minari, to_minari

NAME = "cirl/tumour-expert-v0"


def write(batch: Batch) -> None:
    """The batch as a data set that knows its environment; one of an earlier run is replaced."""
    if NAME in minari.list_local_datasets():
        minari.delete_dataset(NAME)
    env = gymnasium.make("cirl_gym:CIRLTumour-v0")
    to_minari(batch, NAME, FEATURE_MAP, WEIGHTS, env=env, about={"algorithm_name": "cirl-gym's expert, kappa 100"})


def clone(dataset: minari.MinariDataset, steps: int) -> nn.Module:
    """Behaviour cloning with Minari's own reader: from the last five observations to the expert's action."""
    episodes = list(dataset.iterate_episodes())
    seen = np.concatenate([histories(episode.observations[None])[0, :-1] for episode in episodes])
    done = np.concatenate([episode.actions for episode in episodes])
    seen, done = torch.as_tensor(seen), torch.as_tensor(done)
    hidden = nn.Linear(seen.shape[1], 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()
    net = nn.Sequential(nn.BatchNorm1d(seen.shape[1]), *hidden, nn.Linear(64, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(steps):
        rows = torch.randint(len(done), (256,))
        loss = nn.functional.cross_entropy(net(seen[rows]), done[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description="An expert's episodes as a Minari data set.")
    parser.add_argument("--steps", type=int, default=3000, help="gradient steps")
    parser.add_argument("--episodes", type=int, default=1000, help="episodes of the expert, and patients to compare on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=Path, help="the expert's episodes, a file that `cirl demo` wrote")
    parser.add_argument("--folder", type=Path, default=Path("runs/minari"), help="where Minari keeps its data sets")
    arguments = parser.parse_args()
    os.environ["MINARI_DATASETS_PATH"] = str(arguments.folder.resolve())
    torch.manual_seed(arguments.seed)

    batch = demonstrations(arguments.batch, arguments.episodes, arguments.seed)
    write(batch)
    dataset = minari.load_dataset(NAME)
    again, report = from_minari(dataset)
    earned = np.mean([episode.rewards.sum() for episode in dataset.iterate_episodes()])
    print(f"{NAME}: {dataset.total_episodes} episodes, {dataset.total_steps} steps, mean return {earned:.3f}")
    print(f"made in {dataset.recover_environment().spec.id}; read back as a batch, equal: {again == batch}")
    print(f"{report.terminated} episodes ended, {report.truncated} were cut")

    net = clone(dataset, arguments.steps)
    with torch.no_grad():
        learnt = Feedforward(lambda recent: net(torch.as_tensor(recent)).argmax(dim=1))
        print_returns({"cloning": learnt}, arguments.episodes, arguments.seed + 1)


if __name__ == "__main__":
    main()
