"""DSFN, deep successor feature networks (Lee, Srinivasan and Doshi-Velez 2019): apprenticeship from a batch alone.

The baseline to which the paper compares CIRL (section 5). It has neither an outcome model nor an environment:

1. Warm start: one network imitates the expert and predicts the next observation from a shared layer phi_s.
2. mu(s, a) of a policy by off-policy temporal differences on the batch's own transitions.
3. The policy for weights w by Q-learning on the same transitions.
4. w by the max-margin loop (:mod:`irl.baselines.methods`).

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

import copy
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss, one_hot

from agents.policies.cloning import checked_splits, episode_tensors
from agents.policies.policy import RecurrentPolicy, drawn_from_softmax, only_allowed
from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap, normalised
from cirl_gym.data.rules import ActionRules
from cirl_gym.outcome_models.inputs import Scaler, sequence_inputs
from cirl_gym.outcome_models.networks import lstm_step, perceptron, with_every_action
from cirl_gym.outcome_models.training import (
    NotFiniteError,
    Progress,
    TrainingConfig,
    check_settings,
    seeded,
    train_network,
)
from cirl_gym.types import FloatArray, IntArray

Backup: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""What follows a transition, ``[B, k]``, from the values ``[B, A, k]`` of every next action and the rows ``[B]``."""
BEYOND = 1.05
"""A mu this many times as large as any policy's can be is warned of."""


@dataclass(frozen=True)
class WarmStartSizes:
    """Units of :class:`WarmStartNetwork` (Lee et al. 2019: two layers of 128 and one more per head).

    Raises:
        ValueError: a size is below 1, memory below 0.
    """

    hidden: int = 128
    """Of the two layers before the shared one, and of the one before the next state."""
    shared: int = 64
    """S, of the shared layer phi_s."""
    memory: int = 0
    """Of the LSTM: DSFN(h); 0: none, s is the current observation alone: DSFN."""

    def __post_init__(self) -> None:
        if min(self.hidden, self.shared) < 1 or self.memory < 0:
            raise ValueError(f"WarmStartSizes: sizes must be at least 1 and memory not negative, got {self}")


class WarmStartNetwork(nn.Module):
    """Transition-regularised imitation: one tanh layer phi_s from which both the action and the next state are read.

    An input is [scaled x_t, one-hot a_{t-1}]. Without memory only the observation is read. With memory an LSTM reads
    both, and [x_t, its output] takes the place of s.
    """

    def __init__(self, n_features: int, n_actions: int, sizes: WarmStartSizes) -> None:
        super().__init__()
        self.n_features, self.n_actions, self.sizes = n_features, n_actions, sizes
        self.lstm = nn.LSTM(n_features + n_actions, sizes.memory, batch_first=True) if sizes.memory else None
        widths = (n_features + sizes.memory, sizes.hidden, sizes.hidden, sizes.shared)
        self.trunk = nn.Sequential(perceptron(widths, nn.Tanh), nn.Tanh())
        self.action = nn.Linear(sizes.shared, n_actions)
        self.transition = perceptron((sizes.shared + n_actions, sizes.hidden, n_features), nn.Tanh)

    def shared(self, inputs: Tensor) -> Tensor:
        """phi_s ``[N, T, S]`` of whole episodes ``[N, T, d + A]`` from their first observation on."""
        seen = inputs[..., : self.n_features]
        if self.lstm is not None:
            seen = torch.cat([seen, self.lstm(inputs)[0]], dim=-1)
        features: Tensor = self.trunk(seen)
        return features

    def step(self, inputs: Tensor, memory: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """phi_s ``[n, S]`` after one more input ``[n, d + A]``, and the memory after it (two ``[n, H]``, or none)."""
        seen = inputs[:, : self.n_features]
        if self.lstm is not None:
            memory = lstm_step(self.lstm, inputs, *memory)
            seen = torch.cat([seen, memory[0]], dim=-1)
        return self.trunk(seen), memory

    def next_state(self, features: Tensor, actions: Tensor) -> Tensor:
        """Scaled next observation ``[M, d]`` for phi_s ``[M, S]`` and actions ``[M]``."""
        predicted: Tensor = self.transition(_with_action(features, actions, self.n_actions))
        return predicted


class ActionNetwork(nn.Module):
    """k numbers for [phi_s, one-hot a]: mu (k = d) or Q (k = 1), by two tanh layers.

    The output is the average of what is still to come per step, ``scale`` the discounted number of steps of a whole
    episode: the network learns numbers of the size of phi, whatever gamma is.
    """

    def __init__(self, n_inputs: int, n_actions: int, n_outputs: int, hidden: int, scale: float) -> None:
        super().__init__()
        self.n_actions, self.scale = n_actions, scale
        self.layers = perceptron((n_inputs + n_actions, hidden, hidden, n_outputs), nn.Tanh)

    def forward(self, features: Tensor, actions: Tensor) -> Tensor:
        """``[M, k]`` for phi_s ``[M, S]`` and actions ``[M]``."""
        values: Tensor = self.layers(_with_action(features, actions, self.n_actions)) * self.scale
        return values

    def every(self, features: Tensor) -> Tensor:
        """``[.., A, k]`` of every action for phi_s ``[.., S]``."""
        values: Tensor = self.layers(with_every_action(features, self.n_actions)) * self.scale
        return values


def _with_action(features: Tensor, actions: Tensor, n_actions: int) -> Tensor:
    return torch.cat([features, one_hot(actions, n_actions).to(features.dtype)], dim=-1)


@dataclass(frozen=True)
class TDConfig:
    """Training of one value network.

    Raises:
        ValueError: a number is out of its range.
    """

    hidden: int
    """Units of each of the two tanh layers."""
    iterations: int
    """Gradient steps."""
    batch_size: int
    """Transitions per gradient step, drawn with replacement."""
    learning_rate: float
    """Of Adam."""
    ema: float = 0.01
    """Share by which the target network moves towards the network in each step."""
    epsilon: float = 1e-4
    """Of Adam."""

    def __post_init__(self) -> None:
        check_settings(self, "hidden iterations batch_size", "at least 1", lambda value: value >= 1)
        check_settings(self, "learning_rate epsilon", "positive and finite", lambda value: 0 < value < math.inf)
        check_settings(self, "ema", "within (0, 1]", lambda value: 0 < value <= 1)


@dataclass(frozen=True)
class Transitions:
    """M steps of the batch, as phi_s of the histories before and after."""

    features: Tensor
    """``[M, S]`` phi_s of h_t."""
    actions: Tensor
    """``[M]`` a_t."""
    outcomes: Tensor
    """``[M, d]`` phi(x_{t+1}) as observed."""
    following: Tensor
    """``[M, S]`` phi_s of h_{t+1}."""
    goes_on: Tensor
    """``[M]`` bool, False where the process ended with a_t: nothing follows."""
    allowed: Tensor | None = None
    """``[M, A]`` bool, which actions h_{t+1} leaves; None: all."""


def td_target(outcomes: Tensor, goes_on: Tensor, gamma: float, following: Tensor) -> Tensor:
    """Targets y ``[B, k]``: phi where the process ended, phi + gamma mu(h', a') elsewhere; Q's with w . phi for phi.

    ``outcomes`` and ``following`` are ``[B, k]``, ``goes_on`` ``[B]``; where nothing follows it is not looked at.
    """
    return outcomes + gamma * torch.where(goes_on[:, None], following, torch.zeros_like(following))


def under(probabilities: Tensor) -> Backup:
    """Expectation over a' ~ pi, for pi's probabilities ``[M, A]`` in every next history: no draw adds its noise."""
    return lambda values, rows: (probabilities[rows][..., None] * values).sum(dim=1)


def best_of(allowed: Tensor | None) -> Backup:
    """The largest value of the next actions that are allowed ``[M, A]``; None: all are. Q-learning's."""
    return lambda values, rows: only_allowed(values.mT, None if allowed is None else allowed[rows][:, None]).amax(dim=2)


def move_towards(target: nn.Module, network: nn.Module, share: float) -> None:
    """Exponential moving average: target += share (network - target), parameter by parameter."""
    with torch.no_grad():
        for slow, fast in zip(target.parameters(), network.parameters(), strict=True):
            slow.lerp_(fast, share)


def fit_td(
    network: ActionNetwork,
    steps: Transitions,
    outcomes: Tensor,
    backup: Backup,
    gamma: float,
    config: TDConfig,
    seed: int,
) -> ActionNetwork:
    """Train ``network`` in place, and return its slow average: the target network after the last step.

    ``outcomes`` ``[M, k]`` are what the steps yield, phi or w . phi, ``backup`` says what follows is worth; the seed is
    that of the order of transitions.

    Raises:
        NotFiniteError: the loss is not finite; the message names the step.
    """
    target = copy.deepcopy(network)
    optimiser = torch.optim.Adam(network.parameters(), lr=config.learning_rate, eps=config.epsilon)
    order = torch.Generator().manual_seed(seed)
    for step in range(config.iterations):
        rows = torch.randint(len(outcomes), (config.batch_size,), generator=order)
        with torch.no_grad():
            following = backup(target.every(steps.following[rows]), rows)
            y = td_target(outcomes[rows], steps.goes_on[rows], gamma, following)
        values = network(steps.features[rows], steps.actions[rows])
        loss = mse_loss(values / network.scale, y / network.scale)
        if not math.isfinite(loss.item()):
            raise NotFiniteError(f"temporal differences stopped at step {step + 1}: the loss is {loss.item()}")
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        move_towards(target, network, config.ema)
    return target


def transitions(
    network: WarmStartNetwork,
    scaler: Scaler,
    feature_map: FeatureMap,
    batch: Batch,
    ended: npt.NDArray[np.bool_],
    rules: ActionRules | None = None,
) -> tuple[Tensor, Transitions]:
    """phi_s of first histories ``[N, S]``, and every step of the batch; an outcome is what was observed after it.

    ``ended`` ``[N]`` tells whether nothing follows the last step; where watching was merely cut, something does.
    """
    with torch.no_grad():
        shared = network.shared(torch.from_numpy(sequence_inputs(scaler, batch)))
    mask = torch.from_numpy(batch.mask)
    last = np.arange(batch.horizon) == batch.lengths[:, None] - 1
    outcomes = feature_map(batch.next_obs).astype(np.float32)
    steps = Transitions(
        features=shared[:, :-1][mask],
        actions=torch.from_numpy(batch.actions[batch.mask]),
        outcomes=torch.from_numpy(outcomes[batch.mask]),
        following=shared[:, 1:][mask],
        goes_on=torch.from_numpy(~(last & ended[:, None])[batch.mask]),
        allowed=None if rules is None else torch.from_numpy(rules.allowed_along(batch)[:, 1:][batch.mask]),
    )
    return shared[:, 0], steps


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
        check_settings(self, "transition_weight", "non-negative and finite", lambda value: 0 <= value < math.inf)

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
            config: how.
            rng: everything that is drawn.
            progress: called with (epochs done, epochs planned).
            rules: what is forbidden, to the expert and to policies.

        Raises:
            ValueError: the batches, the rules or the feature map do not fit together, gamma lies outside [0, 1], or
                training did not stay finite.
        """
        train, validation = checked_splits(train, validation, rules)
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

        ahead, first = (one_hot(rows.argmax(dim=-1), rows.shape[-1]).to(rows.dtype) for rows in self._scored(scores))
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

    def loss_of(batch: Batch) -> Callable[[Tensor | slice], Tensor]:
        """Loss of chosen episodes of a batch."""
        device = config.training.device
        inputs, actions, mask, allowed = episode_tensors(scaler, batch, device)
        following = torch.from_numpy(scaler(batch.next_obs)).to(device)

        def loss(chosen: Tensor | slice) -> Tensor:
            live = mask[chosen]
            features, taken = network.shared(inputs[chosen])[live], actions[chosen][live]
            predicted = network.next_state(features, taken)
            logits = only_allowed(network.action(features), None if allowed is None else allowed[chosen][live])
            imitation = cross_entropy(logits, taken)
            return imitation + config.transition_weight * mse_loss(predicted, following[chosen][live])

        return loss

    loss, held_out = loss_of(train), loss_of(validation)
    train_network(
        network,
        lambda chosen, _share: loss(chosen),
        lambda: float(held_out(slice(None))),
        len(train),
        config.training,
        seed,
        progress,
    )
    return network


class DSFNPolicy(RecurrentPolicy):
    """Greedy in the scores ``[n, A]`` of phi_s ``[n, S]``, or, with a generator, drawn from their softmax.

    Without an LSTM it has no memory and sees x_t alone. What ``rules`` forbid is never done.
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
