"""Every recurrent network of the project with random weights, behind one interface: two features, three actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from drqn_envs import Counting
from gymnasium import spaces
from known_model import PHI, KnownModel
from outcome_batches import random_model
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from scipy.special import log_softmax
from small_dsfn import WITH_MEMORY
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import nn

from agents.as_printed.histories import Histories
from agents.as_printed.learning import LearntPolicy
from agents.as_printed.training import HistoryNetwork
from agents.drqn.policy import RecurrentQPolicy
from agents.dsfn import DSFNPolicy, WarmStartNetwork, transitions
from agents.policies.cloning import CloningConfig, CloningNetwork, CloningPolicy
from agents.ppo import RecurrentPPOConfig, train_recurrent_ppo
from agents.successor.agent import SuccessorAgent
from agents.successor.network import StagedNetwork
from agents.successor.training import Problem, uniform_weights
from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.rollout import observation
from cirl_gym.data.rules import ActionRules, read_rules
from cirl_gym.outcome_models.inputs import Scaler, sequence_inputs
from cirl_gym.outcome_models.masked import with_rules
from cirl_gym.outcome_models.model import LearnedModel
from cirl_gym.outcome_models.training import seeded
from cirl_gym.types import Policy

SEEN = spaces.Box(-np.inf, np.inf, (5,), np.float32)
W = np.array([0.4, -0.6])
RULES = read_rules(("0 when Above(x, 0)", "2 when After(1)"), ("x", "y"), ("0", "1", "2"))
FORBIDDEN = -99.0
"""Stands for minus infinity: values of both paths are subtracted here."""


class Recurrent(NamedTuple):
    """What a network says of every history, by its acting and by its training path."""

    step: Callable[[Any, Any, Any], tuple[Any, Any]]
    """Values ``[n, ..]`` and memory after what is shown ``[n, d + A]``, memory (None at first), starts ``[n]``."""
    whole: Callable[[Batch], Any]
    """Values ``[N, T, ..]`` of whole episodes."""
    policy: Policy | None = None
    """What acts on the values, greedily: the largest wins."""


def randomised(network: nn.Module, seed: int = 0, std: float = 0.5) -> nn.Module:
    """No part of it zero: an untrained head often says the same of everything."""
    with seeded(seed), torch.no_grad():
        for parameter in network.parameters():
            nn.init.normal_(parameter, std=std)
    return network.eval()


def episodes(*lengths: int, seed: int = 0) -> Batch:
    """Random observations and actions; the odd episodes were cut off."""
    rng, n = np.random.default_rng(seed), len(lengths)
    cut = np.arange(n) % 2 == 1
    return Batch(
        obs=2 * rng.normal(size=(n, max(lengths) + 1, 2)),
        actions=rng.integers(3, size=(n, max(lengths))),
        lengths=np.array(lengths),
        terminated=~cut,
        truncated=cut,
        features=("x", "y"),
        action_names=("0", "1", "2"),
        ids=tuple(f"e{i}" for i in range(n)),
    )


def shown(batch: Batch, t: int):
    """What is seen of every episode at t: features and the previous action."""
    return observation(batch.obs[:, t], batch.actions[:, t - 1] if t else np.full(len(batch), -1), batch.n_actions)


def stepped(network: Recurrent, batch: Batch):
    """``[N, T, ..]`` values along a batch, one step after the other."""
    memory, values = None, []
    for t in range(batch.horizon):
        said, memory = network.step(shown(batch, t), memory, np.full(len(batch), t == 0))
        values.append(said)
    return np.stack(values, axis=1)


def drqn(**policy: Any) -> Recurrent:
    made = RecurrentQPolicy(SEEN, spaces.Discrete(3), lambda _: 1e-3, lstm_hidden_size=8, net_arch=[8], **policy)
    randomised(made)

    def step(seen, memory, starts):
        q, memory, _ = made.q_values(seen, memory, starts)
        return q.numpy(), memory

    def whole(batch):
        obs = torch.from_numpy(np.stack([shown(batch, t) for t in range(batch.horizon)], axis=1))
        return made.q_net.sequence(obs, torch.from_numpy(batch.mask)).detach().numpy()

    return Recurrent(step, whole, made)


class Randomise(BaseCallback):
    """Gives the policy random weights before its first step."""

    def _on_training_start(self) -> None:
        randomised(self.model.policy)

    def _on_step(self) -> bool:
        return True


class Watched(Counting):
    """[episode, t, noise] as any network of this module takes it."""

    observation_space = SEEN

    def _see(self):
        return np.concatenate([super()._see() / 100, [0, 0]], dtype=np.float32)


def ppo_algorithm(*lengths: int, rows: int = 3):
    """RecurrentPPO as the project trains it, after two rollouts; its steps are too small to move a weight."""
    settings = RecurrentPPOConfig(steps=40 * rows, rollout=20, epochs=1, hidden=8, learning_rate=1e-30)
    # Row i counts its episodes from 100 i on.
    kinds = [lambda i=i: Watched(lengths, first=100 * i, action_space=spaces.Discrete(3)) for i in range(rows)]
    return train_recurrent_ppo(DummyVecEnv(kinds), 0.9, settings, callback=Randomise())


def recurrent_ppo() -> Recurrent:
    algorithm = ppo_algorithm(1, 3, 20)
    policy = algorithm.policy

    def step(seen, memory, starts):
        _, memory = algorithm.predict(seen, memory, starts, deterministic=True)
        # The distribution that the action came from is kept until the next call.
        return policy.action_dist.distribution.logits.numpy().copy(), memory

    def whole(batch):
        n, steps = batch.actions.shape
        obs = torch.from_numpy(np.stack([shown(batch, t) for t in range(steps)], axis=1)).reshape(n * steps, 5)
        zeros = (torch.zeros(1, n, 8), torch.zeros(1, n, 8))
        states, starts = RNNStates(zeros, zeros), torch.zeros(n * steps)
        policy.set_training_mode(True)
        with torch.no_grad():
            each = [policy.evaluate_actions(obs, torch.full((n * steps,), a), states, starts)[1] for a in range(3)]
        return torch.stack(each, dim=1).reshape(n, steps, 3).numpy()

    return Recurrent(step, whole, algorithm)


def cloning(rules: ActionRules | None = None) -> Recurrent:
    network = randomised(CloningNetwork(2, 3, CloningConfig(hidden=6)))
    policy = CloningPolicy(network, Scaler(np.zeros(2), np.full(2, 3.0)), np.random.default_rng(0), rules)

    def step(seen, memory, starts):
        logits, memory = policy.act(seen, memory, starts)
        return np.maximum(log_softmax(logits, axis=1), FORBIDDEN), memory

    return Recurrent(step, lambda batch: np.maximum(policy.log_probabilities(batch), FORBIDDEN), policy)


def learnt_policy(rules: ActionRules | None = None) -> Recurrent:
    histories, model = episodes(4, 2), with_rules(KnownModel(), rules)
    problem = Problem(model, PHI, histories.start, 20, 0.9, uniform_weights([0, 0]), histories=histories)
    policy = LearntPolicy(Histories.of(problem), randomised(HistoryNetwork(5, 3, 1, hidden=6), seed=2))

    def step(seen, memory, starts):
        q, memory = policy.act(seen, memory, starts)
        return np.maximum(q, FORBIDDEN), memory

    return Recurrent(step, lambda batch: np.maximum(policy.q(batch), FORBIDDEN), policy)


def dsfn_h() -> Recurrent:
    network, scaler = (
        randomised(WarmStartNetwork(2, 3, WITH_MEMORY.sizes), seed=7),
        Scaler(np.zeros(2), np.full(2, 3.0)),
    )
    policy = DSFNPolicy(network, scaler, network.action)

    def whole(batch):
        _, steps = transitions(network, scaler, PHI, batch, batch.terminated)
        values = np.zeros((*batch.actions.shape, 3))
        with torch.no_grad():
            values[batch.mask] = network.action(steps.features)
        return values

    return Recurrent(policy.act, whole, policy)


def successor() -> Recurrent:
    """In a world model with an LSTM, whose state is the agent's memory."""
    model = random_model("crn")
    # What was seen before decides more than the law: else one action is always best.
    model = LearnedModel(model.law, model.spec, model.end, replace(model.correction, scale=np.full(2, 10.0)))
    size = model.start(np.zeros((1, 2), dtype=np.float32)).shape[1]
    network = StagedNetwork(size, 2, 3, 0.9, 20, (8,))
    network.initialise(np.random.default_rng(0))
    ranges = FeatureMap(("x", "y"), np.full(2, -10.0), np.full(2, 10.0))
    zeros, ones = np.zeros(size, dtype=np.float32), np.ones(size, dtype=np.float32)
    agent = SuccessorAgent(model, ranges, network, 0.9, zeros, ones, width=1)
    policy = agent.policy(W)
    return Recurrent(policy.act, lambda batch: agent.q(batch, W), policy)


def world_model(kind: str, head: str = "outcome") -> Recurrent:
    """An outcome model; or its treatment head, which says how likely each action was."""
    model = random_model(kind)
    correction = getattr(model, "correction", None)

    def treatment(hidden):
        network = correction.network
        with torch.inference_mode():
            return torch.log_softmax(network.treatment(network.represent(hidden)), dim=-1).numpy()

    def say(states):
        if head == "outcome":
            return model.predict(states)
        rows, remembered = model.parts(states)
        return treatment(torch.from_numpy(correction.remembered(rows, remembered)))

    def step(seen, memory, starts):
        obs, states = seen[:, :2], model.start(seen[:, :2])
        if memory is not None:
            states = np.where(starts[:, None], states, model.advance(memory, seen[:, 2:].argmax(axis=1), obs))
        return say(states), states

    def whole(batch):
        if head == "outcome":
            return model.predict(model.encode(batch))[:, :-1]
        with torch.inference_mode():
            hidden = correction.network.lstm(torch.from_numpy(sequence_inputs(correction.scaler, batch)))[0]
        return treatment(hidden)[:, :-1]

    return Recurrent(step, whole)


POLICIES: dict[str, Callable[[], Recurrent]] = {
    "drqn": drqn,
    "drqn, gru": lambda: drqn(cell="gru"),
    "drqn, two layers": lambda: drqn(n_lstm_layers=2, skip_connection=True),
    "recurrent ppo": recurrent_ppo,
    "cloning": cloning,
    "cloning, rules": lambda: cloning(RULES),
    "learnt": learnt_policy,
    "learnt, rules": lambda: learnt_policy(RULES),
    "dsfn(h)": dsfn_h,
    "successor": successor,
}
MODELS: dict[str, Callable[[], Recurrent]] = {
    "crn": lambda: world_model("crn"),
    "crn, treatment head": lambda: world_model("crn", "treatment"),
    "rmsn": lambda: world_model("rmsn"),
    "mb(h)": lambda: world_model("mb_h"),
    "ensemble": lambda: world_model("ensemble"),
}
NETWORKS = POLICIES | MODELS
