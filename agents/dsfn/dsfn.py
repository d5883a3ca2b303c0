"""DSFN, deep successor feature networks (Lee, Srinivasan and Doshi-Velez 2019): apprenticeship from a batch alone.

The baseline to which the paper compares CIRL (section 5). It has neither an outcome model nor an environment:

1. Warm start: one network imitates the expert and predicts the next observation from a shared layer phi_s.
2. mu(s, a) of a policy by off-policy temporal differences on the batch's own transitions.
3. The policy for weights w by Q-learning on the same transitions.
4. w by the max-margin loop (:mod:`irl.studies.baselines`).

What differs here from its authors:

- Their reward weighs the units of phi_s, which means nothing to a reader. Here w weighs the **observed next outcomes**
  phi(x_{t+1}), scaled as everywhere in this project, so that mu, margins and weights can be put beside CIRL's.
  [phi_s, one-hot a] is what mu and Q are functions of, and nothing else. The head that predicts the next observation
  shapes phi_s during the warm start and is never asked afterwards.
- DSFN(h): the paper extends DSFN to histories and does not tell how. Here [x_t, LSTM over the history] takes the place
  of s in the warm start; the LSTM is fitted there and stays as it is.
- :meth:`DSFNConfig.published` has the sizes and numbers of their appendix; the default takes larger batches and fewer,
  larger steps. The warm start is trained by this project's one loop, on whole episodes, with early stopping.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss, one_hot

from agents.dsfn.td import (
    ActionNetwork,
    Backup,
    TDConfig,
    WarmStartNetwork,
    WarmStartSizes,
    best_of,
    fit_td,
    transitions,
    under,
)
from agents.policies.policy import RecurrentPolicy, drawn_from_softmax, only_allowed
from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap, normalised
from cirl_gym.data.rules import ActionRules
from cirl_gym.outcome_models.inputs import Scaler, sequence_inputs
from cirl_gym.outcome_models.training import Progress, TrainingConfig, seeded, train_network
from cirl_gym.types import FloatArray, IntArray

BEYOND = 1.05
"""A mu this many times as large as any policy's can be is warned of."""


@dataclass(frozen=True)
class DSFNConfig:
    """Sizes of the networks and how they are trained.

    Raises:
        ValueError: a number is out of its range.
    """

    sizes: WarmStartSizes = field(default_factory=WarmStartSizes)
    """Of the warm start; ``memory`` above 0 makes DSFN into DSFN(h)."""
    training: TrainingConfig = field(
        default_factory=lambda: TrainingConfig(epochs=15, batch_size=64, learning_rate=3e-3, schedule="cosine")
    )
    """Of the warm start."""
    transition_weight: float = 1.0
    """Of the next observation's squared error (scaled units) beside the log-loss of the action."""
    mu: TDConfig = field(default_factory=lambda: TDConfig(64, 2000, 256, 3e-3, 0.03))
    """Of mu(s, a)."""
    q: TDConfig = field(default_factory=lambda: TDConfig(64, 2000, 256, 3e-3, 0.03))
    """Of Q(s, a)."""
    horizon_is_terminal: bool = True
    """Nothing follows the last step of an episode of full length, as in mu_E; otherwise its value is bootstrapped."""

    def __post_init__(self) -> None:
        if not 0 <= self.transition_weight < np.inf:
            raise ValueError(f"DSFNConfig.transition_weight must not be negative, got {self.transition_weight}")

    @classmethod
    def published(cls) -> DSFNConfig:
        """Sizes, rates and numbers of iterations of Lee et al.'s appendix."""
        return cls(
            training=TrainingConfig(epochs=60, batch_size=64, learning_rate=3e-4),
            mu=TDConfig(64, 50_000, 32, 3e-4),
            q=TDConfig(128, 30_000, 64, 3e-4),
        )

    def with_history(self, memory: int = 32) -> DSFNConfig:
        """The same as DSFN(h), with an LSTM of ``memory`` units."""
        return replace(self, sizes=replace(self.sizes, memory=memory))


class DSFNSolution(NamedTuple):
    """A policy and its feature expectation."""

    policy: DSFNPolicy
    mu: FloatArray
    """``[d]`` mean over the batch's h_0 of mu(h_0, a), a ~ pi."""


class DSFN:
    """What the warm start has learnt from a batch, and the policies and feature expectations that follow from it.

    Every solution starts from the same first weights and order of transitions: it depends on w, not on earlier ones.

    Args:
        network: the warm start.
        batch: the episodes that it was fitted to.
        feature_map: which features are outcomes, and their ranges.
        gamma: discount factor.
        config: settings.
        seed: of first weights, the order of transitions and drawn actions.
        rules: what is forbidden; policies keep to them, and nothing that follows a transition breaks them.

    Raises:
        ValueError: the feature map reads other features, gamma lies outside [0, 1], or the batch says what was allowed
            and there are no rules that policies could keep to elsewhere.
    """

    def __init__(
        self,
        network: WarmStartNetwork,
        batch: Batch,
        feature_map: FeatureMap,
        gamma: float,
        config: DSFNConfig,
        seed: int,
        rules: ActionRules | None = None,
    ) -> None:
        if rules is None and batch.allowed is not None:
            raise ValueError("the episodes say which actions were allowed: DSFN needs the rules themselves")
        if feature_map.of != batch.features:
            raise ValueError(f"the feature map reads {feature_map.of}, the batch has {batch.features}")
        if not 0 <= gamma <= 1:
            raise ValueError(f"gamma must lie between 0 and 1, got {gamma}")
        self.network, self.scaler = network.eval(), Scaler.from_batch(batch)
        self.gamma, self.config, self._seed, self.rules = gamma, config, seed, rules
        longest = int(batch.lengths.max())
        ended = batch.terminated | (config.horizon_is_terminal & (batch.lengths == longest))
        self.starts, self.steps = transitions(network, self.scaler, feature_map, batch, ended, rules)
        self._at_start = None if rules is None else torch.from_numpy(rules.allowed_along(batch)[:, 0].copy())
        self.scale = float(np.sum(gamma ** np.arange(longest)))
        self._largest = float(self.steps.outcomes.abs().max()) * (
            self.scale if config.horizon_is_terminal else 1 / max(1 - gamma, 1e-12)
        )

    @classmethod
    def fit(
        cls,
        train: Batch,
        validation: Batch,
        feature_map: FeatureMap,
        gamma: float,
        config: DSFNConfig,
        rng: np.random.Generator,
        progress: Progress | None = None,
        *,
        rules: ActionRules | None = None,
    ) -> DSFN:
        """Run the warm start.

        Args:
            train: the expert's episodes. One that was cut before the longest one's length is bootstrapped, unless
                :meth:`cirl_gym.data.batch.Batch.with_early_ends` says that it ended.
            validation: other episodes of the same features and actions, to stop by.
            feature_map: which features are outcomes, and their ranges.
            gamma: discount factor.
            config: settings.
            rng: everything that is drawn.
            progress: called with (epochs done, epochs planned).
            rules: what is forbidden, to the expert and to policies.

        Raises:
            ValueError: the batches, the rules or the feature map do not fit together, gamma lies outside [0, 1], or
                training did not stay finite.
        """
        if (train.features, train.action_names) != (validation.features, validation.action_names):
            raise ValueError("the training and the validation batch do not have the same features and actions")
        if rules is not None:
            train, validation = rules.masked(train), rules.masked(validation)
        seed, later = (int(drawn) for drawn in rng.integers(2**62, size=2))
        network = fit_warm_start(train, validation, config, seed, progress)
        return cls(network, train, feature_map, gamma, config, later, rules)

    @property
    def n_outcomes(self) -> int:
        """Number d of outcomes that a weight weighs."""
        return int(self.steps.outcomes.shape[1])

    def initial(self) -> DSFNSolution:
        """The warm start's own policy: it imitates the expert, drawing actions, and knows no weights."""
        imitate = self.network.action
        ahead, first = (torch.softmax(scores, dim=-1) for scores in self._scored(imitate))
        policy = DSFNPolicy(self.network, self.scaler, imitate, np.random.default_rng(self._seed), self.rules)
        return DSFNSolution(policy, self._mu(ahead, first))

    def solve(self, w: npt.ArrayLike) -> DSFNSolution:
        """The policy that Q-learning on the batch finds for weights w, and its feature expectation.

        Args:
            w: ``[d]`` of any scale; it is scaled to L1 norm 1 first.

        Raises:
            ValueError: w is not one finite number per outcome, or all are 0.
        """
        weights = normalised(w)
        if len(weights) != self.n_outcomes:
            raise ValueError(f"w must be {self.n_outcomes} numbers, one per outcome, got {weights}")
        rewards = self.steps.outcomes @ torch.from_numpy(weights.astype(np.float32))[:, None]
        q = self._values(1, rewards, best_of(self.steps.allowed), self.config.q)

        def scores(features: Tensor) -> Tensor:
            return q.every(features)[..., 0]

        ahead, first = (_greedy(rows) for rows in self._scored(scores))
        return DSFNSolution(DSFNPolicy(self.network, self.scaler, scores, rules=self.rules), self._mu(ahead, first))

    def _scored(self, scores: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Scores ``[M, A]`` in next and ``[N, A]`` in first histories, minus infinity where forbidden."""
        with torch.no_grad():
            ahead = only_allowed(scores(self.steps.following), self.steps.allowed)
            return ahead, only_allowed(scores(self.starts), self._at_start)

    def _mu(self, ahead: Tensor, first: Tensor) -> FloatArray:
        """Feature expectation of a policy with probabilities ``[M, A]`` in next and ``[N, A]`` in first histories."""
        network = self._values(self.n_outcomes, self.steps.outcomes, under(ahead), self.config.mu)
        with torch.no_grad():
            each = (first[..., None] * network.every(self.starts)).sum(dim=1)
        mu: FloatArray = each.double().mean(dim=0).numpy()
        if np.abs(mu).max() > BEYOND * self._largest:
            warnings.warn(
                f"DSFN: mu {mu} is larger than any policy's can be ({self._largest:.3g}): the values have not settled",
                stacklevel=3,
            )
        return mu

    def _values(self, n_outputs: int, outcomes: Tensor, backup: Backup, config: TDConfig) -> ActionNetwork:
        n_inputs = self.steps.features.shape[1]
        with seeded(self._seed):
            network = ActionNetwork(n_inputs, self.network.n_actions, n_outputs, config.hidden, self.scale)
        return fit_td(network, self.steps, outcomes, backup, self.gamma, config, self._seed)


def fit_warm_start(
    train: Batch, validation: Batch, config: DSFNConfig, seed: int, progress: Progress | None = None
) -> WarmStartNetwork:
    """Imitation and prediction of the next observation from one shared layer; stopped by the validation episodes.

    What is imitated is the choice among the actions that were allowed.

    Raises:
        ValueError: training did not stay finite.
    """
    scaler = Scaler.from_batch(train)
    with seeded(seed):
        network = WarmStartNetwork(len(train.features), train.n_actions, config.sizes)
    rows = [
        (
            torch.from_numpy(sequence_inputs(scaler, batch)[:, :-1]),
            torch.from_numpy(batch.actions.copy()),
            torch.from_numpy(scaler(batch.next_obs)),
            torch.from_numpy(batch.mask),
            *(() if batch.allowed is None else (torch.from_numpy(batch.allowed.copy()),)),
        )
        for batch in (train, validation)
    ]

    def loss_of(
        inputs: Tensor, actions: Tensor, following: Tensor, mask: Tensor, allowed: Tensor | None = None
    ) -> Tensor:
        features, taken = network.shared(inputs)[mask], actions[mask]
        predicted = network.next_state(features, taken)
        logits = only_allowed(network.action(features), None if allowed is None else allowed[mask])
        imitation = cross_entropy(logits, taken)
        return imitation + config.transition_weight * mse_loss(predicted, following[mask])

    device = config.training.device
    placed = [part.to(device) for part in rows[0]]
    train_network(
        network,
        lambda chosen, _share: loss_of(*(part[chosen] for part in placed)),
        lambda: float(loss_of(*(part.to(device) for part in rows[1]))),
        len(train),
        config.training,
        seed,
        progress,
    )
    return network


def _greedy(scores: Tensor) -> Tensor:
    """Probabilities ``[n, A]`` of the action with the largest score."""
    return one_hot(scores.argmax(dim=-1), scores.shape[-1]).to(scores.dtype)


class DSFNPolicy(RecurrentPolicy):
    """Greedy in the scores of phi_s, or, with a generator, drawn from their softmax.

    Without an LSTM it has no memory and sees x_t alone.

    Args:
        network: gives phi_s.
        scaler: of its inputs.
        scores: ``[n, A]`` of phi_s ``[n, S]``.
        rng: of drawn actions; None: always greedy.
        rules: what they forbid is never done; None: nothing is forbidden.
    """

    def __init__(
        self,
        network: WarmStartNetwork,
        scaler: Scaler,
        scores: Callable[[Tensor], Tensor],
        rng: np.random.Generator | None = None,
        rules: ActionRules | None = None,
    ) -> None:
        super().__init__(scaler, network.n_actions, network.sizes.memory, rules)
        self.network, self.scores, self.rng = network, scores, rng

    def step(self, inputs: Tensor, memory: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Scores ``[n, A]`` after one more input, and the states after it."""
        features, following = self.network.step(inputs, memory)
        return self.scores(features), following

    def draw(self, scores: FloatArray) -> IntArray:
        """Actions ``[n]`` drawn from the softmax of the scores, where there is a generator."""
        return super().draw(scores) if self.rng is None else drawn_from_softmax(scores, self.rng)
