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

LEAF = 20
"""Decisions in a leaf of a tree, at least."""


@dataclass(frozen=True)
class BoostingConfig:
    """How far gradient boosting looks back, and how much it may learn.

    Raises:
        ValueError: it looks back at fewer than two actions.
    """

    lags: int = 2
    """So many last actions, and observations; of shorter episodes no more than there are."""
    trees: int = 150
    """Rounds of boosting, one tree an action each (one for both of two)."""
    learning_rate: float = 0.04
    leaves: int = 4
    """Of a tree at most: interactions of two or three inputs."""
    ridge: float = 10.0
    """L2 penalty on the leaves' values."""

    def __post_init__(self) -> None:
        if self.lags < 2:
            raise ValueError(f"BoostingConfig.lags must be at least 2, got {self.lags}")


HISTORY = BoostingConfig(lags=8, learning_rate=0.1, leaves=15, ridge=0.0)
"""For thousands of decisions, whose reasons may lie some steps back."""


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

    They look at the observation, its changes since those before, the last actions, the number of the step, and the
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
    lags: int = 2
    """How many last observations and actions are looked at."""

    @classmethod
    def fit(cls, train: Batch, seed: int = 0, config: BoostingConfig | None = None) -> Boosting:
        """Fit the trees; on few decisions their number and size are what holds them back, not patients set apart."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        config = config or BoostingConfig()
        lags = max(min(config.lags, int(train.lengths.max()) - 1), 2)
        inputs, categories = boosting_inputs(train, lags)
        targets = train.actions[train.mask]
        counts = np.bincount(targets, minlength=train.n_actions) + 1.0
        classes = np.flatnonzero(counts > 1)
        model = None
        if len(classes) > 1:
            # Sums of floating-point numbers depend on the order: with it fixed, the episodes' order changes nothing.
            order = np.lexsort((targets, *inputs.T))
            model = HistGradientBoostingClassifier(
                max_iter=config.trees,
                learning_rate=config.learning_rate,
                max_leaf_nodes=config.leaves,
                min_samples_leaf=LEAF,
                l2_regularization=config.ridge,
                categorical_features=categories,
                early_stopping=False,
                random_state=seed,
            )
            with _one_thread():
                model.fit(inputs[order], targets[order])
        share = train.n_actions / counts.sum()
        of, rest = (train.features, train.action_names, train.contexts), counts / counts.sum()
        return cls(*of, model, classes, rest, float(share), lags)

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
                found[:, self.classes] = self.model.predict_proba(boosting_inputs(batch, self.lags)[0])
        chances = np.ones((*batch.actions.shape, batch.n_actions))
        chances[batch.mask] = (1 - self.share) * found + self.share * self.rest
        return _normalised(chances, batch)


REFERENCES: dict[str, Callable[[Batch, int], Predictor]] = {"boosting": Boosting.fit, "table": LastActionTable.fit}
"""How each is fitted to training episodes, with a seed."""


def boosting_inputs(batch: Batch, lags: int = 2) -> tuple[FloatArray, BoolArray]:
    """``[R, F]`` what the trees look at before each action taken, and ``[F]`` which of it are categories.

    That is the observation, its changes since the ``lags - 1`` before, the number of the step, the ``lags`` last
    actions and the batch's contexts.

    What there is none of (a change, an action before the first) is not a number, which the trees know as missing.
    """
    now = batch.obs[:, :-1].astype(np.float64)
    changes = [np.full_like(now, np.nan) for _ in range(lags - 1)]
    for back, change in enumerate(changes, 1):
        change[:, back:] = now[:, back:] - now[:, :-back]
    actions = np.stack([action_before(batch, back) for back in range(1, lags + 1)], axis=-1) - 1.0
    step = np.broadcast_to(np.arange(batch.horizon, dtype=np.float64)[:, None], (*batch.actions.shape, 1))
    parts = [now, *changes, step, np.where(actions < 0, np.nan, actions)]
    if batch.context_levels is not None:
        parts.append(batch.context_levels.astype(np.float64))
    inputs = np.concatenate(parts, axis=-1)[batch.mask]
    return inputs, np.arange(inputs.shape[1]) > lags * len(batch.features)


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
