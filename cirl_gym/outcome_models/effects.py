"""What an action changes: effects on the next outcome and on the discounted sum to the end, and plain differences.

A weight is only as good as the effects that it rests on. The effect of an action is what the outcome model expects
after it, minus what it expects after the reference action (the first) in the same history, averaged over histories. For
the sum the action is taken once, and the reference action from then on. Intervals come from laws that other patients
would have given (:mod:`cirl_gym.outcome_models.law_draws`), or from the members of an ensemble; they hold no error of
the model's form, and none of what was not observed (:mod:`cirl_gym.outcome_models.sensitivity`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.data.known import known_in, without
from cirl_gym.data.outcome_model import OutcomeModel, foresee
from cirl_gym.data.outcomes import KnownOutcome, OutcomeFeature, outcome_values
from cirl_gym.outcome_models.ends import drawn_ends
from cirl_gym.outcome_models.known import KnowingModel
from cirl_gym.outcome_models.law_draws import law_draws
from cirl_gym.outcome_models.masked import without_rules
from cirl_gym.outcome_models.model import EnsembleModel, LearnedModel
from cirl_gym.types import Float32Array, FloatArray, IntArray

TAILS = (5.0, 95.0)
"""Percentiles at the ends of a 90 % interval."""
DRAWS, HISTORIES, STARTS = 200, 2000, 200
"""Laws that intervals are read off; histories that a next effect, and futures that a sum, is averaged over."""
PARTS = 4
"""Levels are divided into as many parts with equally many histories."""
SAME = 1e-3
"""Effects that differ over histories by no more than this share of the largest are one number."""


@dataclass(frozen=True)
class LevelEffects:
    """One action's effect on the next value of one outcome, by the current level of what the outcome is read from."""

    edges: FloatArray
    """``[P + 1]`` levels, raw units."""
    mean: FloatArray
    """``[P]``."""
    low: FloatArray
    """``[P]`` ends of 90 % intervals."""
    high: FloatArray


@dataclass(frozen=True)
class ActionEffects:
    """Effects of A - 1 actions against the first on d outcomes, raw units.

    NaN in intervals: the model gives none. NaN everywhere: the action, or the first one, was never taken.
    """

    outcomes: tuple[str, ...]
    """Names of the d outcomes; what is known exactly of the action is not among them."""
    next: FloatArray
    """``[A - 1, d]`` on the next value."""
    next_interval: FloatArray
    """``[2, A - 1, d]``."""
    total: FloatArray
    """``[A - 1, d]`` on the discounted sum to the end: of taking the action once."""
    total_interval: FloatArray
    """``[2, A - 1, d]``."""
    plain: FloatArray
    """``[A - 1, d]`` mean change to the next row where the action was taken, minus that where the first was."""
    decisions: IntArray
    """``[A]`` how often each action was taken."""
    by_level: tuple[tuple[LevelEffects | None, ...], ...]
    """``[A - 1][d]``; None where the effect is the same in all histories."""
    outside: float
    """Share of the steps behind the sums at which a feature is expected where it was never observed."""


def action_effects(
    model: OutcomeModel,
    batch: Batch,
    outcomes: Sequence[OutcomeFeature],
    gamma: float,
    rng: np.random.Generator,
    horizon: int | None = None,
    draws: int = DRAWS,
) -> ActionEffects:
    """Effects of every action but the first on every outcome that is not known exactly of the action.

    Args:
        model: what is expected; a rule about actions is not looked at.
        batch: the episodes that the model was fitted to.
        outcomes: what is weighed.
        gamma: discount factor of the sum.
        rng: histories, and samples of patients.
        horizon: steps at most of an episode; default: the batch's.
        draws: laws that intervals are read off.
    """
    model = without_rules(model)
    known = known_in(batch)
    rows = without(batch, known) if known else batch
    inner: OutcomeModel = model.model if isinstance(model, KnowingModel) else model
    read = [outcome for outcome in outcomes if not isinstance(outcome, KnownOutcome)]
    where = np.argwhere(rows.mask)
    chosen = where[np.sort(rng.permutation(len(where))[:HISTORIES])]
    n, t = chosen.T
    some = np.sort(rng.permutation(len(chosen))[: max(STARTS // rows.n_actions, 1)])
    left = (horizon or rows.horizon) - t[some]

    def asked(one: OutcomeModel, states: Float32Array) -> tuple[FloatArray, FloatArray]:
        """Every history's next effects ``[R, A - 1, d]``, and mean effects on sums ``[A - 1, d]``."""
        following = outcome_values(one.predict(states), read, rows.features)
        sums = discounted_sums(one, states[some], left, read, gamma)
        return following[:, 1:] - following[:, :1], (sums[1:] - sums[:1]).mean(axis=1)

    # Of many episodes only those that were drawn have to be read.
    drawn, place = np.unique(n, return_inverse=True)
    few = rows.take(drawn)
    states = inner.encode(few)[place, t]
    every, total = asked(inner, states)
    decisions = np.bincount(rows.actions[rows.mask], minlength=rows.n_actions)
    # What a model says of an action that nobody took is made up.
    never = (decisions[1:] == 0) | (decisions[0] == 0)
    every[:, never] = total[never] = np.nan
    parts = [_parts(column) for column in outcome_columns(rows.obs[n, t], read, rows.features).T]
    members = inner.members if isinstance(inner, EnsembleModel) else (inner,)
    means, levels, sums = [], [], []
    for member in members:
        # A law that was drawn reads the same states.
        own = member.encode(few)[place, t]
        for one in drawn_models(member, rows, -(-draws // len(members)), rng):
            following, later = asked(one, own)
            means.append(following.mean(axis=0))
            levels.append([share @ following[:, :, i] for i, (_, share) in enumerate(parts)])
            sums.append(later)
    return ActionEffects(
        tuple(outcome.name for outcome in read),
        every.mean(axis=0),
        _interval(np.array(means), every.mean(axis=0)),
        total,
        _interval(np.array(sums), total),
        plain_differences(rows, read),
        decisions,
        _by_level(every, levels, parts),
        share_outside(inner, states[some], left, rows),
    )


def drawn_models(model: OutcomeModel, batch: Batch, n: int, rng: np.random.Generator) -> list[LearnedModel]:
    """The model with laws and ends as other patients would have given them; none where it is not learnt here."""
    if not isinstance(model, LearnedModel):
        return []
    laws = law_draws(model.law, model.spec, batch, n, rng)
    ends = drawn_ends(model.end, batch, n, rng)
    return [LearnedModel(law, model.spec, end, model.correction) for law, end in zip(laws, ends, strict=True)]


def outcome_columns(obs: Float32Array, outcomes: Sequence[OutcomeFeature], names: Sequence[str]) -> FloatArray:
    """``[R, d]`` current level of the first column that each outcome is read from, of observations ``[R, D]``."""
    return obs[:, [names.index(outcome.columns[0]) for outcome in outcomes]].astype(np.float64)


def discounted_sums(
    model: OutcomeModel, states: Float32Array, left: IntArray, outcomes: Sequence[OutcomeFeature], gamma: float
) -> FloatArray:
    """``[A, R, d]`` sums of gamma^k times outcomes to the end, along expected courses, raw units.

    Each action is taken once, and the first from then on. What comes after a step counts as far as the process is
    expected to go on.

    Args:
        model: what is expected.
        states: ``[R, S]`` of histories.
        left: ``[R]`` steps that are left.
        outcomes: the d outcomes.
        gamma: discount factor.
    """
    total = np.zeros((model.n_actions * len(states), len(outcomes)))
    for step, (expected, reach) in enumerate(_courses(model, states, left)):
        total += (gamma**step * reach)[:, None] * outcome_values(expected, outcomes, model.features)
    return total.reshape(model.n_actions, len(states), -1)


def share_outside(model: OutcomeModel, states: Float32Array, left: IntArray, batch: Batch) -> float:
    """Share of the steps that :func:`discounted_sums` adds up, at which a feature is outside what a batch holds of it.

    Where nobody went on with the first action for long, such sums are about courses that nobody saw.
    """
    low, high = (end(batch.obs[batch.seen].astype(np.float64), axis=0) for end in (np.min, np.max))
    room = SAME * (high - low) + 1e-6 * np.abs(high)  # what never changes is expected up to rounding
    outside = every = 0.0
    for expected, reach in _courses(model, states, left):
        outside += float(reach[((expected < low - room) | (expected > high + room)).any(axis=1)].sum())
        every += float(reach.sum())
    return outside / every


def _courses(model: OutcomeModel, states: Float32Array, left: IntArray) -> Iterator[tuple[Float32Array, FloatArray]]:
    """Expected observations ``[A R, D]`` of every step and the chance ``[A R]`` that there is one."""
    rows, a = len(states), model.n_actions
    now, actions = np.tile(states, (a, 1)), np.repeat(np.arange(a), rows)
    until, alive = np.tile(left, a), np.ones(a * rows)
    for step in range(int(left.max())):
        expected, ends = foresee(model, now, actions)
        yield expected, np.where(step < until, alive, 0.0)
        alive = alive * (1.0 - ends)
        now = model.advance(now, actions, expected)
        actions = np.zeros_like(actions)


def plain_differences(batch: Batch, outcomes: Sequence[OutcomeFeature]) -> FloatArray:
    """``[A - 1, d]`` mean change of outcomes to the next row after each action, minus that after the first.

    NaN where one of the two was never taken.
    """
    before, after = (
        outcome_values(part[batch.mask], outcomes, batch.features) for part in (batch.obs[:, :-1], batch.next_obs)
    )
    actions, change = batch.actions[batch.mask], after - before
    never = np.full(change.shape[1], np.nan)
    means = [change[actions == a].mean(axis=0) if (actions == a).any() else never for a in range(batch.n_actions)]
    return np.array([mean - means[0] for mean in means[1:]])


def _interval(drawn: FloatArray, estimate: FloatArray) -> FloatArray:
    """``[2, ..]`` 90 % interval from draws ``[B, ..]``; NaN where there are none."""
    if not len(drawn):
        return np.full((2, *estimate.shape), np.nan)
    low, high = np.percentile(drawn, TAILS, axis=0)
    # NaN of an estimate goes through.
    return np.array([np.minimum(low, estimate), np.maximum(high, estimate)])


def _parts(levels: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Edges ``[P + 1]`` of parts with about as many levels ``[R]`` each, and ``[P, R]`` what makes their means.

    Every edge is a level that there is, so that no part is empty.
    """
    edges = np.unique(np.quantile(levels, np.linspace(0, 1, PARTS + 1), method="higher"))
    part = np.clip(np.searchsorted(edges, levels, side="right") - 1, 0, max(len(edges) - 2, 0))
    inside = (part == np.arange(max(len(edges) - 1, 1))[:, None]).astype(np.float64)
    return edges, inside / inside.sum(axis=1, keepdims=True)


def _by_level(
    every: FloatArray, drawn: Sequence[Sequence[FloatArray]], parts: Sequence[tuple[FloatArray, FloatArray]]
) -> tuple[tuple[LevelEffects | None, ...], ...]:
    """Of effects ``[R, A - 1, d]``, and of every draw the means ``[P, A - 1]`` of each of the d outcomes' parts."""
    found = []
    for a in range(every.shape[1]):
        row: list[LevelEffects | None] = []
        for i, (edges, share) in enumerate(parts):
            own = every[:, a, i]
            if len(edges) < 3 or not np.ptp(own) > SAME * max(np.abs(own).max(), 1e-12):
                row.append(None)
                continue
            mean = share @ own
            low, high = _interval(np.array([one[i][:, a] for one in drawn]), mean)
            row.append(LevelEffects(edges, mean, low, high))
        found.append(tuple(row))
    return tuple(found)
