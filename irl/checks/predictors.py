"""Reference predictors of the experts' next action, which know no preferences: what any other account has to beat.

Each is fitted to training episodes and gives log-probabilities ``[N, T, A]`` along any batch: 0 on padding, minus
infinity for an action that was not allowed, and never a chance of zero for one that was. The same episodes and seed
give the same numbers, in whatever order the episodes stand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.data.habits import action_before
from cirl_gym.data.rules import among_allowed
from cirl_gym.types import BoolArray, FloatArray, IntArray

TREES = 150
"""Rounds of boosting, one tree an action each (one for both of two)."""
LEARNING_RATE = 0.04
LEAVES = 4
"""Of a tree at most: interactions of two or three inputs."""
LEAF = 20
"""Decisions in a leaf, at least."""
RIDGE = 10.0
"""L2 penalty on the leaves' values."""


class Predictor(Protocol):
    """What foresees decisions."""

    def log_probabilities(self, batch: Batch) -> FloatArray:
        """``[N, T, A]`` log-probability of every action after every history; 0 on padding."""
        ...


@dataclass(frozen=True)
class LastActionTable:
    """How often each action followed each other one."""

    action_names: tuple[str, ...]
    chances: FloatArray
    """``[A + 1, A]`` of the next action; the first row is of decisions before which there was none."""

    @classmethod
    def fit(cls, train: Batch, seed: int = 0) -> LastActionTable:
        """Count, and one more of each action in every row; nothing is drawn, whatever the ``seed``."""
        counts = np.ones((train.n_actions + 1, train.n_actions))
        np.add.at(counts, (action_before(train)[train.mask], train.actions[train.mask]), 1.0)
        return cls(train.action_names, counts / counts.sum(axis=1, keepdims=True))

    def log_probabilities(self, batch: Batch) -> FloatArray:
        """``[N, T, A]`` log-probability of every action after every history; 0 on padding.

        Raises:
            ValueError: the actions are others than those it was fitted to.
        """
        _check_actions(self.action_names, batch)
        return _normalised(self.chances[action_before(batch)], batch)


@dataclass(frozen=True)
class Boosting:
    """Gradient-boosted trees (scikit-learn's HistGradientBoostingClassifier) over the last observations and actions.

    They look at the observation, its change since the one before, the last two actions, the number of the step, and the
    batch's contexts.
    """

    features: tuple[str, ...]
    action_names: tuple[str, ...]
    contexts: tuple[tuple[str, tuple[str, ...]], ...]
    model: Any
    """The classifier; None if the training episodes know one action alone."""
    classes: IntArray
    """``[C]`` the actions that it tells apart."""
    rest: FloatArray
    """``[A]`` the actions' frequencies, with one more of each."""
    share: float
    """Weight of ``rest`` beside the trees: that of one more decision of each action among those fitted to."""

    @classmethod
    def fit(cls, train: Batch, seed: int = 0) -> Boosting:
        """Fit the trees; on few decisions their number and size are what holds them back, not patients set apart."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        inputs, categories = boosting_inputs(train)
        targets = train.actions[train.mask]
        counts = np.bincount(targets, minlength=train.n_actions) + 1.0
        classes = np.flatnonzero(counts > 1)
        model = None
        if len(classes) > 1:
            # Sums of floating-point numbers depend on the order: with it fixed, the episodes' order changes nothing.
            order = np.lexsort((targets, *inputs.T))
            model = HistGradientBoostingClassifier(
                max_iter=TREES,
                learning_rate=LEARNING_RATE,
                max_leaf_nodes=LEAVES,
                min_samples_leaf=LEAF,
                l2_regularization=RIDGE,
                categorical_features=categories,
                early_stopping=False,
                random_state=seed,
            )
            with _one_thread():
                model.fit(inputs[order], targets[order])
        share = train.n_actions / counts.sum()
        return cls(
            train.features, train.action_names, train.contexts, model, classes, counts / counts.sum(), float(share)
        )

    def log_probabilities(self, batch: Batch) -> FloatArray:
        """``[N, T, A]`` log-probability of every action after every history; 0 on padding.

        Raises:
            ValueError: features, actions or contexts are others than those it was fitted to.
        """
        _check_actions(self.action_names, batch)
        if (batch.features, batch.contexts) != (self.features, self.contexts):
            raise ValueError("boosting was fitted to other features or contexts than the batch has")
        found = np.zeros((batch.n_steps, batch.n_actions))
        found[:, self.classes] = 1.0
        if self.model is not None:
            with _one_thread():
                found[:, self.classes] = self.model.predict_proba(boosting_inputs(batch)[0])
        chances = np.ones((*batch.actions.shape, batch.n_actions))
        chances[batch.mask] = (1 - self.share) * found + self.share * self.rest
        return _normalised(chances, batch)


REFERENCES: dict[str, Callable[[Batch, int], Predictor]] = {"boosting": Boosting.fit, "table": LastActionTable.fit}
"""How each is fitted to training episodes, with a seed."""


def boosting_inputs(batch: Batch) -> tuple[FloatArray, BoolArray]:
    """``[R, F]`` what the trees look at before each action taken, and ``[F]`` which of it are categories.

    What there is none of (a change, an action before the first) is not a number, which the trees know as missing.
    """
    now = batch.obs[:, :-1].astype(np.float64)
    change = np.full_like(now, np.nan)
    change[:, 1:] = now[:, 1:] - now[:, :-1]
    actions = np.stack([action_before(batch, 1), action_before(batch, 2)], axis=-1) - 1.0
    step = np.broadcast_to(np.arange(batch.horizon, dtype=np.float64)[:, None], (*batch.actions.shape, 1))
    parts = [now, change, step, np.where(actions < 0, np.nan, actions)]
    if batch.context_levels is not None:
        parts.append(batch.context_levels.astype(np.float64))
    inputs = np.concatenate(parts, axis=-1)[batch.mask]
    return inputs, np.arange(inputs.shape[1]) > 2 * len(batch.features)


def _check_actions(names: tuple[str, ...], batch: Batch) -> None:
    if batch.action_names != names:
        raise ValueError(f"it was fitted to the actions {', '.join(names)}, not {', '.join(batch.action_names)}")


def _normalised(chances: FloatArray, batch: Batch) -> FloatArray:
    """Log-probabilities ``[N, T, A]`` of positive chances among the actions allowed; 0 on padding."""
    logs = among_allowed(np.log(chances), batch.allowed)
    logs = logs - np.logaddexp.reduce(logs, axis=2, keepdims=True)
    return np.where(batch.mask[..., None], logs, 0.0)


def _one_thread() -> Any:
    """Trees of a few thousand decisions take longer with threads than without, and sums may then differ."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1, user_api="openmp")
