"""Who finds the candidate policies of the max-margin loop and their mu: options of every command that fits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from irl.settings import FitConfig

Solver: TypeAlias = Literal["successor", "drqn", "recurrent_ppo"]
MuSource: TypeAlias = Literal["successor", "mu_learning", "rollouts"]

_USUAL_MU: dict[Solver, MuSource] = {"successor": "successor", "drqn": "mu_learning", "recurrent_ppo": "rollouts"}
"""Whose mu is taken where none is asked for."""


@dataclass(frozen=True)
class SolverArguments:
    """The max-margin loop the fast way, as the paper prints it, or by RecurrentPPO in the world-model environment."""

    solver: Solver = "successor"
    """Who finds its policies: the successor-feature agent; or, anew in every round, recurrent Q-learning (the paper) or
    RecurrentPPO in the world-model environment."""
    mu: MuSource | None = None
    """Where their feature expectations come from: the same agent; mu-learning anew in every round (the paper); or
    roll-outs in the world model. Default: mu_learning with drqn, rollouts with recurrent_ppo."""
    iterations: int | None = None
    """Gradient steps of each training of drqn and mu_learning (default: the paper's 20,000; with --quick: 300)."""
    steps: int | None = None
    """Imagined steps of each training of recurrent_ppo (default: 40,000; with --quick: 20,000)."""
    quality_limit: float | None = None
    """By how much what plans promise may differ from what is reached in the world model, in shares of an outcome's
    full range, before the run stops (default: 0.05)."""

    def put_into(self, config: FitConfig) -> FitConfig:
        """The configuration with these options.

        Raises:
            ValueError: two options contradict each other, iterations or steps is below 1, or the limit is not positive.
        """
        mu = self.mu or _USUAL_MU[self.solver]
        histories, ppo = config.histories, config.ppo
        if self.iterations is not None:
            if self.solver != "drqn" and mu != "mu_learning":
                raise ValueError("--iterations is for --solver drqn and --mu mu_learning")
            histories = replace(histories, iterations=self.iterations)
        if self.steps is not None:
            if self.solver != "recurrent_ppo":
                raise ValueError("--steps is for --solver recurrent_ppo")
            ppo = replace(ppo, steps=self.steps)
        quality = config.quality
        if self.quality_limit is not None:
            quality = replace(quality, limit=self.quality_limit)
        return replace(config, solver=self.solver, mu=mu, histories=histories, ppo=ppo, quality=quality)


AS_FAST = SolverArguments()
