"""What a search for plans costs and gains, by its width, with as many actions and outcomes as asked for.

Synthetic patients whose outcomes move linearly and by their treatment, a linear law fitted to them, and successor
features trained in its world. Then plans are searched along their histories for several preferences. Of each width: the
seconds of the search beside those of the greedy policy alone (width 1), and by how much the values of its plans, best
action and mean over actions, are above the greedy policy's, in units of its spread between actions. And the same search
for one preference after the other beside all at once.

    python benchmarks/plan_search.py [--actions 25] [--outcomes 20] [--decisions 300] [--widths 1 2 8 32]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from agents.successor.agent import SuccessorAgent, SuccessorConfig, plans_each
from agents.successor.training import Problem, fit_successor, uniform_weights
from cirl_gym import Batch
from cirl_gym.data.features import FeatureMap, draw_weights
from cirl_gym.outcome_models.fitting import OutcomeModelConfig, fit_outcome_model
from cirl_gym.types import FloatArray
from irl.preferences.inference import judged_episodes

LENGTHS = (5, 8)
"""Fewest and most actions of an episode."""
SEARCHED = 8
"""Preferences for which plans are searched."""


def patients(n: int, actions: int, outcomes: int, rng: np.random.Generator) -> Batch:
    """Outcomes that fall back by a tenth to four tenths a step and are moved by the action, three of them by each."""
    back = np.diag(rng.uniform(0.6, 0.9, outcomes)) + rng.normal(0, 0.05, (outcomes, outcomes))
    effects = np.zeros((actions, outcomes))
    for action in range(1, actions):
        effects[action, rng.choice(outcomes, min(3, outcomes), replace=False)] = rng.normal(0, 0.6, min(3, outcomes))
    preferred = effects @ draw_weights(np.zeros(outcomes), rng)
    chances = np.exp(8 * preferred) / np.exp(8 * preferred).sum()
    lengths, horizon = rng.integers(LENGTHS[0], LENGTHS[1] + 1, n), LENGTHS[1]
    taken = rng.choice(actions, p=chances, size=(n, horizon))
    obs = [rng.normal(size=(n, outcomes))]
    for t in range(horizon):
        obs.append(obs[-1] @ back + effects[taken[:, t]] + rng.normal(0, 0.4, (n, outcomes)))
    alive = np.arange(horizon + 1) <= lengths[:, None]
    return Batch(
        obs=np.where(alive[..., None], np.stack(obs, axis=1), 0.0).astype(np.float32),
        actions=np.where(alive[:, 1:], taken, 0),
        lengths=lengths,
        terminated=np.zeros(n, dtype=np.bool_),
        truncated=np.ones(n, dtype=np.bool_),
        ids=tuple(map(str, range(n))),
        groups=tuple(map(str, range(n))),
        features=tuple(f"x{j}" for j in range(outcomes)),
        action_names=tuple(f"a{a}" for a in range(actions)),
    )


def solved(batch: Batch, rng: np.random.Generator) -> SuccessorAgent:
    """An agent of the patients' world, as a fit trains it."""
    train, validation = batch.split(0.15, rng)
    model = fit_outcome_model("ar", train, validation, OutcomeModelConfig.quick(), rng).model
    weights = uniform_weights(np.zeros(len(batch.features)))
    problem = Problem(model, FeatureMap.from_batch(train), train.start, batch.horizon, 0.99, weights, train)
    begin = time.process_time()
    agent = fit_successor(problem, SuccessorConfig(), rng)
    print(f"training: {time.process_time() - begin:.1f} s of the processor")
    return agent


def values(agent: SuccessorAgent, batch: Batch, w: FloatArray, width: int) -> tuple[float, FloatArray]:
    """Seconds a preference, and Q ``[J, R, A]`` of the decisions."""
    begin = time.process_time()
    psi = agent.psi(batch, w, width)
    return (time.process_time() - begin) / len(w), np.einsum("jntad,jd->jnta", psi, w)[:, batch.mask]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--actions", type=int, default=25)
    parser.add_argument("--outcomes", type=int, default=20)
    parser.add_argument("--decisions", type=int, default=300, help="along which plans are searched")
    parser.add_argument("--widths", type=int, nargs="+", default=[1, 2, 8, 32])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    batch = patients(600, arguments.actions, arguments.outcomes, rng)
    agent, judged = solved(batch, rng), judged_episodes(batch, arguments.decisions)
    w = draw_weights(np.zeros(arguments.outcomes), rng, SEARCHED)
    alone, greedy = values(agent, judged, w, 1)
    spread = greedy.std(axis=2).mean()
    print(f"{arguments.actions} actions, {arguments.outcomes} outcomes, {judged.n_steps} decisions")
    for width in arguments.widths:
        seconds, q = values(agent, judged, w, width)
        best, mean = (q.max(axis=2) - greedy.max(axis=2)).mean() / spread, (q - greedy).mean() / spread
        print(
            f"width {width:2} ({plans_each(width, arguments.actions)} for each first action): {seconds:.3f} s a "
            f"preference, {seconds / alone:.1f} times the greedy policy's; best action +{best:.4f}, mean +{mean:.4f}"
        )
        begin = time.process_time()
        for one in w:
            agent.psi(judged, one, width)
        print(f"  one after the other / all at once: {(time.process_time() - begin) / (SEARCHED * seconds):.2f}")


if __name__ == "__main__":
    main()
