"""The training that appendices C and D share: a recurrent network, a target network, histories drawn from the batch.

Both learn a value of every action after a history, by one step of bootstrapping in the outcome model:

    y = payoff(h, a) + gamma (1 - end(h, a)) following(h'),    h' = (h, a, E[Y(a) | h])

In appendix C the payoff is phi and what follows is mu(h', pi(h')); in D it is w . phi and max over a' of Q(h', a').
Every history is read from its first observation on, from a zero state; h' costs one more step of the memory.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import numpy as np
import torch
from torch import Tensor

from agents.histories import Ends, Histories
from agents.history_network import HistoryNetwork, Rows
from agents.kept_training import KeptTraining, TrainingParts
from cirl_gym.batch import Batch
from cirl_gym.outcome_models.recurrent import lstm_step
from cirl_gym.outcome_models.training import seeded
from cirl_gym.types import BoolArray, IntArray

Unit = Literal["histories", "episodes"]
"""What a batch is a number of: histories, each at one time, or episodes with all their histories."""
Actions = Literal["epsilon_greedy", "all"]
"""Which actions of a history are learnt at an iteration: one, chosen epsilon-greedily, or all of them."""
ProgressCallback = Callable[[int, int], None]
"""Called with (iterations done, iterations in all)."""


@dataclass(frozen=True)
class HistoryTrainingConfig:
    """How the networks of appendices C and D are trained; the two tables of the paper have the same numbers.

    Without arguments: what the paper does, done better in a fraction of the time. :meth:`paper`: as printed.

    Raises:
        ValueError: a number is out of its range.
    """

    hidden: int = 64
    """Units of the LSTM; the output is linear."""
    batch_size: int = 64
    """Units (histories or episodes) per iteration."""
    learning_rate: float = 3e-3
    """Adam's."""
    last_rate: float = 0.03
    """Share of the learning rate that is left at the end of a linear fall; 1: constant."""
    target_every: int = 25
    """Iterations after which the target network becomes a copy of the network."""
    iterations: int = 1_000
    """M, gradient steps."""
    epsilon: float = 0.9
    """Chance of a random action at the first iteration."""
    epsilon_decay: float = 1e-5
    """By how much it falls with every iteration, down to 0."""
    unit: Unit = "episodes"
    """What ``batch_size`` counts."""
    actions: Actions = "all"
    """Which actions are learnt; with ``"all"`` epsilon has no meaning."""
    ends: Ends = "model"
    """What says that an episode ends (:meth:`agents.histories.Histories.of`)."""

    def __post_init__(self) -> None:
        for name in ("hidden", "batch_size", "target_every", "iterations"):
            if getattr(self, name) < 1:
                raise ValueError(f"HistoryTrainingConfig.{name} must be at least 1, got {getattr(self, name)}")
        if not 0 < self.learning_rate < np.inf:
            raise ValueError(f"HistoryTrainingConfig.learning_rate must be positive, got {self.learning_rate}")
        for name in ("last_rate", "epsilon", "epsilon_decay"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"HistoryTrainingConfig.{name} must lie within [0, 1], got {getattr(self, name)}")
        for name, allowed in (("unit", Unit), ("actions", Actions), ("ends", Ends)):
            if getattr(self, name) not in get_args(allowed):
                options = " or ".join(map(repr, get_args(allowed)))
                raise ValueError(f"HistoryTrainingConfig.{name} must be {options}, got {getattr(self, name)!r}")

    @classmethod
    def paper(cls) -> HistoryTrainingConfig:
        """As printed: the tables of appendices C and D.

        | | C and D |
        |---|---|
        | LSTM, linear output | 128 |
        | batch | 256 histories |
        | Adam, learning rate | .001 |
        | target network every | 100 iterations |
        | epsilon | .9, less .00001 per iteration, not below 0 |
        | iterations | 20,000 |

        Epsilon ends at .7. Trajectories end where the batch's did.
        """
        return cls(
            hidden=128,
            batch_size=256,
            learning_rate=1e-3,
            last_rate=1.0,
            target_every=100,
            iterations=20_000,
            epsilon=0.9,
            epsilon_decay=1e-5,
            unit="histories",
            actions="epsilon_greedy",
            ends="data",
        )

    def epsilon_at(self, iteration: int) -> float:
        """Chance of a random action at an iteration, counted from 0."""
        return max(self.epsilon - self.epsilon_decay * iteration, 0.0)

    def rate_at(self, iteration: int) -> float:
        """Learning rate at an iteration, counted from 0."""
        done = iteration / self.iterations
        return self.learning_rate * (1.0 - (1.0 - self.last_rate) * done)


class Learner(Protocol):
    """What is learnt: the parts of the target in which appendices C and D differ. k is the size of a value."""

    @property
    def payoff(self) -> Tensor:
        """``[N, T, A, k]`` what an action brings at once."""

    def chosen(self, rows: Rows, values: Tensor, rng: np.random.Generator) -> Tensor:
        """``[R]`` the actions of the policy after the histories, whose values are ``[R, A, k]``."""

    def following(self, rows: Rows, actions: Tensor, values: Tensor) -> Tensor:
        """``[R, C, k]`` worth of the next histories after actions ``[R, C]``, by their values ``[R, C, A, k]``."""

    def loss(self, error: Tensor) -> Tensor:
        """What is made small, for errors ``[R, C, k]``."""


def train_on_histories(
    histories: Histories,
    learner: Learner,
    config: HistoryTrainingConfig,
    rng: np.random.Generator,
    progress: ProgressCallback | None = None,
    *,
    kept: KeptTraining | None = None,
) -> HistoryNetwork:
    """Learn a value of every action after every history of a batch (paper, appendices C and D).

    The paper's losses are sums over the batch; the means taken here have the same minimum, and Adam takes the factor
    out.

    Args:
        histories: what to learn on.
        learner: what to learn.
        config: how.
        rng: first weights, and everything that is drawn.
        progress: called with (iterations done, iterations in all).
        kept: where the training is kept, so that one that was killed goes on with the same arguments.

    Raises:
        ValueError: the histories end by another rule than the configuration says, or the loss did not stay finite.
    """
    if histories.ends != config.ends:
        raise ValueError(f"the histories' ends are those of the {histories.ends}, the configuration's: {config.ends}")
    n_actions, size = learner.payoff.shape[2:]
    with seeded(int(rng.integers(2**63 - 1))):
        network = HistoryNetwork(histories.inputs.shape[2], n_actions, size, config.hidden)
    target = copy.deepcopy(network)
    optimiser = torch.optim.Adam(network.parameters(), lr=config.learning_rate)
    draw = _sampler(histories.batch, config, rng)
    parts = TrainingParts(network, target, optimiser, rng)
    begun = 0 if kept is None else kept.begin(parts, config.iterations)
    for iteration in range(begun, config.iterations):
        for group in optimiser.param_groups:
            group["lr"] = config.rate_at(iteration)
        rows = draw()
        values = network.values(network.hidden(histories.inputs, rows))
        allowed = None if histories.masks is None else histories.masks.here[rows.episode, rows.step].numpy()
        actions = _learnt_actions(learner, rows, values.detach(), config, iteration, rng, allowed)
        error = _of(values, actions) - _targets(histories, learner, target, rows, actions)
        loss = learner.loss(error)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if (iteration + 1) % config.target_every == 0:
            target.load_state_dict(network.state_dict())
            if not torch.isfinite(loss):
                raise ValueError(f"training stopped at iteration {iteration + 1}: the loss is {loss.item()}")
            if progress is not None:
                progress(iteration + 1, config.iterations)
        if kept is not None:
            kept.after(iteration + 1, parts, config.iterations)
    return network.eval()


def _sampler(batch: Batch, config: HistoryTrainingConfig, rng: np.random.Generator) -> Callable[[], Rows]:
    """Draws the histories of one iteration, with replacement, every history (or episode) as likely as any other."""
    mask = torch.from_numpy(batch.mask)
    episode, step = mask.nonzero(as_tuple=True)

    def histories() -> Rows:
        drawn = torch.from_numpy(rng.integers(len(episode), size=config.batch_size))
        return Rows(episode[drawn], step[drawn])

    def episodes() -> Rows:
        drawn = torch.from_numpy(rng.integers(len(batch), size=config.batch_size))
        live = mask[drawn]
        position, times = live.nonzero(as_tuple=True)
        return Rows(drawn[position], times, (drawn, live))

    return histories if config.unit == "histories" else episodes


def _learnt_actions(
    learner: Learner,
    rows: Rows,
    values: Tensor,
    config: HistoryTrainingConfig,
    iteration: int,
    rng: np.random.Generator,
    allowed: BoolArray | None = None,
) -> Tensor:
    """``[R, C]`` all actions, or one that is chosen epsilon-greedily among those that are ``allowed`` ``[R, A]``.

    With "all" those are learnt too that are not allowed: it costs nothing, and nobody looks at their values.
    """
    n, n_actions = values.shape[:2]
    if config.actions == "all":
        return torch.arange(n_actions).expand(n, n_actions)
    explores = torch.from_numpy(rng.random(n) < config.epsilon_at(iteration))
    random = torch.from_numpy(rng.integers(n_actions, size=n) if allowed is None else _any_of(allowed, rng))
    return torch.where(explores, random, learner.chosen(rows, values, rng))[:, None]


def _any_of(allowed: BoolArray, rng: np.random.Generator) -> IntArray:
    """``[R]`` one of the allowed actions ``[R, A]`` of each row, all as likely."""
    order = rng.integers(allowed.sum(axis=1))
    chosen: IntArray = (allowed.cumsum(axis=1) > order[:, None]).argmax(axis=1)
    return chosen


def _targets(histories: Histories, learner: Learner, target: HistoryNetwork, rows: Rows, actions: Tensor) -> Tensor:
    """What the values ``[R, C, k]`` of actions ``[R, C]`` are moved to, by the target network."""
    at = (rows.episode[:, None], rows.step[:, None], actions)
    with torch.no_grad():
        # One step of the cell for each next history.
        memory = (state.repeat_interleave(actions.shape[1], dim=0) for state in target.memory(histories.inputs, rows))
        hidden, _ = lstm_step(target.lstm, histories.next_inputs[at].flatten(0, 1), *memory)
        values = target.values(hidden.reshape(*actions.shape, -1))
        following = learner.following(rows, actions, values)
        return learner.payoff[at] + histories.discount[at][..., None] * following


def _of(values: Tensor, actions: Tensor) -> Tensor:
    """``[R, C, k]`` of the values ``[R, A, k]`` those of the actions ``[R, C]``."""
    return values.take_along_dim(actions[..., None], dim=1)
