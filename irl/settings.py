"""What a run is asked to do: one frozen dataclass per command, saved beside its result as config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import get_args

import numpy as np

from agents import MuSource, Solver
from agents.as_printed.learning import RollOutConfig
from agents.as_printed.training import HistoryTrainingConfig
from agents.expert import EXPERT, simulator_model
from agents.policies.cloning import CloningConfig
from agents.ppo_settings import KNOWS_NO_RULES, WorldPPOConfig
from agents.successor.agent import SuccessorConfig, check_kappa
from cirl_gym.data.batch import PREVIOUS, PREVIOUS2
from cirl_gym.data.outcomes import read_outcome
from cirl_gym.outcome_models.fitting import OutcomeModelConfig
from cirl_gym.outcome_models.inputs import Kind
from cirl_gym.tables.columns import TableColumns, TableOptions
from cirl_gym.tables.weighed import chosen_outcomes
from cirl_gym.worlds.tumour import TumourParameters
from irl.checks.quality import QualityConfig
from irl.preferences.inference import PosteriorConfig
from irl.result.gammas import check_gammas
from irl.result.windows import check_starts

HABIT = (PREVIOUS, PREVIOUS2)
"""What habits of a table's experts depend on, unless something else is asked."""
FEW_ACTIONS = 4
"""With more actions the last one alone is looked at: two would make hundreds of logits."""
FARTHEST = 300
"""Steps to the end of an episode that plans are searched for at most, unless somebody says how far a decision looks
ahead: with 1,000 steps a run would take hours, and nobody plans so far."""
FOLDS = 5
"""Parts of a table's patients (:attr:`FitConfig.folds`), unless something else is asked."""


@dataclass(frozen=True)
class FitConfig:
    """From a batch to weights.

    Raises:
        ValueError: a number is out of its range.
    """

    gamma: float = 0.99
    """Discount factor in [0, 1]."""
    model: Kind = "crn"
    """Outcome model: "ar" (linear law), "crn" or "mb_h" (networks that correct it where they predict better)."""
    outcome: OutcomeModelConfig = field(default_factory=OutcomeModelConfig)
    """How the outcome model is fitted."""
    agent: SuccessorConfig = field(default_factory=SuccessorConfig)
    """How the world model is solved."""
    cloning: CloningConfig = field(default_factory=CloningConfig)
    """The baseline that copies the expert."""
    posterior: PosteriorConfig = field(default_factory=PosteriorConfig)
    """The likelihood's work."""
    rounds: int = 50
    """Largest number of rounds of the max-margin loop (paper: 50)."""
    tolerance: float = 1e-3
    """Margin at which the loop has converged (paper: 0.001)."""
    horizon: int | None = None
    """How many actions a decision looks ahead, at most, and is planned anew at the next one; default: to the end of the
    longest episode, as in the paper (:attr:`agents.successor.training.Problem.ahead`)."""
    length: int | None = None
    """Number of actions of a whole episode; default: that of the longest training episode."""
    starts: int = 200
    """First observations from which plans are searched for the feature expectation of a policy."""
    solver: Solver = "successor"
    """Who finds the policies of the max-margin loop; "drqn" as the paper does (appendix D), or "recurrent_ppo" in the
    world-model environment: one training per round."""
    mu: MuSource = "successor"
    """Where their feature expectations come from; "mu_learning" as in the paper (appendix C), a training per round, or
    "rollouts" in the world model."""
    histories: HistoryTrainingConfig = field(default_factory=HistoryTrainingConfig.paper)
    """How "drqn" and "mu_learning" are trained (paper: 20,000 iterations each)."""
    ppo: WorldPPOConfig = field(default_factory=WorldPPOConfig)
    """How "recurrent_ppo" is trained."""
    rollouts: RollOutConfig = field(default_factory=RollOutConfig)
    """How policies are played out for "rollouts"."""
    quality: QualityConfig = field(default_factory=QualityConfig)
    """How closely it is looked whether planning keeps what it promises, and what stops the run."""
    windows: tuple[int, ...] = ()
    """First steps of windows of time whose weights are found one by one; default: none (:mod:`irl.studies.windows`)."""
    choose_gamma: tuple[float, ...] = ()
    """Discount factors of which held-out decisions choose one in place of ``gamma`` (:mod:`irl.studies.gammas`)."""
    forbid: tuple[str, ...] = ()
    """Rules of what the experts could not do (:mod:`cirl_gym.data.rules`); policies may not do it either."""
    habit: tuple[str, ...] = ()
    """What habits depend on (:mod:`cirl_gym.data.habits`): "previous" and "previous2", the actions one and two steps
    before, or contexts of the batch.
    Default: no habits, as in the paper."""

    folds: int = 0
    """Parts of the patients; the decisions of each are judged in a world that was fitted to the others, so that all are
    judged and none in a world that has seen its outcomes (:mod:`irl.cross_fitting`). 0: the training episodes are
    judged in the one world that was fitted to them."""
    repeats: int = 4
    """How often that is done, after the first with patients drawn anew: intervals hold what world models differ in."""

    def __post_init__(self) -> None:
        if self.folds < 0 or self.folds == 1 or self.repeats < 1:
            raise ValueError(f"folds must be 0 or at least 2, and repeats 1, got {self.folds} and {self.repeats}")
        if self.solver not in get_args(Solver) or self.mu not in get_args(MuSource):
            raise ValueError(
                f"solver must be one of {', '.join(get_args(Solver))} and mu one of {', '.join(get_args(MuSource))}, "
                f"got {self.solver!r} and {self.mu!r}"
            )
        if self.solver != "successor" and self.mu == "successor":
            raise ValueError(
                f"mu='successor' is that of the successor agent's own policies; {self.solver} needs mu='mu_learning' "
                "or mu='rollouts'"
            )
        if self.forbid and self.solver == "recurrent_ppo":
            raise ValueError(KNOWS_NO_RULES)
        if not 0 <= self.gamma <= 1:
            raise ValueError(f"gamma must lie between 0 and 1, got {self.gamma}")
        if len(set(self.habit)) < len(self.habit):
            raise ValueError(f"habit: a name is there twice: {', '.join(self.habit)}")
        check_starts(self.windows)
        if self.choose_gamma:
            check_gammas(self.choose_gamma)
        for name in ("horizon", "length"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.horizon is not None and (self.solver, self.mu) != ("successor", "successor"):
            raise ValueError(f"horizon: {self.solver} with mu={self.mu!r} always looks ahead to the end of the episode")
        if self.rounds < 1 or self.starts < 1 or self.tolerance < 0:
            raise ValueError("rounds and starts must be at least 1 and the tolerance not negative")

    @property
    def more_stages(self) -> int:
        """How many stages a fit has beside those that every one has."""
        return (self.outcome.members > 1) + bool(self.windows) + 2 * bool(self.folds)

    def whole(self, length: int) -> FitConfig:
        """The same, for episodes of at most ``length`` actions, unless a length was chosen."""
        return replace(self, length=self.length or length)

    def quick(self) -> FitConfig:
        """A first look in a fraction of the time, with wider errors."""
        return replace(
            self,
            model="ar",
            outcome=OutcomeModelConfig.quick(),
            agent=quick_agent(self.agent),
            cloning=replace(self.cloning, training=replace(self.cloning.training, epochs=4, patience=4)),
            posterior=replace(self.posterior, decisions=1500, plans=8, near_plans=2),
            rounds=10,
            starts=100,
            quality=replace(self.quality, weights=min(self.quality.weights, 10)),
            histories=replace(HistoryTrainingConfig(), iterations=300),
            ppo=replace(self.ppo, steps=20_000, looks=5),
            rollouts=replace(self.rollouts, episodes=500),
        )


def quick_agent(config: SuccessorConfig) -> SuccessorConfig:
    """A smaller training; the search is as wide, since a policy whose plans fall short acts for other weights."""
    return replace(config, episodes=1024, gradient_steps=max(config.gradient_steps // 2, 1), batch_size=512)


@dataclass(frozen=True)
class DemoConfig:
    """Simulate an expert with known preferences, then recover them from the batch alone.

    Raises:
        ValueError: a number is out of its range, or a rule of what is forbidden cannot be read.
    """

    weights: tuple[float, float] = (-0.3, -0.7)
    """True reward weights of (tumour, side effects), L1 norm at most 1."""
    kappa: float = 100.0
    """Inverse temperature of the expert."""
    episodes: int = 10_000
    """Episodes of the batch: nine tenths to fit on, one tenth to choose by (paper: 9,000 and 1,000)."""
    test_episodes: int = 500
    """Further episodes on which accuracy is measured."""
    seed: int = 0
    """Everything that is drawn."""
    parameters: TumourParameters = field(default_factory=TumourParameters)
    """The simulator."""
    expert: SuccessorConfig = EXPERT
    """How the simulator is solved for the expert."""
    fit: FitConfig = field(default_factory=FitConfig)
    """From the batch to weights."""
    expert_habit: tuple[float, float] | None = None
    """The expert's logits of repeating the action before and of treating, beside kappa Q; None: no habits."""

    def __post_init__(self) -> None:
        if self.episodes < 20 or self.test_episodes < 2:
            raise ValueError(
                f"episodes must be at least 20 and test_episodes 2, got {self.episodes}, {self.test_episodes}"
            )
        if self.seed < 0:
            raise ValueError(f"seed must not be negative, got {self.seed}")
        check_kappa(self.kappa)
        if not 0 < sum(abs(w) for w in self.weights) <= 1 + 1e-9:
            raise ValueError(f"weights must have an L1 norm above 0 and at most 1, got {self.weights}")
        simulator_model(self.parameters, self.fit.forbid)  # reads the rules
        if self.expert_habit is not None and not np.isfinite(self.expert_habit).all():
            raise ValueError(f"expert_habit must be two finite numbers, got {self.expert_habit}")

    @property
    def signs(self) -> tuple[int, int]:
        """What the fit is told of the signs: lower is better for both, as a doctor knows, unless that is not true."""
        return (-1, -1) if max(self.weights) <= 0 else (0, 0)

    def quick(self) -> DemoConfig:
        """A first look in a fraction of the time."""
        episodes = min(self.episodes, 2000)
        return replace(
            self, episodes=episodes, test_episodes=200, expert=quick_agent(self.expert), fit=self.fit.quick()
        )


@dataclass(frozen=True)
class ExplainConfig:
    """Recover the preferences behind a table of decisions.

    Raises:
        ValueError: there is no outcome, or one alone and no habit beside it; one is no feature, static or named
            twice; or a sign is not -1 or +1 or not an outcome's.
    """

    columns: TableColumns
    """Which column is what."""
    options: TableOptions = field(default_factory=TableOptions)
    """How the table is read."""
    signs: Mapping[str, int] = field(default_factory=dict)
    """By outcome -1 or +1 where the sign of a weight is known."""
    seed: int = 0
    """Everything that is drawn."""
    fit: FitConfig = field(default_factory=partial(FitConfig, folds=FOLDS, habit=HABIT))
    """From the batch to weights."""
    outcomes: tuple[str, ...] = ()
    """What is weighed: features, or what is computed of them (:mod:`cirl_gym.data.outcomes`), in its one spelling. The
    other features are only seen and predicted. Default: all features that are not static."""
    effects: tuple[str, ...] = ()
    """What is known of effects (:mod:`cirl_gym.outcome_models.stated`)."""
    enforce_effects: bool = False
    """Whether the outcome model is held to them; if not, a contradiction is only said."""
    file: str = ""
    """Name of the table's file, without its folder; empty where it comes from none."""

    def __post_init__(self) -> None:
        outcomes = chosen_outcomes(self.columns, self.outcomes)
        object.__setattr__(self, "outcomes", outcomes if self.outcomes else ())
        signs = {read_outcome(name, outcomes).name: sign for name, sign in self.signs.items()}
        object.__setattr__(self, "signs", signs)
        if len(outcomes) < 1 + (not self.fit.habit):
            option = "--outcomes" if self.outcomes else "--features"
            raise ValueError(
                f"without habit a trade-off needs two outcomes, got {', '.join(outcomes)}; name more by {option}, or "
                "weigh it against habit (--habit previous)"
            )
        if self.seed < 0:
            raise ValueError(f"seed must not be negative, got {self.seed}")
        if self.enforce_effects and not self.effects:
            raise ValueError("--enforce-effects: there is nothing to enforce; state an effect by --effect")
        for name, sign in self.signs.items():
            if name not in outcomes or sign not in (-1, 1):
                raise ValueError(f"signs: {name!r} must be an outcome and its sign -1 or +1, got {sign!r}")
