"""A patient with five states and two actions, small enough to be solved exactly by looking at every policy."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from small_batches import cut_off

from cirl_gym.data.batch import Batch
from cirl_gym.types import FloatArray, IntArray

GAMMA = 0.8
MILD, SEVERE, DRUGGED, TOXIC, WELL = range(5)
WAIT, TREAT = range(2)

NEXT = np.array(
    [
        [SEVERE, DRUGGED],  # mild: left alone it becomes severe; the drug works and begins to be felt
        [SEVERE, MILD],  # severe: stays severe; the drug brings it back to mild, without side effects yet
        [MILD, TOXIC],  # drugged: the drug wears off and the disease is back; more of it is toxic
        [WELL, TOXIC],  # toxic: stopping leaves a well patient; going on stays toxic
        [MILD, DRUGGED],  # well: the disease comes back; the drug keeps it down but is felt
    ]
)
# (disease, side effects) that a patient in each state has; phi(s, a) is that of the next state.
BURDEN = np.array([[0.4, 0.0], [1.0, 0.0], [0.2, 0.3], [0.0, 1.0], [0.0, 0.1]])
PHI = BURDEN[NEXT]
START = np.array([0.5, 0.5, 0.0, 0.0, 0.0])

POLICIES: IntArray = np.array(list(itertools.product((WAIT, TREAT), repeat=5)))


def psi_of(policy: FloatArray) -> FloatArray:
    """State-action feature expectation ``[5, 2, 2]`` of a policy ``[5, 2]`` of action probabilities."""
    chain = np.zeros((5, 5))
    for action in (WAIT, TREAT):
        chain[np.arange(5), NEXT[:, action]] += policy[:, action]
    value = np.linalg.solve(np.eye(5) - GAMMA * chain, (policy[:, :, None] * PHI).sum(axis=1))
    return PHI + GAMMA * value[NEXT]


def mu_of(policy: FloatArray) -> FloatArray:
    """Feature expectation ``[2]`` of a policy ``[5, 2]`` of action probabilities."""
    return START @ (policy[:, :, None] * psi_of(policy)).sum(axis=1)


ALL_MU: FloatArray = np.stack([mu_of(np.eye(2)[policy]) for policy in POLICIES])


class ByState:
    """Looks its action up by the state's number, the first feature that it observes."""

    def __init__(self, actions: IntArray) -> None:
        self.actions = actions

    def predict(self, observation, state=None, episode_start=None, deterministic=False):  # type: ignore[no-untyped-def]
        return self.actions[observation[:, 0].astype(int)], None


class Solved(NamedTuple):
    policy: ByState
    mu: FloatArray


def solve(w: FloatArray) -> Solved:
    """The best of all 32 policies (the first of equals)."""
    best = int((ALL_MU @ w).argmax())
    return Solved(ByState(POLICIES[best]), ALL_MU[best])


def optimal_q(w: FloatArray) -> FloatArray:
    """Q* ``[5, 2]``: the best of all policies in every state at once."""
    values = np.stack([psi_of(np.eye(2)[policy]) @ w for policy in POLICIES])
    return values.max(axis=0)


def softmax_expert(w: FloatArray, kappa: float) -> FloatArray:
    """Action probabilities ``[5, 2]`` of an expert who draws from softmax(kappa Q*)."""
    z = kappa * optimal_q(w)
    p = np.exp(z - z.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def play(policy: FloatArray, episodes: int, steps: int, rng: np.random.Generator) -> Batch:
    """Episodes of a policy ``[5, 2]`` of action probabilities; the first feature is the state's number."""
    state = rng.choice(5, size=episodes, p=START)
    course, taken = [state], []
    for _ in range(steps):
        action = (rng.random(episodes) < policy[state, TREAT]).astype(np.int64)
        state = NEXT[state, action]
        course.append(state)
        taken.append(action)
    states = np.stack(course, axis=1)
    obs = np.stack([states, np.zeros_like(states)], axis=2)
    return cut_off(obs, np.stack(taken, axis=1), ("state", "nothing"))


def states_of(batch: Batch) -> IntArray:
    """``[N, T]`` the states in which actions were taken."""
    return batch.obs[:, :-1, 0].astype(np.int64)
