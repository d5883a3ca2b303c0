"""What the inference says with one outcome model: the answer of a finished run itself, or one that is fitted anew."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from agents.successor.agent import SuccessorAgent
from cirl_gym.data.batch import Batch
from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.outcome_models.model import EnsembleModel, LearnedModel
from cirl_gym.types import FloatArray, Policy
from irl.checks.metrics import HeldOutConfig, held_out_log_chances
from irl.max_margin.loop import REASONS, Stop
from irl.pipeline import Fit
from irl.result.baselines import Row
from irl.result.codec import Interval
from irl.run import Run


@dataclass(frozen=True)
class RecoveredPreferences:
    """Weights, what they say of every decision, and the policy that they ask for."""

    kind: str
    """Of the outcome model that was asked for; "simulator" in the control."""
    model: OutcomeModel
    """The outcome model itself."""
    agent: SuccessorAgent
    """Plans in its world model."""
    acting: FloatArray
    """``[d]`` the weights that the policy acts on, L1 norm 1."""
    weights: FloatArray
    """``[d]`` those reported: medians of the posterior."""
    intervals: dict[str, Interval]
    """90 % interval of each."""
    rounds: int
    """Of the max-margin loop."""
    stop: str
    """Why it ended: a name of :data:`irl.max_margin.loop.REASONS`."""
    uninterpreted: tuple[str, ...] = ()
    """Outcomes whose weights the run does not interpret."""

    @classmethod
    def of_fit(cls, found: Fit, kind: str) -> RecoveredPreferences:
        """What the nine steps found just now."""
        posterior, loop = found.posterior, found.loop
        intervals = dict(zip(found.feature_map.features, posterior.intervals, strict=True))
        acting, shown = found.weights, posterior.median
        return cls(kind, found.model.model, found.agent, acting, shown, intervals, len(loop.rounds), loop.stop)

    @classmethod
    def of_run(cls, run: Run) -> RecoveredPreferences:
        """What a finished run wrote into its folder.

        Raises:
            ValueError: the folder is not a whole run's.
        """
        found, kind = run.result, run.settings["fit"]["model"]
        acting, shown = np.array(found.estimates["posterior"]), np.array(found.weights)
        loop, unread = (len(found.rounds), found.stop), tuple(found.uninterpreted)
        return cls(kind, run.model, run.agent, acting, shown, dict(found.intervals), *loop, unread)

    @property
    def policy(self) -> Policy:
        """What the preferences alone would do."""
        return self.agent.policy(self.acting)

    def row(self, method: str) -> Row:
        """A method's row before anything is measured. Where a network was dropped, it is the linear law's."""
        told = [loop_note(self.rounds, self.stop)]
        dropped, networks = dropped_networks(self.model, self.kind)
        if dropped and dropped == networks:
            told.append(f"no network ({self.kind}) improved on the linear law (ar), which predicts alone")
        elif dropped:
            told.append(f"{dropped} of {networks} networks did not improve on the linear law")
        if self.uninterpreted:
            told.append(f"not interpreted: the weight of {', '.join(self.uninterpreted)} (the run says why)")
        return Row(
            method=method,
            model="ar" if dropped and dropped == networks else self.kind,
            memory=self.kind != "mb_x",
            weights=tuple(self.weights.tolist()),
            intervals=self.intervals,
            note="; ".join(told),
        )


def log_chances(found: Fit, batch: Batch) -> FloatArray:
    """``[N, T, A]`` log-probability of every action after every history, averaged over the posterior of a fit."""
    return held_out_log_chances(partial(found.agent.psi, batch), found.posterior, batch, HeldOutConfig())


def dropped_networks(model: OutcomeModel, kind: str) -> tuple[int, int]:
    """How many of the networks of an outcome model were dropped for the linear law beneath, and how many there were."""
    if kind in ("ar", "simulator"):
        return 0, 0
    members: tuple[Any, ...] = model.members if isinstance(model, EnsembleModel) else (model,)
    return sum(isinstance(one, LearnedModel) and one.correction is None for one in members), len(members)


def loop_note(rounds: int, stop: str) -> str:
    """How a max-margin loop ended."""
    return f"loop: {rounds} round{'' if rounds == 1 else 's'}, {REASONS[cast(Stop, stop)]}"
