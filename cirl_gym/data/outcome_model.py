"""What an outcome model promises: phi of any history, deterministic. Everything above a model sees only this.

:class:`CounterfactualWorld` is what a rollout acts in where histories go on as a model predicts.
"""

from __future__ import annotations

from typing import Literal, Protocol, runtime_checkable

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.types import Float32Array, FloatArray, IntArray, Step


class OutcomeModel(Protocol):
    """phi before scaling: expected next observation under every action, for any history (paper, equation 1).

    A history is carried as a flat row of S float32 numbers, so that states can be indexed, stored and repeated like
    any other array. All methods are deterministic and treat every row alone: a row's result does not depend on which
    other rows are in the array.
    """

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the d features."""

    @property
    def n_actions(self) -> int:
        """A, the number of actions."""

    @property
    def noise_scale(self) -> FloatArray:
        """``[d]`` standard deviation of the observed outcome around the expected one, raw units."""

    def noise(self, normals: FloatArray) -> FloatArray:
        """Residuals ``[.., d]``, raw units, for independent standard normal numbers ``[.., d]``."""

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """``[d]`` lower and upper limit of any outcome, raw units; predictions and samples stay inside."""

    def encode(self, batch: Batch) -> Float32Array:
        """States ``[N, T+1, S]`` of the histories h_0..h_T of every episode; rows past the end are zero."""

    def start(self, obs: Float32Array) -> Float32Array:
        """States ``[n, S]`` of the histories that consist of one observation ``[n, d]``."""

    def predict(self, states: Float32Array) -> Float32Array:
        """Expected next observation ``[.., A, d]``, raw units, for states ``[.., S]`` under every action."""

    def end_probability(self, states: Float32Array) -> Float32Array:
        """Probability ``[.., A]`` that the process ends with this action, for states ``[.., S]``."""

    def advance(self, states: Float32Array, actions: IntArray, obs: Float32Array) -> Float32Array:
        """States ``[.., S]`` after action ``[..]`` was taken and ``[.., d]`` was observed."""


_MEMBERS = {
    "features": "names of the features, those of the batch",
    "n_actions": "the number of actions",
    "noise_scale": "[d] standard deviation of outcomes around what is expected",
    "bounds": "two arrays [d], lowest and highest outcome",
    "noise": "noise(normals [.., d]) -> [.., d]",
    "encode": "encode(batch) -> states [N, T+1, S]; cirl_gym.data.outcome_model.fold(self, batch) makes them",
    "start": "start(obs [n, d]) -> states [n, S]",
    "predict": "predict(states [.., S]) -> expected next observations [.., A, d]",
    "end_probability": "end_probability(states [.., S]) -> [.., A]",
    "advance": "advance(states [.., S], actions [..], obs [.., d]) -> states [.., S]",
}


def check_model(model: object, batch: Batch) -> None:
    """Try a model, by the :class:`OutcomeModel` Protocol, on up to three episodes of a batch.

    Raises:
        ValueError: it lacks something, is of other features or actions, or answers in another shape, with a number
            that is not finite, or with a chance of ending outside of [0, 1]; the message says what is needed.
    """
    name = type(model).__name__
    lacking = [member for member in _MEMBERS if not hasattr(model, member)]
    if lacking:
        needs = "; ".join(f"{member} ({_MEMBERS[member]})" for member in lacking)
        raise ValueError(f"{name} is no outcome model, it lacks {needs}")
    known: OutcomeModel = model  # type: ignore[assignment]
    if (tuple(known.features), known.n_actions) != (batch.features, batch.n_actions):
        raise ValueError(
            f"{name} is of features {', '.join(known.features)} and {known.n_actions} actions, the batch of "
            f"{', '.join(batch.features)} and {batch.n_actions}"
        )
    few = batch.take(np.arange(min(len(batch), 3)))
    n, d, n_actions = len(few), len(batch.features), batch.n_actions
    begun = np.asarray(known.start(few.start))
    if begun.ndim != 2 or len(begun) != n:
        raise ValueError(f"{name}.start must give states [{n}, S] for {n} observations, got {list(begun.shape)}")
    s = begun.shape[1]
    ends = np.asarray(known.end_probability(begun))
    given = {
        "encode": (known.encode(few), [n, few.horizon + 1, s]),
        "predict": (known.predict(begun), [n, n_actions, d]),
        "end_probability": (ends, [n, n_actions]),
        "advance": (known.advance(begun, few.actions[:, 0], few.obs[:, 1]), [n, s]),
        "noise": (known.noise(np.zeros((n, d))), [n, d]),
        "noise_scale": (known.noise_scale, [d]),
        "bounds": (known.bounds, [2, d]),
    }
    for member, (answer, shape) in given.items():
        found = np.asarray(answer)
        if list(found.shape) != shape:
            raise ValueError(f"{name}.{member} must give {shape} ({_MEMBERS[member]}), got {list(found.shape)}")
        if member != "bounds" and not np.isfinite(found).all():
            raise ValueError(f"{name}.{member} gives a number that is not finite")
    if ((ends < 0) | (ends > 1)).any():
        raise ValueError(f"{name}.end_probability gives a chance outside of [0, 1]")


@runtime_checkable
class ForesightModel(Protocol):
    """What an outcome model can have beside: :func:`foresee` without the answers for every action, twice."""

    def foresee(self, states: Float32Array, actions: IntArray) -> tuple[Float32Array, Float32Array]:
        """Both answers for one action each, which a search asks for all the time."""


def foresee(model: OutcomeModel, states: Float32Array, actions: IntArray) -> tuple[Float32Array, Float32Array]:
    """Expected next observations ``[n, d]`` and end probabilities ``[n]`` of states ``[n, S]``, actions ``[n]``.

    They equal those of ``predict`` and ``end_probability`` up to the last bits.
    """
    # Not isinstance, which asks a Protocol for its members every time.
    if (own := getattr(model, "foresee", None)) is not None:
        answers: tuple[Float32Array, Float32Array] = own(states, actions)
        return answers
    rows = np.arange(len(actions))
    return model.predict(states)[rows, actions], model.end_probability(states)[rows, actions]


def fold(model: OutcomeModel, batch: Batch) -> Float32Array:
    """States ``[N, T+1, S]`` of every history by starting and advancing; zero past an episode's end."""
    state = model.start(batch.start)
    states = [state]
    for step in range(batch.horizon):
        state = model.advance(state, batch.actions[:, step], batch.obs[:, step + 1])
        states.append(state)
    return np.where(batch.seen[..., None], np.stack(states, axis=1), np.float32(0.0))


class CounterfactualWorld:
    """h' = (h, a, phi(h, a)) in any outcome model, from given first histories (paper, appendix C)."""

    def __init__(
        self,
        model: OutcomeModel,
        starts: Float32Array,
        horizon: int,
        *,
        outcome: Literal["expected", "sampled"] = "expected",
    ) -> None:
        if outcome not in ("expected", "sampled"):
            raise ValueError(f"outcome must be 'expected' or 'sampled', got {outcome!r}")
        if starts.ndim != 2 or starts.shape[1] != len(model.features) or len(starts) == 0:
            raise ValueError(f"starts must be [n, {len(model.features)}] with n >= 1, got {starts.shape}")
        self.model = model
        self.starts = starts
        self._horizon = horizon
        self.outcome = outcome

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the d features."""
        return self.model.features

    @property
    def n_actions(self) -> int:
        """A, the number of actions."""
        return self.model.n_actions

    @property
    def horizon(self) -> int:
        """Largest number of actions of an episode."""
        return self._horizon

    def reset(self, n: int, rng: np.random.Generator) -> tuple[Float32Array, Float32Array]:
        """Begin with n first observations: every start once while they last, then drawn."""
        rows = np.arange(n) if n <= len(self.starts) else rng.integers(len(self.starts), size=n)
        obs = self.starts[rows]
        return self.model.start(obs), obs

    def step(self, state: Float32Array, actions: IntArray, rng: np.random.Generator) -> Step:
        """Append the action and its expected (or sampled) outcome to every history; it may end (p_end)."""
        ends = rng.random(len(actions))
        sampled = self.outcome == "sampled"
        noise = rng.standard_normal((len(actions), len(self.features))) if sampled else None
        return follow(self.model, state, actions, ends, noise)


def follow(
    model: OutcomeModel, states: Float32Array, actions: IntArray, ends: FloatArray, noise: FloatArray | None
) -> Step:
    """How histories go on: h' = (h, a, outcome) (paper, appendix C).

    Args:
        model: says what to expect.
        states: ``[n, S]`` of the histories.
        actions: ``[n]``.
        ends: ``[n]`` uniform numbers; the process ends where one is below p_end(h, a).
        noise: ``[n, d]`` standard normal numbers for sampled outcomes; None: expected outcomes.
    """
    rows = np.arange(len(actions))
    expected = model.predict(states)[rows, actions]
    ended = ends < model.end_probability(states)[rows, actions]
    obs = expected
    if noise is not None:
        obs = np.clip(expected + model.noise(noise), *model.bounds).astype(np.float32)
    return Step(model.advance(states, actions, obs), obs, expected, ended)
