"""What the simulator answers exactly: the best plan without noise, and what other actions would have led to.

The optimum tries every plan of one patient. What if something else had been done is answered for the same patients with
the same noise: all that chance decides is drawn before anybody acts (:class:`Patients`). So two courses of one patient
differ by what was done and by nothing else, and an error on the course that nobody saw contains the same noise as one
on the course that was seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import check_weights
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray, Step
from cirl_gym.worlds import tumour
from cirl_gym.worlds.tumour import TumourParameters, TumourState

LONGEST = 24
"""More steps would need more than a few gigabytes."""


class Optimum(NamedTuple):
    """The best plans of n patients for K criteria."""

    values: FloatArray
    """``[n, K]`` largest discounted noise-free return."""
    plans: IntArray
    """``[n, K, T]`` actions of a plan that earns it; 0 after the process has ended."""


def optimum(
    parameters: TumourParameters, starts: npt.ArrayLike, criteria: Sequence[tuple[npt.ArrayLike, float]]
) -> Optimum:
    """What nobody can exceed without noise, from given first observations.

    All 2^T plans of a patient are followed at once, and plans that agree until the process ends are one plan: about a
    second a patient at T = 20, whatever the number of criteria.

    Args:
        parameters: the simulator; its noise is left out.
        starts: ``[n, 2]`` first (x, z), raw units.
        criteria: K pairs of weights ``[2]`` and discount factor in [0, 1].

    Raises:
        ValueError: weights, a discount factor or starts are not possible, or the horizon is too long to try every plan.
    """
    patients = np.asarray(starts, dtype=np.float64)
    if patients.ndim != 2 or patients.shape[1] != 2 or not np.isfinite(patients).all():
        raise ValueError(f"starts must be finite numbers [n, 2], got shape {patients.shape}")
    if parameters.horizon > LONGEST:
        raise ValueError(f"2^{parameters.horizon} plans are too many to try; the horizon must be at most {LONGEST}")
    weights = np.stack([check_weights(w, tumour.FEATURES) for w, _ in criteria], axis=1)
    gammas = np.array([gamma for _, gamma in criteria], dtype=np.float64)
    if not ((gammas >= 0) & (gammas <= 1)).all():
        raise ValueError(f"discount factors must lie between 0 and 1, got {gammas.tolist()}")
    begun = (tumour.initial_state(parameters, patient[None]) for patient in patients)
    found = [_best(parameters, state, parameters.horizon, weights, gammas) for state in begun]
    shape = (len(patients), len(gammas))
    values = np.array([value for value, _ in found]).reshape(shape)
    numbers = np.array([number for _, number in found], dtype=np.int64).reshape(shape)
    return Optimum(values, (numbers[..., None] >> np.arange(parameters.horizon)) & 1)


def _best(
    parameters: TumourParameters, state: TumourState, steps: int, weights: FloatArray, gammas: FloatArray
) -> tuple[FloatArray, IntArray]:
    """Best value and plan from one state, with so many steps left, ``[K]`` each; a plan is a number whose bit t is the
    action at t.
    """
    phi_of = parameters.feature_map
    numbers: IntArray = np.zeros(1, dtype=np.int64)
    earned = np.zeros((1, len(gammas)))
    best, best_number = np.full(len(gammas), -np.inf), np.zeros(len(gammas), dtype=np.int64)
    for t in range(steps):
        actions = np.repeat(np.arange(2), len(numbers))
        both = TumourState._make(np.concatenate([part, part]) for part in state)
        state = tumour.transition(parameters, both, actions, np.zeros(2))
        numbers = np.concatenate([numbers, numbers]) | (actions << t)
        # Observations are float32 in every environment, and the reward is computed from them.
        phi = phi_of(tumour.observe(state).astype(np.float32))
        earned = np.concatenate([earned, earned]) + gammas**t * (phi @ weights)
        over = tumour.terminal(parameters, state) | (t == steps - 1)
        if over.any():
            first = earned[over].argmax(axis=0)
            value = np.take_along_axis(earned[over], first[None], axis=0)[0]
            best_number = np.where(value > best, numbers[over][first], best_number)
            best = np.maximum(best, value)
        going = ~over
        state = TumourState._make(part[going] for part in state)
        numbers, earned = numbers[going], earned[going]
    return best, best_number


@dataclass(frozen=True)
class Futures:
    """R histories h_t of a batch's episodes, and up to K actions and outcomes after each.

    Raises:
        ValueError: shapes do not agree.
    """

    episode: IntArray
    """``[R]`` which episode of the batch."""
    step: IntArray
    """``[R]`` t, the number of actions before."""
    actions: IntArray
    """``[R, K]`` a_t, a_{t+1}, ...; without meaning where nothing is live."""
    outcomes: Float32Array
    """``[R, K, d]`` what was observed after each of them, raw units; without meaning where nothing is live."""
    live: BoolArray
    """``[R, K]`` whether the outcome exists; once False it stays so."""

    def __post_init__(self) -> None:
        rows, steps = self.actions.shape
        shapes = (self.episode.shape, self.step.shape, self.outcomes.shape[:2], self.live.shape)
        if shapes != ((rows,), (rows,), (rows, steps), (rows, steps)):
            raise ValueError(f"Futures: shapes do not agree, actions are {self.actions.shape}, the others {shapes}")

    @property
    def steps(self) -> int:
        """K, the most steps ahead."""
        return int(self.actions.shape[1])


def followed(batch: Batch, steps: int) -> tuple[IntArray, IntArray, IntArray, BoolArray]:
    """Every history at which an action was taken, and the steps after it.

    Returns:
        ``[R]`` episodes, ``[R]`` steps t, ``[R, K]`` the steps t, t+1, ... (kept inside the batch) and whether an
        action was taken there.
    """
    episode, step = np.nonzero(batch.mask)
    ahead = step[:, None] + np.arange(min(steps, batch.horizon))
    return episode, step, np.minimum(ahead, batch.horizon - 1), ahead < batch.lengths[episode][:, None]


def taken_futures(batch: Batch, steps: int) -> Futures:
    """What was really done and observed after every history, at most ``steps`` steps ahead.

    Raises:
        ValueError: ``steps`` is below 1.
    """
    if steps < 1:
        raise ValueError(f"taken_futures: steps must be at least 1, got {steps}")
    episode, step, ahead, live = followed(batch, steps)
    rows = episode[:, None]
    return Futures(episode, step, batch.actions[rows, ahead], batch.obs[rows, ahead + 1], live)


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
        start = tumour.draw_start(parameters, n, rng)
        return cls(parameters, start, parameters.noise * rng.standard_normal((n, parameters.horizon, 2)))

    def __len__(self) -> int:
        """Number of patients."""
        return len(self.start)

    def take(self, rows: IntArray) -> Patients:
        """The chosen patients."""
        return Patients(self.parameters, self.start[rows], self.noise[rows])


class PatientsWorld:
    """The simulator with these patients, in order, as a :class:`~cirl_gym.types.World`; it draws nothing."""

    features = tumour.FEATURES
    n_actions = tumour.N_ACTIONS

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
        state = tumour.initial_state(self.patients.parameters, self.patients.start)
        return (0, state), tumour.observe(state).astype(np.float32)

    def step(self, state: tuple[int, TumourState], actions: IntArray, rng: np.random.Generator) -> Step:
        """One step of equation 22 with the patients' own noise of that step."""
        t, before = state
        result = tumour.follow(self.patients.parameters, before, actions, self.patients.noise[:, t])
        return result._replace(state=(t + 1, result.state))


def action_values(patients: Patients, batch: Batch, w: npt.ArrayLike, gamma: float) -> FloatArray:
    """Exact Q ``[N, T, 2]`` of both actions at every decision: the largest noise-free return from there; 0 on padding.

    All plans from each decision are followed, of episodes of 20 steps about two seconds for each.

    Args:
        patients: who the batch is of.
        batch: what :func:`cirl_gym.data.rollout.rollout` made of them in :class:`PatientsWorld`, whoever acted.
        w: weights ``[2]``.
        gamma: discount factor, 0 to 1.

    Raises:
        ValueError: the batch is not of these patients, or weights or discount factor are not possible.
    """
    parameters, states = patients.parameters, _states(patients, batch)
    weights = check_weights(w, tumour.FEATURES)
    if not 0 <= gamma <= 1:
        raise ValueError(f"discount factors must lie between 0 and 1, got {gamma}")
    values = np.zeros((*batch.actions.shape, 2))
    for i, t in zip(*np.nonzero(batch.mask), strict=True):
        both = TumourState._make(np.repeat(part[i : i + 1], 2, axis=0) for part in states[t])
        after = tumour.transition(parameters, both, np.arange(2), np.zeros(2))
        values[i, t] = parameters.feature_map(tumour.observe(after).astype(np.float32)) @ weights
        if t < parameters.horizon - 1:
            for a in np.flatnonzero(~tumour.terminal(parameters, after)):
                state, left = TumourState._make(part[a : a + 1] for part in after), parameters.horizon - t - 1
                values[i, t, a] += gamma * _best(parameters, state, left, weights[:, None], np.array([gamma]))[0][0]
    return values


def flipped_futures(patients: Patients, batch: Batch, steps: int) -> Futures:
    """From every history of a batch, the course under the *other* action at every step from there on.

    Args:
        patients: whose noise is replayed.
        batch: what :func:`cirl_gym.data.rollout.rollout` made of them in :class:`PatientsWorld`, whoever acted.
        steps: at most so many steps ahead, and no further than actions were taken.

    Returns:
        The futures; an outcome is live until the flipped course itself has ended. One step ahead, that is the outcome
        of the action that was not taken.

    Raises:
        ValueError: ``steps`` is below 1, or the batch is not of these patients.
    """
    if steps < 1:
        raise ValueError(f"flipped_futures: steps must be at least 1, got {steps}")
    states = _states(patients, batch)
    episode, step, ahead, inside = followed(batch, steps)
    others = 1 - batch.actions[episode[:, None], ahead]
    state = TumourState._make(np.stack(parts)[step, episode] for parts in zip(*states, strict=True))
    outcomes, ended_before = _replay(patients.parameters, state, others, patients.noise[episode[:, None], ahead])
    return Futures(episode, step, others, outcomes, inside & ~ended_before)


def _states(patients: Patients, batch: Batch) -> list[TumourState]:
    """The states of all histories of a batch, step by step, reached again by what was done.

    Raises:
        ValueError: the batch is not of these patients.
    """
    if len(batch) != len(patients) or not np.array_equal(batch.start, patients.start.astype(np.float32)):
        raise ValueError("the batch does not begin with these patients")
    states = [tumour.initial_state(patients.parameters, patients.start)]
    for t in range(batch.horizon - 1):
        states.append(tumour.transition(patients.parameters, states[-1], batch.actions[:, t], patients.noise[:, t]))
    return states


def constant_futures(patients: Patients, action: int) -> Futures:
    """The course of every patient from the start under one action at every step, live until it has ended."""
    n, steps = len(patients), patients.parameters.horizon
    actions = np.full((n, steps), action, dtype=np.int64)
    state = tumour.initial_state(patients.parameters, patients.start)
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
            ended_before[:, k] = ended_before[:, k - 1] | tumour.terminal(parameters, state)
        state = tumour.transition(parameters, state, actions[:, k], noise[:, k])
        outcomes[:, k] = tumour.observe(state)
    return outcomes, ended_before
