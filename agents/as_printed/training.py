"""A training on histories that was killed goes on from where it was last kept, and ends in the same weights."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from agents.successor.training import Problem
from cirl_gym.data.batch import Batch
from cirl_gym.data.rollout import observation
from cirl_gym.data.rules import ActionRules
from cirl_gym.files import StoredParts
from cirl_gym.outcome_models.inputs import Scaler, end_labels, one_hot, sequence_inputs
from cirl_gym.outcome_models.masked import rules_of
from cirl_gym.outcome_models.network_files import load_module_arrays, module_arrays, read_model_file, write_model_file
from cirl_gym.outcome_models.networks import lstm_states, lstm_step
from cirl_gym.outcome_models.training import seeded
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray, Policy

Arrays = dict[str, npt.NDArray[Any]]
_MOMENTS = ("exp_avg", "exp_avg_sq", "step")
"""What Adam remembers of every parameter."""


@dataclass(frozen=True)
class TrainingParts:
    """What a training moves and draws from."""

    network: nn.Module
    """What is learnt."""
    target: nn.Module
    """A copy of some iterations ago, of the same shape."""
    optimiser: torch.optim.Adam
    """Of all parameters of the network, in its order."""
    rng: np.random.Generator
    """Everything that is drawn."""


class StoredTraining:
    """Where one training is kept while it goes on, and its network when it is done.

    Reading and writing draw nothing, so that a training which is kept is the same as one which is not.
    """

    def __init__(self, kept: StoredParts, name: str) -> None:
        """A file of a run's parts.

        Args:
            kept: the run's parts.
            name: of the file, ending in ``.npz``.
        """
        self.kept, self.name = kept, name
        self._written = time.monotonic()

    def begin(self, parts: TrainingParts, iterations: int) -> int:
        """Put a training to where it was kept; returns how many of its iterations are done: 0 where nothing is kept."""
        done = self.kept.read(self.name, lambda path: _read(path, parts, iterations))
        self._written = time.monotonic()
        return done or 0

    def after(self, done: int, parts: TrainingParts, iterations: int) -> None:
        """Told after every iteration; writes when it is time, and when the training is over."""
        if done < iterations and time.monotonic() - self._written < self.kept.every:
            return
        self.kept.write(self.name, lambda path: _write(path, done, parts, iterations))
        self._written = time.monotonic()

    def drop(self) -> None:
        """Remove the file: what the training led to is kept elsewhere."""
        self.kept.drop(self.name)


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


def _write(path: Path, done: int, parts: TrainingParts, iterations: int) -> None:
    arrays = _under("network", module_arrays(parts.network))
    if done < iterations:
        arrays |= _under("target", module_arrays(parts.target))
        for number, moments in parts.optimiser.state_dict()["state"].items():
            arrays |= _under(f"adam.{number}", {name: moments[name].numpy() for name in _MOMENTS})
    write_model_file(path, {"kind": "training", "done": done, "generator": generator_state(parts.rng)}, arrays)


def _read(path: Path, parts: TrainingParts, iterations: int) -> int:
    """Look at everything first, then put it in: a file that cannot be used must not leave half of itself behind."""
    settings, arrays = read_model_file(path)
    done = settings.get("done")
    if settings.get("kind") != "training" or not isinstance(done, int) or not 1 <= done <= iterations:
        raise ValueError(f"it is not a training of {iterations} iterations")
    _check(arrays, _expected(parts, whole=done < iterations))
    set_generator(parts.rng, settings.get("generator"))
    load_module_arrays(parts.network, _within("network", arrays))
    if done < iterations:
        load_module_arrays(parts.target, _within("target", arrays))
        state = parts.optimiser.state_dict()
        numbers = range(len(state["param_groups"][0]["params"]))
        state["state"] = {n: {m: torch.from_numpy(arrays[f"adam.{n}.{m}"]) for m in _MOMENTS} for n in numbers}
        parts.optimiser.load_state_dict(state)
    return done


def _expected(parts: TrainingParts, whole: bool) -> Arrays:
    """Arrays of the names, shapes and dtypes that a file of these parts has."""
    expected = _under("network", module_arrays(parts.network))
    if whole:
        expected |= _under("target", module_arrays(parts.target))
        for number, parameter in enumerate(parts.network.parameters()):
            like = parameter.detach().numpy()
            moments = {"exp_avg": like, "exp_avg_sq": like, "step": np.zeros((), dtype=np.float32)}
            expected |= _under(f"adam.{number}", moments)
    return expected


def _check(arrays: Arrays, expected: Arrays) -> None:
    if set(arrays) != set(expected):
        raise ValueError(f"arrays missing or unknown: {', '.join(sorted(set(arrays) ^ set(expected)))}")
    for name, like in expected.items():
        found = arrays[name]
        if (found.shape, found.dtype) != (like.shape, like.dtype):
            raise ValueError(f"array {name!r} is {found.dtype} {found.shape}, not {like.dtype} {like.shape}")


def _under(prefix: str, arrays: Arrays) -> Arrays:
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def _within(prefix: str, arrays: Arrays) -> Arrays:
    return {name.removeprefix(f"{prefix}."): a for name, a in arrays.items() if name.startswith(f"{prefix}.")}


# MERGED: Every history of a batch and every action after it: what appendices C and D learn on, computed once.
#
# For a history h of the batch and any action a, the outcome model gives the next history h' = (h, a, E[Y(a) | h]).
# The
# network that learns reads h step by step as [scaled x_t, one-hot a_{t-1}]; h' is one step more.

Ends = Literal["data", "model"]
"""What says that an episode ends: the batch's flags or the outcome model's p_end."""


class Masks(NamedTuple):
    """Which actions are allowed, True where one is; at least one is everywhere, also on padding."""

    here: Tensor
    """``[N, T, A]`` after h."""
    following: Tensor
    """``[N, T, A, A]`` after h' = (h, a, E[Y(a) | h]) for every a, allowed or not."""


@dataclass(frozen=True)
class Histories:
    """The histories h_0..h_{T-1} of N episodes, and what follows each under each of A actions."""

    batch: Batch
    """The episodes."""
    scaler: Scaler
    """How observations are scaled for the network."""
    horizon: int
    """Number of actions of a whole episode, at least the batch's T."""
    ends: Ends
    """What said that an episode ends."""
    outcomes: Float32Array
    """``[N, T, A, D]`` expected next observation, raw units."""
    inputs: Tensor
    """``[N, T, D + A]`` float32, what the network reads at each step."""
    phi: Tensor
    """``[N, T, A, d]`` float32."""
    discount: Tensor
    """``[N, T, A]`` float32: gamma times the chance that the episode goes on; 0 after the last step of the horizon."""
    next_inputs: Tensor
    """``[N, T, A, D + A]`` float32, what the network reads when h has become h'."""
    rules: ActionRules | None = None
    """Those of the outcome model's world; None: every action is always allowed."""
    masks: Masks | None = None
    """What the rules allow; None where there are none."""

    @classmethod
    def of(cls, problem: Problem, ends: Ends = "model") -> Histories:
        """Ask the outcome model about every history of a problem's batch.

        Args:
            problem: outcome model, outcomes, horizon, discount factor, and the batch (``histories``).
            ends: ``"data"``: an episode ends where the batch's did, whatever the action (the paper); one whose
                watching ended before the horizon goes on. ``"model"``: with probability p_end(h, a). Either way it ends
                after the horizon's last action.

        Raises:
            ValueError: the problem has no histories, they have other actions than the model, or ``ends`` is unknown.
        """
        batch, model = problem.histories, problem.model
        if batch is None:
            raise ValueError("learning on histories needs a problem with histories")
        if batch.n_actions != model.n_actions:
            raise ValueError(f"the histories have {batch.n_actions} actions, the model {model.n_actions}")
        if ends not in get_args(Ends):
            raise ValueError(f"ends must be 'data' or 'model', got {ends!r}")
        states = model.encode(batch)[:, :-1]  # h_T has no action
        outcomes = model.predict(states)
        p_end = model.end_probability(states) if ends == "model" else end_labels(batch)[..., None]
        discount = np.broadcast_to(problem.gamma * (1.0 - p_end), outcomes.shape[:3]).astype(np.float32)
        discount[:, problem.horizon - 1 :] = 0.0
        scaler = Scaler.from_batch(batch)
        hot = one_hot(np.arange(model.n_actions), model.n_actions)
        taken = np.broadcast_to(hot, (*outcomes.shape[:3], model.n_actions))
        rules = rules_of(model)
        return cls(
            batch=batch,
            scaler=scaler,
            horizon=problem.horizon,
            ends=ends,
            outcomes=outcomes,
            inputs=torch.from_numpy(sequence_inputs(scaler, batch)[:, :-1].copy()),
            phi=torch.from_numpy(problem.feature_map(outcomes).astype(np.float32)),
            discount=torch.from_numpy(discount),
            next_inputs=torch.from_numpy(np.concatenate([scaler(outcomes), taken], axis=-1)),
            rules=rules,
            masks=None if rules is None else _masks(rules, batch, outcomes),
        )

    def check_batch(self, batch: Batch) -> None:
        """Raise ValueError where another batch has other features or actions."""
        if (batch.features, batch.n_actions) != (self.batch.features, self.batch.n_actions):
            raise ValueError(
                f"the batch has features {batch.features} and {batch.n_actions} actions, learnt was on "
                f"{self.batch.features} and {self.batch.n_actions}"
            )


def _masks(rules: ActionRules, batch: Batch, outcomes: Float32Array) -> Masks:
    taken = np.broadcast_to(np.arange(batch.n_actions), outcomes.shape[:3])
    here, following = rules.allowed_along(batch)[:, :-1], rules.allowed(outcomes, taken)
    return Masks(torch.from_numpy(here.copy()), torch.from_numpy(following))


@dataclass(frozen=True)
class PolicyActions:
    """What a policy does after every history of the batch and after every next history.

    A policy that draws is asked several times: an expectation over its actions is the mean over what it drew.
    """

    here: Tensor
    """``[K, N, T]`` int64, after h."""
    following: Tensor
    """``[K, N, T, A]`` int64, after h' = (h, a, E[Y(a) | h]) for every a; 0 after the horizon's last step, where there
    is no further action."""

    @classmethod
    def of(cls, policy: Policy, histories: Histories, draws: int = 0) -> PolicyActions:
        """Ask a policy along the batch, its memory carried from t = 0 on.

        Args:
            policy: who is asked.
            histories: the batch and its next histories.
            draws: K, how often a policy that draws is asked; 0: once, for its most likely action.

        Raises:
            ValueError: ``draws`` is negative.
        """
        if draws < 0:
            raise ValueError(f"draws must not be negative, got {draws}")
        asked = [_actions(policy, histories, deterministic=draws == 0) for _ in range(max(draws, 1))]
        here, following = (torch.from_numpy(np.stack(part)) for part in zip(*asked, strict=True))
        return cls(here, following)


def _actions(policy: Policy, histories: Histories, deterministic: bool) -> tuple[IntArray, IntArray]:
    batch, (n, steps, n_actions, _) = histories.batch, histories.outcomes.shape
    here: IntArray = np.zeros((n, steps), dtype=np.int64)
    following: IntArray = np.zeros((n, steps, n_actions), dtype=np.int64)
    previous: IntArray = np.full(n, -1, dtype=np.int64)
    goes_on: BoolArray = np.zeros(n, dtype=np.bool_)
    memory = None
    for t in range(steps):
        seen = observation(batch.obs[:, t], previous, n_actions)
        here[:, t], memory = policy.predict(seen, memory, np.full(n, t == 0), deterministic)
        if t < histories.horizon - 1:
            for action in range(n_actions):
                then = observation(histories.outcomes[:, t, action], np.full(n, action), n_actions)
                following[:, t, action], _ = policy.predict(then, memory, goes_on, deterministic)
        previous = batch.actions[:, t]
    return here, following


# MERGED: The recurrent network of appendices C and D: a value of every action after every history of a batch.


class Rows(NamedTuple):
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

    def hidden(self, inputs: Tensor, rows: Rows) -> Tensor:
        """The memory's output ``[R, H]`` after histories of the inputs ``[N, T, I]``."""
        if rows.whole is None:
            return self.memory(inputs, rows)[0]
        # In one pass, which yields no cell states.
        episodes, live = rows.whole
        hidden: Tensor = self.lstm(inputs[episodes])[0][live]
        return hidden

    def memory(self, inputs: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
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


# MERGED: The training that appendices C and D share: a recurrent network, a target network, histories drawn from the
# batch.
#
# Both learn a value of every action after a history, by one step of bootstrapping in the outcome model:
#
#     y = payoff(h, a) + gamma (1 - end(h, a)) following(h'),    h' = (h, a, E[Y(a) | h])
#
# In appendix C the payoff is phi and what follows is mu(h', pi(h')); in D it is w . phi and max over a' of Q(h', a').
# Every history is read from its first observation on, from a zero state; h' costs one more step of the memory.

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
    """What says that an episode ends (:meth:`agents.as_printed.training.Histories.of`)."""

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
    kept: StoredTraining | None = None,
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
