"""A ridge logistic regression of the action on the last observation and action: the base of behaviour cloning."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from cirl_gym.action_rules import among_allowed
from cirl_gym.batch import Batch
from cirl_gym.outcome_models.inputs import Scaler, one_hot, sequence_inputs
from cirl_gym.types import BoolArray, FloatArray, IntArray

PREVIOUS_PRIOR = 2.0
"""Standard deviation of the normal prior on the weights of the previous action."""


@dataclass(frozen=True)
class LogisticFit:
    """Logits = inputs . weights + bias, for inputs [scaled x_t, one-hot a_{t-1}]."""

    weights: FloatArray
    """``[d + A, A]``."""
    bias: FloatArray
    """``[A]``."""
    prior: float
    """Standard deviation of the prior on the covariates' weights; 0: covariates are left out."""


def fit_logistic(train: Batch, validation: Batch, scaler: Scaler, priors: tuple[float, ...]) -> LogisticFit:
    """Fit for every prior on the covariates' weights and choose by the validation log-loss.

    The smallest prior within one standard error (paired by episode) of the best is taken: with few patients,
    covariates have to earn their place beside the habit of going on with the last action. Where the batches say which
    actions were allowed, each decision is one among those.
    """
    d, n_actions = len(train.features), train.n_actions
    inputs, targets = sequence_inputs(scaler, train)[:, :-1][train.mask].astype(np.float64), train.actions[train.mask]
    held_out = sequence_inputs(scaler, validation)[:, :-1].astype(np.float64)
    allowed = None if train.allowed is None else train.allowed[train.mask]
    fits, losses = [], []
    for prior in sorted(priors):
        spread = np.concatenate([np.full(d, prior), np.full(n_actions, PREVIOUS_PRIOR)])
        used = spread > 0
        found, bias = _maximise(inputs[:, used], targets, n_actions, spread[used], allowed)
        weights = np.zeros((d + n_actions, n_actions))
        weights[used] = found
        fits.append(LogisticFit(weights, bias, prior))
        losses.append(episode_losses(held_out @ weights + bias, validation))
    means = [loss.mean() for loss in losses]
    best = losses[int(np.argmin(means))]
    close = [(loss - best).mean() <= (loss - best).std() / np.sqrt(len(best)) for loss in losses]
    return fits[close.index(True)]


def episode_losses(logits: FloatArray, batch: Batch) -> FloatArray:
    """``[N]`` log-loss of the actions taken under logits ``[N, T, A]``; their mean is the mean over all actions.

    An action that was not allowed has no share in it, whatever its logit.
    """
    among = among_allowed(logits, batch.allowed)
    logs = among - logsumexp(among, axis=2, keepdims=True)
    taken = np.take_along_axis(logs, batch.actions[..., None], axis=2)[..., 0]
    losses: FloatArray = -np.where(batch.mask, taken, 0.0).sum(axis=1) * (len(batch) / batch.n_steps)
    return losses


def _maximise(
    inputs: FloatArray, targets: IntArray, n_actions: int, spread: FloatArray, allowed: BoolArray | None
) -> tuple[FloatArray, FloatArray]:
    """Weights ``[F, A]`` and bias ``[A]`` of largest posterior density.

    Args:
        inputs: ``[R, F]``.
        targets: ``[R]`` actions taken.
        n_actions: A.
        spread: ``[F]`` the priors' deviations.
        allowed: ``[R, A]``; None: every action.
    """
    n, width = inputs.shape
    hot = one_hot(targets, n_actions).astype(np.float64)
    precision = 1.0 / (spread[:, None] ** 2 * n)

    def objective(flat: FloatArray) -> tuple[float, FloatArray]:
        weights, bias = flat[: width * n_actions].reshape(width, n_actions), flat[width * n_actions :]
        logits = among_allowed(inputs @ weights + bias, allowed)
        logs = logits - logsumexp(logits, axis=1, keepdims=True)
        surprise = np.exp(logs) - hot
        fit = -np.where(hot > 0, logs, 0.0).sum() / n
        loss = fit + 0.5 * (precision * weights**2).sum() + 0.5e-4 * (bias**2).sum() / n
        slope = inputs.T @ surprise / n + precision * weights
        return float(loss), np.concatenate([slope.ravel(), surprise.mean(axis=0) + 1e-4 * bias / n])

    start = np.zeros((width + 1) * n_actions)
    solution = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 500}).x
    return solution[: width * n_actions].reshape(width, n_actions), solution[width * n_actions :]
