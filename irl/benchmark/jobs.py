"""One method, with one seed, in one setting: from the expert's episodes to what its policy and weights are worth."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import field, structs

from cirl_gym.data.batch import Batch
from cirl_gym.data.rollout import act_along
from cirl_gym.types import FloatArray, Policy
from irl.baselines.likeliest import LikeliestAction
from irl.baselines.methods import FittedMethod, solve
from irl.benchmark.parts import (
    SETTINGS,
    BenchmarkConfig,
    ExactOptimum,
    ExpertEpisodes,
    OfPaper,
    OtherSimulator,
    Task,
    other_simulators,
    true_returns,
)
from irl.checks.chances import judged_chances
from irl.checks.metrics import HeldOutConfig, accuracy, ceiling, same_order, weight_error
from irl.checks.predictors import HISTORY, Boosting
from irl.pipeline import Simulated
from irl.preferences.inference import judged_episodes
from irl.preferences.likelihood import finite_logs
from irl.result.baselines import METHODS as OF_A_RUN
from irl.result.baselines import REFERENCES, Row
from irl.result.codec import Document, Interval, NotNegative, Numbers, Share, require
from irl.settings import FitConfig
from irl.stages import Stages, stages
from irl.stored_stages import code_digest
from irl.study import Study

LEARNT = {name: title for name, title in OF_A_RUN.items() if name not in ("oracle", "ar", "crn", "rmsn")}
"""Methods that learn from episodes, and how they are called: all that ``cirl baselines`` offers but controls and the
outcome model under other names."""
METHODS = {"expert": REFERENCES["expert"], **LEARNT, "boosting": REFERENCES["boosting"]}
"""What can be compared."""
ALONE = ("mb_h", "mb_x")
"""Their outcome model is the network alone, as in the paper: on top of the linear law it would be the law's copy."""

ASKING = ("cirl", "mb_h", "mb_x", "dsfn", "dsfn_h")
"""They ask for weights, which can be optimised anew where the world is another; of all others the policy is kept."""


class Outcome(Document, frozen=True, kw_only=True):
    """What a job has found.

    Raises:
        ValueError: a field has another type, or is out of its range; setting or method is unknown.
    """

    setting: str
    """A name of :data:`irl.benchmark.parts.SETTINGS`."""
    seed: int
    row: Row
    """Method, weights, accuracy, undiscounted return, and how well held-out decisions are foreseen."""
    discounted: float
    """Mean discounted return of the same patients, by the setting's discount factor."""
    short: float
    """By how much the policy falls short of the exact optimum: discounted, other patients, without noise."""
    elsewhere: dict[str, float]
    """By simulator, mean discounted return there under the true weights: of what is best there for the weights that
    the method (:data:`ASKING`) found, else of its own policy."""
    ceiling: Share | None = None
    """Accuracy that nobody can exceed; stated by the expert's outcome."""
    identified: Interval | None = None
    """What average outcomes alone leave possible of the first weight."""
    kappa: NotNegative | None = None
    """Posterior mean of the inverse temperature."""
    seconds: dict[str, NotNegative] = field(default_factory=dict)
    """Of every stage."""
    cpu: NotNegative = 0.0
    """Processor seconds of the whole job, measuring included, and of the expert's also training and episodes."""
    code: str = ""
    """A number for the source that computed it."""

    def check(self) -> None:
        """Setting and method are known."""
        require(self.setting in SETTINGS, f"outcome: setting must be one of {', '.join(SETTINGS)}, got {self.setting}")
        require(self.method in METHODS, f"outcome: method must be one of {', '.join(METHODS)}, got {self.method}")

    @property
    def method(self) -> str:
        """A name of :data:`METHODS`."""
        return self.row.method

    @property
    def interval(self) -> Interval | None:
        """90 % interval of the first weight; None: the method gives none."""
        return next(iter((self.row.intervals or {}).values()), None)

    @property
    def weights(self) -> Numbers | None:
        """``[d]`` weights found; None: the method finds none."""
        return self.row.weights


@dataclass(frozen=True)
class Job:
    """A method with a seed in a setting."""

    setting: str
    method: str
    seed: int

    @property
    def name(self) -> str:
        """Of its file."""
        return f"jobs/{self.setting}/{self.method}_{self.seed}"

    def needs(self, config: BenchmarkConfig) -> tuple[Task[BenchmarkConfig], ...]:
        """What must have been made before."""
        return (
            ExpertEpisodes(self.setting, self.seed),
            ExactOptimum(),
            *(OtherSimulator(name, SETTINGS[self.setting].gamma) for name in other_simulators(config.demo.parameters)),
        )

    @property
    def file(self) -> str:
        """Its outcome."""
        return f"{self.name}.json"

    def work(self, benchmark: OfPaper) -> None:
        """Write its outcome."""
        outcome_of(self, benchmark).write(benchmark.folder / self.file)


def outcome_of(job: Job, benchmark: OfPaper) -> Outcome:
    """What a job finds: the same for the same job, parts and settings, but for the seconds.

    Raises:
        ValueError: the method cannot work with its episodes.
    """
    began, config, shared = time.process_time(), benchmark.config, ExpertEpisodes(job.setting, job.seed)
    made = shared.read(benchmark)
    with stages(0, quiet=True) as watch:
        solved = _solved(job, made, config, watch)
    seconds = seconds_of(job.method, watch)
    spent = 0.0
    if job.method == "expert":
        seconds, spent = shared.seconds(benchmark)
    row = structs.replace(solved.row, seconds=sum(seconds.values()), **_against_truth(solved.row, made))
    row = structs.replace(row, **_foreseen(solved, made, job.seed))
    weights = made.expert.w if job.method == "expert" else row.weights if job.method in ASKING else None
    patients, parameters = config.patients, config.demo.parameters
    earned = true_returns(solved.policy, parameters, job.setting, patients, config.patients_and_noise())
    return Outcome(
        setting=job.setting,
        seed=job.seed,
        row=structs.replace(row, return_=earned[0]),
        discounted=earned[1],
        short=ExactOptimum().short(benchmark, job.setting, solved.policy),
        elsewhere=_elsewhere(job.setting, weights, solved.policy, benchmark),
        ceiling=ceiling(made.expert.probabilities(made.test), made.test) if job.method == "expert" else None,
        identified=None if solved.fit is None else (solved.fit.identified.low[0], solved.fit.identified.high[0]),
        kappa=None if solved.fit is None else solved.fit.posterior.kappa_mean,
        seconds=seconds,
        cpu=time.process_time() - began + spent,
        code=code_digest()[:12],
    )


def _solved(job: Job, made: Simulated, config: BenchmarkConfig, watch: Stages) -> FittedMethod:
    """What the method makes of the episodes; all but the expert get these alone, and no way to a simulator."""
    if job.method == "expert":
        row = Row(method="expert", model="simulator", memory=True)
        return FittedMethod(made.expert.optimal, row, partial(_own, made))
    if job.method == "boosting":
        with watch.stage("gradient boosting"):
            found = Boosting.fit(made.train, job.seed, HISTORY)
        policy = LikeliestAction(found, made.train.features, made.train.action_names)
        return FittedMethod(policy, Row(method="boosting", memory=True), found.log_probabilities)
    demo = config.demo_of(job.setting, job.seed)
    fit, signs = settings_of(job.method, demo.fit), np.array(demo.signs, dtype=np.float64)
    fit = fit.whole(made.parameters.horizon)
    study = Study(made.train, made.validation, made.parameters.feature_map, signs, fit, job.seed, watch)
    return solve(job.method, study, config.dsfn)


def settings_of(method: str, config: FitConfig) -> FitConfig:
    """How a method fits: those of :data:`ALONE` without the linear law."""
    return replace(config, outcome=replace(config.outcome, base=False)) if method in ALONE else config


def seconds_of(method: str, watch: Stages) -> dict[str, float]:
    """What a method's stages took. Every fit clones as well, as little as can be: that is a method of its own."""
    return {name: took for name, took in watch.seconds.items() if name != "behaviour cloning" or method == "cloning"}


def _own(made: Simulated, batch: Batch) -> FloatArray:
    """Log-probabilities ``[N, T, A]`` that the expert acts by."""
    return finite_logs(made.expert.probabilities(batch))


def _against_truth(row: Row, made: Simulated) -> dict[str, Any]:
    if row.weights is None:
        return {}
    truth = made.expert.w
    return {
        "weight_error": float(weight_error(row.weights, truth).max()),
        "right_order": same_order(row.weights, truth),
    }


def _foreseen(solved: FittedMethod, made: Simulated, seed: int) -> dict[str, Any]:
    """Held-out decisions that the policy meets, and how well its account foresees them if it has one."""
    met = accuracy(act_along(solved.policy, made.test), made.test)
    if solved.log_chances is None:
        return {"accuracy": met}
    judged = judged_episodes(made.test, HeldOutConfig().decisions)
    scores = judged_chances(solved.log_chances(judged), judged, np.random.default_rng([seed, 3]))
    return {"accuracy": met, "scores": scores}


def _elsewhere(setting: str, weights: npt.ArrayLike | None, policy: Policy, benchmark: OfPaper) -> dict[str, float]:
    """Mean discounted returns in the other simulators; weights are optimised anew there, a policy stays what it is."""
    found, config = {}, benchmark.config
    for world, parameters in other_simulators(config.demo.parameters).items():
        agent = OtherSimulator(world, SETTINGS[setting].gamma).read(benchmark)
        there = policy if weights is None else agent.policy(weights)
        found[world] = true_returns(there, parameters, setting, config.elsewhere, config.patients_and_noise())[1]
    return found
