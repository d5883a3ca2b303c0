"""Why a decision was made: what each outcome, and habit, adds to the log-odds of every action.

By the choice model P(a | h) is proportional to exp(b[c(h), a] + theta . psi(h, a)), theta = kappa w. The log-odds of an
action against another are therefore a sum with one term for each outcome, theta_j (psi_j(h, a) - psi_j(h, a')), and one
for habit, b[c(h), a] - b[c(h), a']. psi_j is the discounted sum of outcome j along the plan that the weights make best
after the action: the course that is predicted.

All of it is at the posterior mean of theta and of the logits, by which the predicted experts act too. The 90 %
intervals of contributions are those of the posterior's draws, each with the plan that it makes best among those found
for the mean and for some draws; those of courses are the scatter of what is observed around what is predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import log_softmax

from agents.successor.agent import SuccessorAgent
from cirl_gym.data.batch import Batch, evenly_spaced_rows
from cirl_gym.data.features import normalised
from cirl_gym.data.outcome_model import OutcomeModel, foresee
from cirl_gym.data.outcomes import read_outcome
from cirl_gym.data.rules import among_allowed
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray
from irl.preferences.posterior import PosteriorResult

AHEAD = 5
"""Steps of a predicted course, at most."""
_WIDTH, _PLANS, _DRAWS = 32, 4, 200
"""Of the search; posterior draws whose plans join those of the mean; draws behind intervals of contributions."""
_COURSES = 100
"""Courses with noise, in pairs of opposite noise, behind intervals of courses."""
_TAILS = (0.05, 0.95)
_EXACT = 1e-6
"""How far contributions may be from adding up to the log-odds."""


@dataclass(frozen=True)
class Why:
    """One decision, with A actions, d outcomes that are weighed and F features that are shown.

    Raises:
        ValueError: shapes do not agree, chances do not add up to 1, the reference is forbidden, or the contributions
            and habit do not add up to the log-odds.
    """

    episode: str
    """Its id."""
    patient: str
    """Whose episode it is."""
    step: int
    """Counted from 0."""
    actions: tuple[str, ...]
    outcomes: tuple[str, ...]
    features: tuple[str, ...]
    """What the outcomes are computed of."""
    allowed: BoolArray
    """``[A]`` False where a rule forbade the action."""
    reference: int
    """The action that all are compared with: the likeliest of those that were not taken; of a single one, itself."""
    log_chances: FloatArray
    """``[A]`` log-probabilities by the choice model; minus infinity where an action is forbidden."""
    contributions: FloatArray
    """``[A, d]`` what each outcome adds to the log-odds against the reference."""
    contribution_ends: FloatArray
    """``[2, A, d]`` lower and upper end of their 90 % intervals."""
    habit: FloatArray
    """``[A]`` what habit adds."""
    habit_ends: FloatArray
    """``[2, A]`` ends of its 90 % intervals."""
    courses: FloatArray
    """``[A, K, F]`` predicted observations at the next K steps, raw units: after the action, along the best plan."""
    course_ends: FloatArray
    """``[2, A, K, F]`` ends of the 90 % intervals of what is observed, if the plan is kept."""
    lasting: IntArray
    """``[A]`` how many of the K steps the model holds for more likely than not to be reached, 1 at least."""
    now: FloatArray
    """``[F]`` last observation before the decision, raw units."""
    done: IntArray
    """``[K']`` actions that were taken from this decision on, K' <= K."""
    followed: FloatArray
    """``[K', F]`` what was observed after each."""
    notebook: Callable[[], str] | None = field(default=None, repr=False, compare=False)
    """How a notebook shows it; None: by its numbers."""

    def __post_init__(self) -> None:
        n, d, f, k = len(self.actions), len(self.outcomes), len(self.features), self.courses.shape[1]
        shapes = {
            "log_chances": (n,),
            "contributions": (n, d),
            "contribution_ends": (2, n, d),
            "habit": (n,),
            "habit_ends": (2, n),
            "courses": (n, k, f),
            "course_ends": (2, n, k, f),
            "now": (f,),
            "followed": (len(self.done), f),
        }
        wrong = [name for name, shape in shapes.items() if getattr(self, name).shape != shape]
        if wrong or not 1 <= len(self.done) <= k:
            raise ValueError(f"Why: shapes do not agree: {', '.join(wrong) or 'done'}")
        if not self.allowed[self.reference] or abs(np.exp(self.log_chances).sum() - 1) > _EXACT:
            raise ValueError("Why: chances must add up to 1, and the reference must be allowed")
        told = self.log_chances - self.log_chances[self.reference]
        if np.abs(told - self.log_odds)[self.allowed].max() > _EXACT:
            raise ValueError("Why: contributions and habit do not add up to the log-odds")

    def _repr_html_(self) -> str | None:
        return None if self.notebook is None else self.notebook()

    @property
    def taken(self) -> int:
        """The action that was taken."""
        return int(self.done[0])

    @property
    def chances(self) -> FloatArray:
        """``[A]`` probabilities by the choice model."""
        return np.asarray(np.exp(self.log_chances))

    @property
    def by_outcomes(self) -> FloatArray:
        """``[A]`` what all outcomes together add to the log-odds: the difference of kappa Q."""
        return np.asarray(self.contributions.sum(axis=1))

    @property
    def log_odds(self) -> FloatArray:
        """``[A]`` log-odds against the reference: what outcomes and habit add, whether the action is allowed or not."""
        return self.by_outcomes + self.habit

    @property
    def likeliest(self) -> int:
        """The action that experts most likely choose."""
        return int(self.log_chances.argmax())

    @property
    def best(self) -> int:
        """The action that serves the outcomes best, of those allowed: habit is left out."""
        return int(np.asarray(among_allowed(self.by_outcomes, self.allowed)).argmax())


def find_decision(batch: Batch, patient: str, step: int) -> tuple[int, int]:
    """Row and step of a decision, by the id of its episode, or of a patient who has a single one.

    Raises:
        ValueError: there is no such patient or step, or the patient has several episodes; the message names what there
            is.
    """
    rows = [i for i, name in enumerate(batch.ids) if name == patient]
    rows = rows or [i for i, name in enumerate(batch.groups) if name == patient]
    if not rows:
        raise ValueError(f"patient {patient!r} is not among those held out: {_some(batch.ids)}")
    if len(rows) > 1:
        raise ValueError(f"patient {patient!r} has several episodes; choose one: {_some([batch.ids[i] for i in rows])}")
    length = int(batch.lengths[rows[0]])
    if not 0 <= step < length:
        steps = "one step, 0" if length == 1 else f"steps 0 to {length - 1}"
        raise ValueError(f"step {step}: {patient!r} has {steps}")
    return rows[0], step


def _some(names: Sequence[str], most: int = 20) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def why(
    agent: SuccessorAgent, posterior: PosteriorResult, batch: Batch, decisions: Sequence[tuple[int, int]]
) -> tuple[Why, ...]:
    """Why each of some decisions was made. The same inputs give the same answer, whatever else is asked for.

    Args:
        agent: plans in the world of the outcome model.
        posterior: of theta and of habits.
        batch: episodes that the decisions are of.
        decisions: rows of the batch and steps.

    Raises:
        ValueError: the batch is longer than the agent was trained for, or lacks the contexts of habits.
    """
    agent.check_horizon(batch.horizon)
    found: dict[tuple[int, int], Why] = {}
    for t in sorted({step for _, step in decisions}):
        rows = np.array(sorted({row for row, step in decisions if step == t}))
        # Work at once is bounded, whatever is asked for.
        for part in np.array_split(rows, -(-len(rows) // 64)):
            of_part = _at_step(agent, posterior, batch.take(part), t)
            found |= {(int(row), t): one for row, one in zip(part, of_part, strict=True)}
    return tuple(found[int(row), int(step)] for row, step in decisions)


def _at_step(agent: SuccessorAgent, posterior: PosteriorResult, batch: Batch, t: int) -> list[Why]:
    """Of the decisions at one step of all episodes, which last so long."""
    phi, states = agent.feature_map, agent.model.encode(batch)[:, t]
    psi, plans = _plans(agent, posterior, states, t)
    which, terms = _terms(posterior, batch, t, psi)
    # What is known of the action alone is no observation.
    seen = phi.read or tuple(name for name in phi.of if read_outcome(name, (name,)).columns)
    columns = [phi.of.index(name) for name in seen]
    steps = plans[which, np.arange(len(batch))[:, None], np.arange(batch.n_actions)][..., :AHEAD]
    courses, course_ends, lasting = _courses(agent.model, states, steps, columns)
    ends = np.minimum(t + steps.shape[-1], batch.lengths)
    return [
        Why(
            episode=batch.ids[i],
            patient=batch.groups[i],
            step=t,
            actions=batch.action_names,
            outcomes=phi.features,
            features=seen,
            courses=courses[i],
            course_ends=course_ends[:, i],
            lasting=lasting[i],
            now=batch.obs[i, t, columns].astype(np.float64),
            done=batch.actions[i, t:end],
            followed=batch.obs[i, t + 1 : end + 1][:, columns].astype(np.float64),
            **{name: values[i] for name, values in terms.items()},
        )
        for i, end in enumerate(ends)
    ]


def _terms(posterior: PosteriorResult, batch: Batch, t: int, psi: FloatArray) -> tuple[IntArray, dict[str, Any]]:
    """Which plans ``[n, A]`` of psi ``[J, n, A, d]`` the posterior mean makes best; and by their names the fields of
    :class:`Why` that add up, each ``[n, ..]``.
    """
    n, n_actions = len(batch), batch.n_actions
    allowed = np.ones((n, n_actions), dtype=np.bool_) if batch.allowed is None else batch.allowed[:, t]
    levels = posterior.contexts.along(batch)[:, t]
    logits, theta = posterior.logits.mean(axis=0), posterior.theta_mean
    best, which = _best(psi, theta)
    log_chances = log_softmax(among_allowed(best @ theta + logits[levels].sum(axis=1), allowed), axis=1)
    others = allowed.copy()
    others[np.arange(n), batch.actions[:, t]] = allowed.sum(axis=1) == 1
    reference = np.where(others, log_chances, -np.inf).argmax(axis=1)

    def differences(theta: FloatArray, logits: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Contributions ``[n, A, d]`` and habit ``[n, A]``."""
        own, habit = theta * _best(psi, theta)[0], logits[levels].sum(axis=1)
        against = reference[:, None]
        return own - np.take_along_axis(own, against[..., None], 1), habit - np.take_along_axis(habit, against, 1)

    contributions, habit = differences(theta, logits)
    drawn = zip(*(differences(*draw) for draw in zip(*posterior.thinned(_DRAWS), strict=True)), strict=True)
    ends = [np.moveaxis(np.quantile(np.stack(values), _TAILS, axis=0), 0, 1) for values in drawn]
    return which, {
        "allowed": allowed,
        "reference": reference.tolist(),
        "log_chances": log_chances,
        "contributions": contributions,
        "contribution_ends": ends[0],
        "habit": habit,
        "habit_ends": ends[1],
    }


def _plans(
    agent: SuccessorAgent, posterior: PosteriorResult, states: Float32Array, t: int
) -> tuple[FloatArray, IntArray]:
    """Best plans for the posterior mean and for some draws: psi ``[J, n, A, d]`` and actions ``[J, n, A, T - t]``."""
    weights = np.stack([posterior.mean, *(normalised(theta) for theta in posterior.thinned(_PLANS)[0])])
    n = len(states)
    found = agent.plans(t, np.tile(states, (len(weights), 1)), np.repeat(weights, n, axis=0), _WIDTH)
    shape = (len(weights), n, agent.model.n_actions, -1)
    return found.psi.reshape(shape), found.actions.reshape(shape)


def _best(psi: FloatArray, theta: FloatArray) -> tuple[FloatArray, IntArray]:
    """Of plans ``[J, n, A, d]``, psi ``[n, A, d]`` of those of largest value, and which they are ``[n, A]``."""
    which: IntArray = (psi @ theta).argmax(axis=0)
    return np.take_along_axis(psi, which[None, ..., None], axis=0)[0], which


def _courses(
    model: OutcomeModel, states: Float32Array, plans: IntArray, columns: Sequence[int]
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Courses along plans ``[n, A, K]``: expected ``[n, A, K, F]``, ends of intervals ``[2, n, A, K, F]``, and how many
    steps ``[n, A]`` are more likely than not to be reached.
    """
    n, n_actions, ahead = plans.shape
    half = np.random.default_rng(0).standard_normal((ahead, _COURSES // 2, len(model.features)))
    # The first course is the expected one; every history and action meets the same noise.
    normals = np.concatenate([np.zeros((ahead, 1, half.shape[2])), half, -half], axis=1)
    several = normals.shape[1]
    now = np.repeat(states, n_actions * several, axis=0)
    reach, lasting, found = np.ones((n, n_actions)), np.zeros((n, n_actions), dtype=np.int64), []
    for k in range(ahead):
        actions = np.repeat(plans[..., k].ravel(), several)
        outcome, end = foresee(model, now, actions)
        shape = (n * n_actions, several, outcome.shape[-1])
        noisy = np.clip(outcome.reshape(shape) + model.noise(normals[k]), *model.bounds)
        noisy[:, 0] = outcome.reshape(shape)[:, 0]
        # A step is reached where the process has not ended before it.
        lasting += reach > 0.5
        reach = reach * (1.0 - end.reshape(n, n_actions, several)[..., 0])
        outcome = noisy.reshape(outcome.shape).astype(np.float32)
        found.append(noisy.reshape(n, n_actions, several, -1)[..., columns])
        if k < ahead - 1:
            now = model.advance(now, actions, outcome)
    every = np.stack(found, axis=3)  # [n, A, several, K, F]
    ends = np.quantile(every[:, :, 1:], _TAILS, axis=2)
    return every[:, :, 0].astype(np.float64), ends, lasting


def shown_decisions(batch: Batch, most: int, patients: int = 50) -> list[tuple[int, int]]:
    """Decisions of so many episodes, or of all if there are fewer, evenly spread over the batch.

    Where there are more than ``most`` of them, of each episode as many as there is room for, evenly spread.
    """
    rows = evenly_spaced_rows(len(batch), patients)
    lengths = batch.lengths[rows]
    each = int(lengths.max())
    while each > 1 and int(np.minimum(lengths, each).sum()) > most:
        each -= 1
    return [
        (int(row), int(step))
        for row, length in zip(rows, lengths, strict=True)
        for step in evenly_spaced_rows(int(length), each)
    ]
