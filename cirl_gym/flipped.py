"""The simulator's answer to "and if something else had been done": the same patients, the same noise, other actions.

All that chance decides about a patient is drawn before anybody acts (:class:`Patients`). So two courses of one patient
differ by what was done and by nothing else, and an error on the course that nobody saw contains the same noise as one
on the course that was seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cirl_gym import dynamics
from cirl_gym.batch import Batch
from cirl_gym.dynamics import TumourState
from cirl_gym.futures import Futures, followed
from cirl_gym.parameters import TumourParameters
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray, Step


@dataclass(frozen=True)
class Patients:
    """First observations and noise of n simulated patients.

    Raises:
        ValueError: shapes do not agree.
    """

    parameters: TumourParameters
    start: FloatArray
    """``[n, 2]`` first (x, z)."""
    noise: FloatArray
    """``[n, T, 2]`` eps and eta of every step, raw units."""

    def __post_init__(self) -> None:
        n, wanted = len(self.start), (len(self.start), self.parameters.horizon, 2)
        if self.start.shape != (n, 2) or self.noise.shape != wanted:
            raise ValueError(f"Patients: start {self.start.shape} needs noise {wanted}, got {self.noise.shape}")

    @classmethod
    def draw(cls, parameters: TumourParameters, n: int, rng: np.random.Generator) -> Patients:
        """Draw n patients and all their noise."""
        start = dynamics.draw_start(parameters, n, rng)
        return cls(parameters, start, parameters.noise * rng.standard_normal((n, parameters.horizon, 2)))

    def __len__(self) -> int:
        """Number of patients."""
        return len(self.start)

    def take(self, rows: IntArray) -> Patients:
        """The chosen patients."""
        return Patients(self.parameters, self.start[rows], self.noise[rows])


class PatientsWorld:
    """The simulator with these patients, in order, as a :class:`~cirl_gym.types.World`; it draws nothing."""

    features = dynamics.FEATURES
    n_actions = dynamics.N_ACTIONS

    def __init__(self, patients: Patients) -> None:
        self.patients = patients

    @property
    def horizon(self) -> int:
        """Largest number of actions of an episode."""
        return self.patients.parameters.horizon

    def reset(self, n: int, rng: np.random.Generator) -> tuple[tuple[int, TumourState], Float32Array]:
        """Begin with all patients.

        Raises:
            ValueError: n is not their number.
        """
        if n != len(self.patients):
            raise ValueError(f"PatientsWorld: {n} episodes asked for, there are {len(self.patients)} patients")
        state = dynamics.initial_state(self.patients.parameters, self.patients.start)
        return (0, state), dynamics.observe(state).astype(np.float32)

    def step(self, state: tuple[int, TumourState], actions: IntArray, rng: np.random.Generator) -> Step:
        """One step of equation 22 with the patients' own noise of that step."""
        t, before = state
        parameters = self.patients.parameters
        after = dynamics.transition(parameters, before, actions, self.patients.noise[:, t])
        obs = dynamics.observe(after).astype(np.float32)
        return Step((t + 1, after), obs, obs, dynamics.terminal(parameters, after))


def flipped_futures(patients: Patients, batch: Batch, steps: int) -> Futures:
    """From every history of a batch, the course under the *other* action at every step from there on.

    Args:
        patients: whose noise is replayed.
        batch: what :func:`cirl_gym.rollout.rollout` made of them in :class:`PatientsWorld`, whoever acted.
        steps: at most so many steps ahead, and no further than actions were taken.

    Returns:
        The futures; an outcome is live until the flipped course itself has ended. One step ahead, that is the outcome
        of the action that was not taken.

    Raises:
        ValueError: ``steps`` is below 1, or the batch is not of these patients.
    """
    if steps < 1:
        raise ValueError(f"flipped_futures: steps must be at least 1, got {steps}")
    if len(batch) != len(patients) or not np.array_equal(batch.start, patients.start.astype(np.float32)):
        raise ValueError("flipped_futures: the batch does not begin with these patients")
    episode, step, ahead, inside = followed(batch, steps)
    others = 1 - batch.actions[episode[:, None], ahead]
    state = _states_at(patients, batch, episode, step)
    outcomes, ended_before = _replay(patients.parameters, state, others, patients.noise[episode[:, None], ahead])
    return Futures(episode, step, others, outcomes, inside & ~ended_before)


def constant_futures(patients: Patients, action: int) -> Futures:
    """The course of every patient from the start under one action at every step, live until it has ended."""
    n, steps = len(patients), patients.parameters.horizon
    actions = np.full((n, steps), action, dtype=np.int64)
    state = dynamics.initial_state(patients.parameters, patients.start)
    outcomes, ended_before = _replay(patients.parameters, state, actions, patients.noise)
    return Futures(np.arange(n), np.zeros(n, dtype=np.int64), actions, outcomes, ~ended_before)


def _replay(
    parameters: TumourParameters, state: TumourState, actions: IntArray, noise: FloatArray
) -> tuple[Float32Array, BoolArray]:
    """Observations ``[R, K, 2]`` after every action ``[R, K]``, and whether the process had ended before it."""
    outcomes = np.empty((*actions.shape, 2), dtype=np.float32)
    ended_before = np.zeros(actions.shape, dtype=np.bool_)
    for k in range(actions.shape[1]):
        if k:
            ended_before[:, k] = ended_before[:, k - 1] | dynamics.terminal(parameters, state)
        state = dynamics.transition(parameters, state, actions[:, k], noise[:, k])
        outcomes[:, k] = dynamics.observe(state)
    return outcomes, ended_before


def _states_at(patients: Patients, batch: Batch, episode: IntArray, step: IntArray) -> TumourState:
    """The simulator's states of histories (episode, t) ``[R]``, reached again by what was done."""
    states = [dynamics.initial_state(patients.parameters, patients.start)]
    for t in range(batch.horizon - 1):
        noise = patients.noise[:, t]
        states.append(dynamics.transition(patients.parameters, states[-1], batch.actions[:, t], noise))
    course, doses, seen = (
        np.stack([getattr(state, name) for state in states])[step, episode] for name in ("course", "doses", "seen")
    )
    return TumourState(course, doses, seen)
