"""The training that appendices C and D share: a recurrent network, a target network, histories drawn from the batch.

Both learn a value of every action after a history, by one step of bootstrapping in the outcome model:

    y = payoff(h, a) + gamma (1 - end(h, a)) following(h'),    h' = (h, a, E[Y(a) | h])

In appendix C the payoff is phi and what follows is mu(h', pi(h')); in D it is w . phi and max over a' of Q(h', a').
Every history is read from its first observation on, from a zero state; h' costs one more step of the memory.

A training that was killed goes on from where it was last stored, and ends in the same weights.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from agents.as_printed.histories import Ends, Histories
from cirl_gym.data.batch import Batch
from cirl_gym.files import StoredParts
from cirl_gym.outcome_models.inputs import Scaler, sequence_inputs
from cirl_gym.outcome_models.network_files import (
    Arrays,
    check_arrays,
    expected_optimiser_arrays,
    load_module_arrays,
    load_optimiser_arrays,
    module_arrays,
    optimiser_arrays,
    part,
    prefixed,
    read_model_file,
    write_model_file,
)
from cirl_gym.outcome_models.networks import lstm_states, lstm_step
from cirl_gym.outcome_models.training import Progress, check_settings, seeded
from cirl_gym.types import BoolArray, FloatArray

Unit = Literal["histories", "episodes"]
"""What a batch is a number of: histories, each at one time, or episodes with all their histories."""
Actions = Literal["epsilon_greedy", "all"]
"""Which actions of a history are learnt at an iteration: one, chosen epsilon-greedily, or all of them."""


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
    """What says that an episode ends (:meth:`agents.as_printed.histories.Histories.of`)."""

    def __post_init__(self) -> None:
        check_settings(self, "hidden batch_size target_every iterations", "at least 1", lambda value: value >= 1)
        check_settings(self, "learning_rate", "positive and finite", lambda value: 0 < value < np.inf)
        check_settings(self, "last_rate epsilon epsilon_decay", "within [0, 1]", lambda value: 0 <= value <= 1)
        for name, options in (("unit", get_args(Unit)), ("actions", get_args(Actions)), ("ends", get_args(Ends))):
            check_settings(self, name, " or ".join(map(repr, options)), options.__contains__)

    @classmethod
    def paper(cls) -> HistoryTrainingConfig:
        """As printed: the tables of appendices C and D, which have the same numbers.

        Epsilon falls from .9 to .7. Trajectories end where the batch's did.
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


class HistoryRows(NamedTuple):
    """Which histories of a batch: R episodes and times."""

    episode: Tensor
    """``[R]`` int64."""
    step: Tensor
    """``[R]`` int64, t of h_t."""
    whole: tuple[Tensor, Tensor] | None = None
    """Where they are all histories of some episodes: these ``[B]``, and ``[B, T]`` True where there is a history."""


class HistoryNetwork(nn.Module):
    """An LSTM over [scaled x_t, one-hot a_{t-1}] and a linear output: a value ``[A, k]`` after every history."""

    def __init__(self, n_inputs: int, n_actions: int, size: int, hidden: int) -> None:
        super().__init__()
        self.n_actions, self.size = n_actions, size
        self.lstm = nn.LSTM(n_inputs, hidden, batch_first=True)
        self.head = nn.Linear(hidden, n_actions * size)

    def values(self, hidden: Tensor) -> Tensor:
        """``[.., A, k]`` for the memory's output ``[.., H]``."""
        out: Tensor = self.head(hidden)
        return out.reshape(*hidden.shape[:-1], self.n_actions, self.size)

    def hidden(self, inputs: Tensor, rows: HistoryRows) -> Tensor:
        """The memory's output ``[R, H]`` after histories of the inputs ``[N, T, I]``."""
        if rows.whole is None:
            return self.memory(inputs, rows)[0]
        # In one pass, which yields no cell states.
        episodes, live = rows.whole
        hidden: Tensor = self.lstm(inputs[episodes])[0][live]
        return hidden

    def memory(self, inputs: Tensor, rows: HistoryRows) -> tuple[Tensor, Tensor]:
        """Hidden and cell states ``[R, H]`` after histories of the inputs ``[N, T, I]``."""
        if rows.whole is not None:
            episodes, live = rows.whole
            hidden, cell = (states[live] for states in lstm_states(self.lstm, inputs[episodes]))
            return hidden, cell
        packed = pack_padded_sequence(inputs[rows.episode], rows.step + 1, batch_first=True, enforce_sorted=False)
        _, (hidden, cell) = self.lstm(packed)
        return hidden[0], cell[0]


def values_along(network: HistoryNetwork, scaler: Scaler, batch: Batch) -> FloatArray:
    """``[N, T, A, k]`` values after every history of a batch; 0 on padding."""
    with torch.inference_mode():
        inputs = torch.from_numpy(sequence_inputs(scaler, batch)[:, :-1].copy())
        values = network.values(network.lstm(inputs)[0]).double().numpy()
    return np.where(batch.mask[..., None, None], values, 0.0)


class Learner(Protocol):
    """What is learnt: the parts of the target in which appendices C and D differ. k is the size of a value."""

    @property
    def payoff(self) -> Tensor:
        """``[N, T, A, k]`` what an action brings at once."""

    def chosen(self, rows: HistoryRows, values: Tensor, rng: np.random.Generator) -> Tensor:
        """``[R]`` the actions of the policy after the histories, whose values are ``[R, A, k]``."""

    def following(self, rows: HistoryRows, actions: Tensor, values: Tensor) -> Tensor:
        """``[R, C, k]`` worth of the next histories after actions ``[R, C]``, by their values ``[R, C, A, k]``."""

    def loss(self, error: Tensor) -> Tensor:
        """What is made small, for errors ``[R, C, k]``."""


def train_on_histories(
    histories: Histories,
    learner: Learner,
    config: HistoryTrainingConfig,
    rng: np.random.Generator,
    progress: Progress | None = None,
    *,
    stored: StoredTraining | None = None,
) -> HistoryNetwork:
    """Learn a value of every action after every history of a batch (paper, appendices C and D).

    The paper's losses are sums over the batch; the means taken here have the same minimum, and Adam takes the factor
    out. First weights and everything that is drawn come from ``rng``; where the training is ``stored``, one that was
    killed goes on with the same arguments.

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
    begun = 0 if stored is None else stored.begin(network, target, optimiser, rng, config.iterations)
    for iteration in range(begun, config.iterations):
        for group in optimiser.param_groups:
            group["lr"] = config.rate_at(iteration)
        rows = draw()
        values = network.values(network.hidden(histories.inputs, rows))
        allowed = None if histories.masks is None else histories.masks.here[rows.episode, rows.step].numpy()
        actions = _learnt_actions(learner, rows, values.detach(), config, iteration, rng, allowed)
        chosen = values.take_along_dim(actions[..., None], dim=1)
        loss = learner.loss(chosen - _targets(histories, learner, target, rows, actions))
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if (iteration + 1) % config.target_every == 0:
            target.load_state_dict(network.state_dict())
            if not torch.isfinite(loss):
                raise ValueError(f"training stopped at iteration {iteration + 1}: the loss is {loss.item()}")
            if progress is not None:
                progress(iteration + 1, config.iterations)
        if stored is not None:
            stored.after(iteration + 1)
    return network.eval()


def _sampler(batch: Batch, config: HistoryTrainingConfig, rng: np.random.Generator) -> Callable[[], HistoryRows]:
    """Draws the histories of one iteration, with replacement, every history (or episode) as likely as any other."""
    mask = torch.from_numpy(batch.mask)
    episode, step = mask.nonzero(as_tuple=True)

    def histories() -> HistoryRows:
        drawn = torch.from_numpy(rng.integers(len(episode), size=config.batch_size))
        return HistoryRows(episode[drawn], step[drawn])

    def episodes() -> HistoryRows:
        drawn = torch.from_numpy(rng.integers(len(batch), size=config.batch_size))
        live = mask[drawn]
        position, times = live.nonzero(as_tuple=True)
        return HistoryRows(drawn[position], times, (drawn, live))

    return histories if config.unit == "histories" else episodes


def _learnt_actions(
    learner: Learner,
    rows: HistoryRows,
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
    if allowed is None:
        drawn = rng.integers(n_actions, size=n)
    else:
        # One of those that are allowed, all as likely: the first that as many others come before.
        drawn = (allowed.cumsum(axis=1) > rng.integers(allowed.sum(axis=1))[:, None]).argmax(axis=1)
    return torch.where(explores, torch.from_numpy(drawn), learner.chosen(rows, values, rng))[:, None]


def _targets(
    histories: Histories, learner: Learner, target: HistoryNetwork, rows: HistoryRows, actions: Tensor
) -> Tensor:
    """What the values ``[R, C, k]`` of actions ``[R, C]`` are moved to, by the target network."""
    at = (rows.episode[:, None], rows.step[:, None], actions)
    with torch.no_grad():
        # One step of the cell for each next history.
        memory = (state.repeat_interleave(actions.shape[1], dim=0) for state in target.memory(histories.inputs, rows))
        hidden, _ = lstm_step(target.lstm, histories.next_inputs[at].flatten(0, 1), *memory)
        values = target.values(hidden.reshape(*actions.shape, -1))
        following = learner.following(rows, actions, values)
        return learner.payoff[at] + histories.discount[at][..., None] * following


def generator_state(rng: np.random.Generator) -> dict[str, Any]:
    """State of a generator, for JSON. How many generators were spawned from it is no part of it."""
    return dict(rng.bit_generator.state)


def set_generator(rng: np.random.Generator, state: Any) -> None:
    """Put back what :func:`generator_state` gave; the generator stays as it is where that cannot be.

    Raises:
        ValueError: it is not the state of such a generator.
    """
    trial = type(rng.bit_generator)()
    try:
        trial.state = state
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"the state of the generator is damaged: {error!r}") from error
    rng.bit_generator.state = trial.state


class StoredTraining:
    """Where one training is stored while it goes on, and its network when it is done.

    Reading and writing draw nothing, so that a training which is stored is the same as one which is not.

    Args:
        parts: of the run.
        name: of the file among them, ending in ``.npz``.
    """

    def __init__(self, parts: StoredParts, name: str) -> None:
        self.parts, self.name = parts, name
        self._written = time.monotonic()

    def begin(
        self,
        network: nn.Module,
        target: nn.Module,
        optimiser: torch.optim.Adam,
        rng: np.random.Generator,
        iterations: int,
    ) -> int:
        """Put a training to where it was stored; returns how many of its iterations are done: 0 where none are.

        Args:
            network: what is learnt.
            target: a copy of some iterations ago, of the same shape.
            optimiser: of all parameters of the network, in its order.
            rng: everything that is drawn.
            iterations: of the whole training.
        """
        self.network, self.target, self.optimiser, self.rng = network, target, optimiser, rng
        self.iterations = iterations
        done = self.parts.read(self.name, self._read)
        self._written = time.monotonic()
        return done or 0

    def after(self, done: int) -> None:
        """Told after every iteration; writes when it is time, and when the training is over."""
        if done < self.iterations and time.monotonic() - self._written < self.parts.every:
            return
        settings = {"kind": "training", "done": done, "generator": generator_state(self.rng)}
        arrays = self._arrays(done, optimiser_arrays)
        self.parts.write(self.name, lambda path: write_model_file(path, settings, arrays))
        self._written = time.monotonic()

    def drop(self) -> None:
        """Remove the file: what the training led to is stored elsewhere."""
        self.parts.drop(self.name)

    def _arrays(self, done: int, moments: Callable[[torch.optim.Adam, str], Arrays]) -> Arrays:
        """What is stored after so many iterations: of a training that is over the network alone."""
        arrays = prefixed("network.", module_arrays(self.network))
        if done < self.iterations:
            arrays |= prefixed("target.", module_arrays(self.target)) | moments(self.optimiser, "adam.{}.")
        return arrays

    def _read(self, path: Path) -> int:
        """Look at everything first, then put it in: a file that cannot be used must not leave half of itself behind."""
        settings, arrays = read_model_file(path)
        done = settings.get("done")
        if settings.get("kind") != "training" or not isinstance(done, int) or not 1 <= done <= self.iterations:
            raise ValueError(f"it is not a training of {self.iterations} iterations")
        check_arrays(arrays, self._arrays(done, expected_optimiser_arrays))
        set_generator(self.rng, settings.get("generator"))
        load_module_arrays(self.network, part("network.", arrays))
        if done < self.iterations:
            load_module_arrays(self.target, part("target.", arrays))
            load_optimiser_arrays(self.optimiser, arrays, "adam.{}.")
        return done
