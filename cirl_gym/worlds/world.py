"""The two batched worlds behind the environments: the simulator, and any outcome model."""

from __future__ import annotations

from typing import Literal

import numpy as np

from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.types import Float32Array, FloatArray, IntArray, Step
from cirl_gym.worlds import tumour
from cirl_gym.worlds.tumour import TumourParameters, TumourState


class TumourWorld:
    """The simulator (paper, section 5.1) as a :class:`~cirl_gym.types.World`."""

    features = tumour.FEATURES
    n_actions = tumour.N_ACTIONS

    def __init__(self, parameters: TumourParameters | None = None, *, noise: bool = True) -> None:
        self.parameters = parameters or TumourParameters()
        self.noise = noise

    @property
    def horizon(self) -> int:
        """Largest number of actions of an episode."""
        return self.parameters.horizon

    def reset(self, n: int, rng: np.random.Generator) -> tuple[TumourState, Float32Array]:
        """Draw n patients."""
        return self.start(tumour.draw_start(self.parameters, n, rng))

    def start(self, first: FloatArray) -> tuple[TumourState, Float32Array]:
        """Begin with given patients ``[n, 2]``."""
        state = tumour.initial_state(self.parameters, first)
        return state, tumour.observe(state).astype(np.float32)

    def step(self, state: TumourState, actions: IntArray, rng: np.random.Generator) -> Step:
        """One step of equation 22 for every patient."""
        noise = self.parameters.noise * rng.standard_normal((len(actions), 2)) if self.noise else np.zeros(2)
        return tumour.follow(self.parameters, state, actions, noise)


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
