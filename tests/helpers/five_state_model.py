"""The patient of :mod:`five_states` as an outcome model over episodes of a few steps, and its exact values."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import torch
from five_states import BURDEN, MILD, NEXT, PHI, SEVERE
from small_batches import cut_off

from agents.as_printed.histories import Histories
from agents.as_printed.training import HistoryNetwork, HistoryRows, HistoryTrainingConfig, _targets
from agents.successor.training import Problem, uniform_weights
from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.outcome_model import fold
from cirl_gym.types import Float32Array, FloatArray, IntArray

SMALL = HistoryTrainingConfig(hidden=32, batch_size=16, learning_rate=2e-2, target_every=20, iterations=300)
TINY = replace(SMALL, hidden=4, batch_size=3, target_every=2, iterations=4)
PRINTED = replace(
    HistoryTrainingConfig.paper(),
    hidden=32,
    batch_size=48,
    learning_rate=2e-2,
    last_rate=0.03,
    target_every=20,
    iterations=300,
)
FEATURES = ("disease", "side effects")
ENDS = np.array([0.0, 0.2])
"""Chance that an episode ends with each action."""


def numbers(obs) -> IntArray:
    """Which of the five states an observation ``[.., 2]`` (its burden) shows."""
    return np.abs(np.asarray(obs)[..., None, :2] - BURDEN).sum(axis=-1).argmin(axis=-1)


class FiveStateModel:
    """A patient is observed by burden, which is different in every state: nothing is hidden, and nothing is noisy."""

    features = FEATURES
    n_actions = 2
    noise_scale = np.zeros(2)
    bounds = np.zeros(2), np.ones(2)

    def noise(self, normals: FloatArray) -> FloatArray:
        return np.zeros_like(normals)

    def start(self, obs: Float32Array) -> Float32Array:
        return np.asarray(obs, dtype=np.float32)

    def encode(self, batch: Batch) -> Float32Array:
        return fold(self, batch)

    def predict(self, states: Float32Array) -> Float32Array:
        return BURDEN[NEXT[numbers(states)]].astype(np.float32)

    def end_probability(self, states: Float32Array) -> Float32Array:
        return np.broadcast_to(ENDS, (*states.shape[:-1], 2)).astype(np.float32)

    def advance(self, states: Float32Array, actions: IntArray, obs: Float32Array) -> Float32Array:
        return np.asarray(obs, dtype=np.float32)


class ByBurden:
    """Does what is said for each of the five states."""

    def __init__(self, actions: IntArray) -> None:
        self.actions = actions

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return self.actions[numbers(observation)], state


def every_course(steps: int) -> Batch:
    """One episode of every start and every sequence of actions: no next history is foreign to the batch."""
    plans = np.array(list(itertools.product((0, 1), repeat=steps)))
    actions = np.tile(plans, (2, 1))
    course = [np.repeat([MILD, SEVERE], len(plans))]
    for t in range(steps):
        course.append(NEXT[course[-1], actions[:, t]])
    return cut_off(BURDEN[np.stack(course, axis=1)], actions, FEATURES)


def problem_of(batch: Batch, gamma: float, horizon: int | None = None) -> Problem:
    scaling = FeatureMap(FEATURES, np.zeros(2), np.ones(2))
    weights = uniform_weights([0, 0])
    return Problem(FiveStateModel(), scaling, batch.start, horizon or batch.horizon, gamma, weights, histories=batch)


def exact(gamma: float, horizon: int, choose, p_end: FloatArray = ENDS) -> FloatArray:
    """Psi ``[T, 5, 2, 2]`` backwards from the horizon; ``choose`` says what is done where psi is ``[5, 2, 2]``."""
    psi = np.zeros((horizon, 5, 2, 2))
    later = np.zeros((5, 2))
    for t in reversed(range(horizon)):
        psi[t] = PHI + gamma * (1 - p_end)[:, None] * later[NEXT]
        later = psi[t][np.arange(5), choose(psi[t])]
    return psi


def mu_over(batch: Batch, psi: FloatArray, choose) -> FloatArray:
    """Mean of psi of the action chosen at the first observations of a batch."""
    first = numbers(batch.start)
    return psi[0][first, choose(psi[0])[first]].mean(axis=0)


def histories_of(batch: Batch, gamma: float, ends="model", horizon: int | None = None) -> Histories:
    return Histories.of(problem_of(batch, gamma, horizon), ends)


def targets_by_hand(histories: Histories, learner, values: list[float], rows: HistoryRows) -> FloatArray:
    """Targets ``[R, A, k]`` where the target network says the same values of every history."""
    network = HistoryNetwork(4, 2, len(values) // 2, hidden=3)
    with torch.no_grad():
        network.head.weight.zero_()
        network.head.bias.copy_(torch.tensor(values))
    return _targets(histories, learner, network, rows, torch.tensor([[0, 1]] * len(rows.step))).numpy()
