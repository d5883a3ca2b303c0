"""What policies come to in the world model (:mod:`irl.result.consequences`), and what other weights would bring."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np

from agents.policies.policy import ConstantPolicy
from agents.successor.agent import SuccessorAgent
from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.outcome_model import CounterfactualWorld
from cirl_gym.data.rollout import rollout
from cirl_gym.outcome_models.masked import rules_of
from cirl_gym.types import Float32Array, FloatArray, Policy
from irl.result.consequences import Consequences, Followed, OtherWeights

IMAGINED, IMAGINED_OTHERS = 200, 50
"""Episodes of every policy; of the policy of every other weights."""
MOST_CONSTANT, MOST_SLIDERS = 4, 6
"""Actions of which each is tried always, at most; outcomes whose weight is changed, at most: the largest."""
_WIDTH = 16
"""Of searches at most: beyond it hardly anything changes. In the simulator, for weights whose plans are hardest to
find, .00006 of value a decision are lost with 16 and .00005 with 32."""
_NEAR = 0.01
"""A share so near to the one found says nothing new."""


def consequences(
    agent: SuccessorAgent,
    weights: FloatArray,
    predicted: Policy,
    cloning: Policy,
    train: Batch,
    names: Sequence[str],
    *,
    others: bool = True,
) -> Consequences:
    """Follow every policy from the patients' first observations, and the best ones of other weights.

    Args:
        agent: candidate policies of all weights, in the world model.
        weights: ``[d]`` those that were found, of L1 norm 1.
        predicted: what the experts are predicted to do, drawn with its chances.
        cloning: a copy of the experts.
        train: their episodes.
        names: ``[A]`` what the actions are called.
        others: whether other weights are asked about too.
    """
    phi = agent.feature_map

    def follow(policy: Policy, episodes: int, *, deterministic: bool = True) -> Batch:
        starts = train.start[:episodes]
        world = CounterfactualWorld(agent.model, starts, agent.horizon)
        return rollout(world, policy, len(starts), np.random.default_rng(0), deterministic=deterministic)

    slid = [(i, w, found) for i in (_slid(weights) if others else ()) for w, found in other_weights(weights, i)]
    cirl, *of_others = best_courses(
        agent, train.start, [(weights, IMAGINED), *((w, IMAGINED_OTHERS) for _, w, _ in slid)]
    )
    played = {
        "expert": follow(predicted, IMAGINED, deterministic=False),
        "cirl": cirl,
        "cloning": follow(cloning, IMAGINED),
    }
    if train.n_actions <= MOST_CONSTANT and rules_of(agent.model) is None:  # else an action is not always allowed
        for action, name in enumerate(names):
            constant = ConstantPolicy(action, train.n_actions, np.random.default_rng(0))
            played[f"always {name}"] = follow(constant, IMAGINED)
    expert = played["expert"]
    return Consequences(
        actions=tuple(names),
        episodes=min(IMAGINED, len(train)),
        observed=followed(train, phi),
        policies={name: followed(batch, phi) for name, batch in played.items()},
        step=float((phi(expert.obs[:, 1:])[expert.mask] @ weights).mean()),
        other_episodes=min(IMAGINED_OTHERS, len(train)),
        other_weights=tuple(
            OtherWeights(phi.features[i], float(np.abs(w[i])), found, tuple(w.tolist()), followed(batch, phi))
            for (i, w, found), batch in zip(slid, of_others, strict=True)
        ),
    )


def best_courses(agent: SuccessorAgent, starts: Float32Array, asked: Sequence[tuple[FloatArray, int]]) -> list[Batch]:
    """Episodes by the best policy of each of some weights ``[d]``, so many from the first of ``starts`` on.

    All are of one roll-out, since a search for plans is of any weights.
    """
    rows = [np.arange(min(episodes, len(starts))) for _, episodes in asked]
    own = np.repeat([w for w, _ in asked], [len(part) for part in rows], axis=0)
    first = starts[np.concatenate(rows)]
    world, narrower = CounterfactualWorld(agent.model, first, agent.horizon), copy.copy(agent)
    narrower.width = min(agent.width, _WIDTH)
    played = rollout(world, narrower.policy(own), len(first), np.random.default_rng(0))
    return [played.take(part) for part in np.split(np.arange(len(first)), np.cumsum([len(part) for part in rows])[:-1])]


def followed(batch: Batch, phi: FeatureMap) -> Followed:
    """What episodes come to: each of their steps counts once."""
    mask = batch.mask
    taken = np.bincount(batch.actions[mask], minlength=batch.n_actions) / mask.sum()
    outcomes = phi.unscaled(phi(batch.obs[:, 1:])[mask])
    return Followed(float(batch.lengths.mean()), tuple(taken.tolist()), tuple(outcomes.mean(axis=0).tolist()))


def _slid(weights: FloatArray) -> list[int]:
    """The outcomes whose weight is changed, in their order: of two the first, whose change is the other's too."""
    if len(weights) <= 2:
        return [0] if len(weights) == 2 else []
    largest = np.argsort(-np.abs(weights), kind="stable")[:MOST_SLIDERS]
    return sorted(int(i) for i in largest)


def other_weights(weights: FloatArray, i: int) -> list[tuple[FloatArray, bool]]:
    """Weights ``[d]`` in which the size of weight i has another share, and whether they are the ones found.

    Shares go from 0 to 1 and the one found stands among them. The sign of weight i stays, and so do the signs and the
    proportions of the others; where these are all 0, they share alike, as costs.
    """
    shares = np.linspace(0, 1, 11 if len(weights) == 2 else 5)
    rest = np.where(np.arange(len(weights)) == i, 0.0, weights)
    if not rest.any():
        rest = np.where(np.arange(len(weights)) == i, 0.0, -1.0)
    sign, own = (-1.0 if weights[i] <= 0 else 1.0), float(np.abs(weights[i]) / np.abs(weights).sum())
    found = []
    near = [float(share) for share in shares if abs(share - own) > _NEAR]
    for share in sorted([*near, own]):
        w = (1 - share) * rest / np.abs(rest).sum()
        w[i] = sign * share
        found.append((w, share == own))
    return found
