"""Confounded simulated episodes, a linear system with known coefficients, and outcome models with random weights."""

from __future__ import annotations

import numpy as np
import torch
from small_batches import cut_off

from cirl_gym.data.batch import Batch
from cirl_gym.data.rollout import rollout
from cirl_gym.outcome_models.ends import EndHead, EndLines, end_network
from cirl_gym.outcome_models.inputs import Scaler, Window
from cirl_gym.outcome_models.law import LinearLaw
from cirl_gym.outcome_models.limits import OutcomeSpec
from cirl_gym.outcome_models.model import Correction, EnsembleModel, LearnedModel
from cirl_gym.outcome_models.networks import CorrectingNetwork, CRNConfig, MLPConfig, RMSNConfig, RNNConfig
from cirl_gym.outcome_models.training import seeded
from cirl_gym.worlds.tumour import TumourWorld


class ConfoundedDoctor:
    """Treats large tumours and mild side effects, and goes on treating those who were treated lately."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        earlier = np.zeros((len(observation), 5)) if state is None else state[0]
        doses = np.concatenate([observation[:, 3:4], earlier[:, :-1]], axis=1)
        tumour, side_effects = observation[:, 0], observation[:, 1]
        logit = 0.25 * (tumour - 10) - 0.35 * (side_effects - 3) + 0.6 * (doses.sum(axis=1) - 2)
        return (self.rng.random(len(observation)) < 1 / (1 + np.exp(-logit))).astype(np.int64), (doses,)


def confounded(episodes: int, seed: int = 0) -> tuple[Batch, Batch]:
    """Nine tenths for training, the rest for validation; about one episode in six ends in a cure."""
    batch = rollout(TumourWorld(), ConfoundedDoctor(seed + 100), episodes, np.random.default_rng(seed))
    held_out = episodes // 10
    return batch.take(np.arange(episodes - held_out)), batch.take(np.arange(episodes - held_out, episodes))


def linear_system(episodes: int, seed: int, noise: float = 0.0) -> Batch:
    """X' = 1 + .6 x + .3 x_{t-1} + 2 a - .5 a_{t-1};  y' = y + .1 (x - y) - [a = 2]; three actions, lengths 1..12.

    Before t = 0 the first observation is repeated and there is no action.
    """
    rng = np.random.default_rng(seed)
    obs, actions = rng.normal(size=(episodes, 13, 2)) * 3, rng.integers(3, size=(episodes, 12))
    for t in range(12):
        x, y = obs[:, t].T
        before = obs[:, max(t - 1, 0), 0]
        dose, last = actions[:, t], actions[:, t - 1] if t else np.zeros(episodes)
        obs[:, t + 1, 0] = 1 + 0.6 * x + 0.3 * before + 2 * dose - 0.5 * last
        obs[:, t + 1, 1] = y + 0.1 * (x - y) - (dose == 2)
        obs[:, t + 1] += noise * rng.normal(size=(episodes, 2))
    return cut_off(obs, actions, ("x", "y"), ("no", "low", "high"), rng.integers(1, 13, size=episodes))


MODELS = ("ar", "crn", "rmsn", "mb_h", "mb_x", "ensemble")


def random_model(kind: str, seed: int = 0) -> LearnedModel | EnsembleModel:
    """An untrained model of two features and three actions, no part of which is zero."""
    if kind == "ensemble":
        return EnsembleModel([random_model("ar", 1), random_model("crn", 2), random_model("crn", 3)])
    rng = np.random.default_rng(seed)
    window = Window(1 if kind == "mb_x" else 3, 2, 3)
    law = LinearLaw(window, rng.normal(size=2), 0.3 * rng.normal(size=(window.size, 2)), rng.normal(size=(3, 2)))
    scaler = Scaler(np.array([0.5, -0.5]), np.array([2.0, 3.0]))
    spec = OutcomeSpec(("x", "y"), 3, *np.array([[-50.0] * 2, [50.0] * 2, [0.1, 0.2], [-np.inf] * 2, [np.inf] * 2]))
    lines = EndLines(np.array([-5.0, -np.inf]), np.array([np.inf, 9.0]), spec.noise_scale, scaler)
    with seeded(seed):
        head = end_network("network", lines.width + 3, 4)
        config = {
            "ar": None,
            "crn": CRNConfig(hidden=7, representation=5),
            "rmsn": RMSNConfig(hidden=7, fully_connected=6),
            "mb_h": RNNConfig(hidden=7, fully_connected=6),
            "mb_x": MLPConfig(first=7, second=6),
        }[kind]
        network = None if config is None else CorrectingNetwork(2, 3, config)
        for module in (head, network):
            for parameter in [] if module is None else module.parameters():
                torch.nn.init.normal_(parameter, std=0.5)
    end = EndHead("network", lines, 0.1, head, 4)
    correction = None if network is None else Correction(network.eval(), scaler, np.array([0.7, 1.3]))
    return LearnedModel(law, spec, end, correction)
