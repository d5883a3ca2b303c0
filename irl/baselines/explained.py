"""What the inference says with one outcome model: the answer of a finished run itself, or one that is fitted anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from agents.successor.agent import SuccessorAgent
from cirl_gym.data.batch import Batch, evenly_spaced_rows
from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.outcome_models.model import EnsembleModel, LearnedModel
from cirl_gym.types import FloatArray, Policy
from irl.checks.metrics import HeldOutConfig
from irl.max_margin.loop import REASONS, Stop
from irl.pipeline import Fit
from irl.preferences.likelihood import PlanPool
from irl.result.baselines import Row
from irl.result.codec import Interval
from irl.run import Run

_TINY = 1e-300


@dataclass(frozen=True)
class Explanation:
    """Weights, what they say of every decision, and the policy that they ask for."""

    kind: str
    """Of the outcome model that was asked for; "simulator" in the control."""
    model: OutcomeModel
    """The outcome model itself."""
    agent: SuccessorAgent
    """Plans in its world model."""
    weights: FloatArray
    """``[d]`` those reported."""
    intervals: dict[str, Interval]
    """90 % interval of each."""
    draws: FloatArray
    """``[M, d]`` of the posterior."""
    kappas: FloatArray
    """``[M]`` inverse temperatures of the draws."""
    rounds: int
    """Of the max-margin loop."""
    stop: str
    """Why it ended: a name of :data:`irl.max_margin.loop.REASONS`."""

    @classmethod
    def of_fit(cls, found: Fit, kind: str) -> Explanation:
        """What the nine steps found just now."""
        posterior = found.posterior
        return cls(
            kind,
            found.model.model,
            found.agent,
            found.weights,
            dict(zip(found.feature_map.features, posterior.intervals, strict=True)),
            posterior.draws,
            posterior.kappa_draws,
            len(found.loop.rounds),
            found.loop.stop,
        )

    @classmethod
    def of_run(cls, run: Run) -> Explanation:
        """What a finished run wrote into its folder.

        Raises:
            ValueError: the folder is not a whole run's.
        """
        result, (draws, kappas) = run.result, run.draws
        return cls(
            run.settings["fit"]["model"],
            run.model,
            run.agent,
            np.array(result.weights),
            dict(result.intervals),
            draws,
            kappas,
            len(result.rounds),
            result.stop,
        )

    @property
    def policy(self) -> Policy:
        """The best policy for the reported weights."""
        return self.agent.policy(self.weights)

    def log_probabilities(self, batch: Batch) -> FloatArray:
        """``[N, T, A]`` log-probability of every action after every history, chances averaged over the posterior.

        Minus infinity where an action was not allowed; what stands on padding means nothing.
        """
        config = HeldOutConfig()
        weights = [self.weights, *self.draws[evenly_spaced_rows(len(self.draws), config.plans)]]
        pool = PlanPool(batch, np.stack([self.agent.psi(batch, w, config.width) for w in weights]))
        rows = evenly_spaced_rows(len(self.draws), config.draws)
        chances = np.zeros((*batch.actions.shape, batch.n_actions))
        for w, kappa in zip(self.draws[rows], self.kappas[rows], strict=True):
            value = kappa * pool.q(w)
            share = np.exp(value - value.max(axis=2, keepdims=True))
            chances += share / share.sum(axis=2, keepdims=True)
        logs = np.log(np.maximum(chances / len(rows), _TINY))
        return logs if batch.allowed is None else np.where(batch.allowed, logs, -np.inf)

    def row(self, method: str) -> Row:
        """A method's row before anything is measured. Where a network was dropped, it is the linear law's."""
        told = [loop_note(self.rounds, self.stop)]
        dropped, networks = dropped_networks(self.model, self.kind)
        if dropped and dropped == networks:
            told.append(f"its network ({self.kind}) did not improve on the linear law (ar), which predicts alone")
        elif dropped:
            told.append(f"{dropped} of {networks} networks did not improve on the linear law")
        return Row(
            method=method,
            model="ar" if dropped and dropped == networks else self.kind,
            memory=self.kind != "mb_x",
            weights=tuple(self.weights.tolist()),
            intervals=self.intervals,
            note="; ".join(told),
        )


def dropped_networks(model: OutcomeModel, kind: str) -> tuple[int, int]:
    """How many of the networks of an outcome model were dropped for the linear law beneath, and how many there were."""
    if kind in ("ar", "simulator"):
        return 0, 0
    members: tuple[Any, ...] = model.members if isinstance(model, EnsembleModel) else (model,)
    return sum(isinstance(one, LearnedModel) and one.correction is None for one in members), len(members)


def loop_note(rounds: int, stop: str) -> str:
    """How a max-margin loop ended."""
    return f"loop: {rounds} round{'' if rounds == 1 else 's'}, {REASONS[cast(Stop, stop)]}"
