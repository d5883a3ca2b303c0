"""Who finds the candidate policies of the max-margin loop and their mu: options of every command that fits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from irl.settings import FitConfig


@dataclass(frozen=True)
class SolverArguments:
    """The max-margin loop the fast way or as the paper prints it."""

    solver: Literal["successor", "drqn"] = "successor"
    """Who finds its policies: the successor-feature agent, or recurrent Q-learning anew in every round (the paper)."""
    mu: Literal["successor", "mu_learning"] | None = None
    """Where their feature expectations come from: the same agent, or mu-learning anew in every round (the paper).
    Default: mu_learning with drqn."""
    iterations: int | None = None
    """Gradient steps of each of these trainings (default: the paper's 20,000; with --quick: 300)."""

    def put_into(self, config: FitConfig) -> FitConfig:
        """The configuration with these options.

        Raises:
            ValueError: two options contradict each other, or iterations is below 1.
        """
        mu = self.mu or ("mu_learning" if self.solver == "drqn" else "successor")
        if self.iterations is not None and mu == "successor":
            raise ValueError("--iterations is for --solver drqn and --mu mu_learning")
        histories = config.histories
        if self.iterations is not None:
            histories = replace(histories, iterations=self.iterations)
        return replace(config, solver=self.solver, mu=mu, histories=histories)


AS_FAST = SolverArguments()
