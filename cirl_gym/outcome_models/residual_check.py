"""Whether anything foretells what the linear law leaves over: a held-out test, before any network is trained.

Trees are fitted to the law's errors along the training episodes and judged along the validation episodes, by which a
network would be judged too. They see more than the law does: the last observations and actions, the first observation,
the step, and running means of the whole past, near and far, which stand for what a recurrent network could remember.
Where they do not make the errors smaller, there is nothing for a network to learn, and minutes are saved.

A network is kept where it wins by more than three standard errors on the same episodes
(:attr:`~cirl_gym.outcome_models.correction.CorrectionFit.helps`). Here one is enough for all features together, and two
for any alone: a training in vain costs only time.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.outcome_models.inputs import Window, one_hot, taken
from cirl_gym.outcome_models.model import LearnedModel
from cirl_gym.types import BoolArray, Float32Array, FloatArray

MOST_DECISIONS, MOST_NUMBERS = 60_000, 300_000
"""Training decisions that the trees are fitted to (of evenly spaced episodes), at most; the same times features."""
ORDERS, LAGS = (2, 10), 24
"""Fewest and most last observations that the trees see one by one: as many as make so many numbers."""
RATE_OF_MEAN = 0.25
"""Share of the newest value in the near one of both running means."""
TREES, RATE, LEAVES, LEAF, RIDGE, BINS = 40, 0.1, 8, 40, 10.0, 63
"""Number of trees, their learning rate, leaves of each, decisions in a leaf at least, ridge on leaves, bins."""
STEP = 0.5
"""Share of what the trees say that is judged: by half of it their noise adds a quarter of its own error, while three
quarters of what they have learnt are gained."""


@dataclass(frozen=True)
class ResidualCheck:
    """By how much trees lower the law's error on the validation episodes."""

    gain: tuple[float, ...]
    """``[d]`` the law's mean squared error minus that with a step towards the trees, in units of its training error."""
    standard_error: tuple[float, ...]
    """``[d]`` of each gain, paired by episode."""
    pooled: tuple[float, float]
    """Mean gain over all features, and its standard error."""
    law_loss: float
    """The law's mean squared error over all features, in the same units."""

    @property
    def predictable(self) -> bool:
        """Whether the pooled gain is above one standard error, or that of one feature above two."""
        pooled, error = self.pooled
        each = zip(self.gain, self.standard_error, strict=True)
        return pooled > error or any(gain > 2 * error for gain, error in each)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: all of it."""
        return {"predictable": self.predictable, **asdict(self)}

    def untrained(self) -> dict[str, Any]:
        """For JSON, in the place of what a training brought: none was tried, and the law's loss stays."""
        losses = {"validation_loss": self.law_loss, "validation_loss_of_law": self.law_loss, "standard_error": 0.0}
        return {"kept": False, "tried": False, "epochs": 0, "best_epoch": 0, **losses}


def check_residuals(law: LearnedModel, train: Batch, validation: Batch) -> ResidualCheck:
    """Fit trees to the errors of a law on one batch and judge them on the other. No random number is drawn.

    Args:
        law: without correction; its ``noise_scale`` is its training error, 0 where it makes none.
        train: episodes that the law was fitted to.
        validation: other episodes.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    most = min(MOST_DECISIONS, MOST_NUMBERS // len(train.features))
    part = train.thinned(most)
    inputs, outcomes = history_inputs(part), _leftovers(law, part)
    held_out, left = history_inputs(validation), _leftovers(law, validation)
    trees = HistGradientBoostingRegressor(
        max_iter=TREES,
        learning_rate=RATE,
        max_leaf_nodes=LEAVES,
        min_samples_leaf=LEAF,
        l2_regularization=RIDGE,
        max_bins=BINS,
        early_stopping=False,
        random_state=0,
    )
    gains = np.zeros_like(left)
    # Threads would add numbers in another order.
    with threadpool_limits(limits=1, user_api="openmp"):
        for j in np.flatnonzero(law.noise_scale):
            said = STEP * trees.fit(inputs, outcomes[:, j]).predict(held_out)
            gains[:, j] = left[:, j] ** 2 - (left[:, j] - said) ** 2
    means, errors = _by_episode(np.column_stack([gains, gains.mean(axis=1)]), validation)
    return ResidualCheck(tuple(means[:-1]), tuple(errors[:-1]), (means[-1], errors[-1]), float((left**2).mean()))


def history_inputs(batch: Batch) -> Float32Array:
    """``[R, F]`` what may foretell the outcome of each of the R actions taken, the action itself last."""
    d = len(batch.features)
    window = Window(int(np.clip(LAGS // d, *ORDERS)), d, batch.n_actions).encode(batch)[:, :-1]
    hot = one_hot(batch.actions, batch.n_actions)
    # Of one action the others tell.
    before = np.pad(hot, ((0, 0), (1, 0), (0, 0)))[:, :-1, 1:]
    past = np.concatenate([batch.obs[:, :-1], before], axis=2)
    first, steps = np.broadcast_to(batch.obs[:, :1], batch.next_obs.shape), np.arange(batch.horizon)
    step = np.broadcast_to(steps[:, None], (*batch.actions.shape, 1))
    far, near = past.cumsum(axis=1, dtype=np.float64) / (1.0 + step), _running_mean(past)
    parts = [window, first, step, far, near, hot[..., 1:]]
    return np.concatenate([part[batch.mask] for part in parts], axis=1, dtype=np.float32)


def _running_mean(values: Float32Array) -> Float32Array:
    """``[N, T, F]`` exponentially weighted means of values up to every step; they start at the first."""
    means = values.copy()
    for t in range(1, values.shape[1]):
        means[:, t] += (1 - RATE_OF_MEAN) * (means[:, t - 1] - values[:, t])
    return means


def _leftovers(law: LearnedModel, batch: Batch) -> FloatArray:
    """``[R, d]`` errors of the law along a batch, in units of its training error; 0 where it makes none."""
    predicted = taken(law.predict(law.encode(batch)[:, :-1]), batch)[batch.mask]
    erring: BoolArray = law.noise_scale > 0
    left: FloatArray = (batch.next_obs[batch.mask].astype(np.float64) - predicted) * erring
    return left / np.where(erring, law.noise_scale, 1.0)


def _by_episode(values: FloatArray, batch: Batch) -> tuple[list[float], list[float]]:
    """Means ``[F]`` of values ``[R, F]``, and their standard errors, where those of one episode are not independent."""
    episode = np.nonzero(batch.mask)[0]
    means = values.mean(axis=0)
    sums = np.stack([np.bincount(episode, column, len(batch)) for column in (values - means).T])
    return means.tolist(), (np.sqrt((sums**2).sum(axis=1)) / len(values)).tolist()
