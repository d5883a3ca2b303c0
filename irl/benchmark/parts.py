"""What jobs of a benchmark share: made once, each with files of its own, and read by every job that needs it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np

from agents.expert import noise_free_values
from agents.solvers import SIX_SETTINGS, Setting
from agents.successor.agent import SuccessorAgent
from agents.successor.training import Problem, fit_successor, simulated_starts, uniform_weights
from cirl_gym.data.rollout import returns, rollout
from cirl_gym.files import StoredParts, read_json, write_json
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.types import FloatArray, Policy
from cirl_gym.worlds.exact import optimum
from cirl_gym.worlds.tumour import TumourParameters, TumourWorld, draw_start
from irl.baselines.methods import DSFNLoopConfig, quick_dsfn
from irl.pipeline import Simulated, simulate
from irl.settings import DemoConfig
from irl.stages import stages


def setting_name(setting: Setting) -> str:
    """Hundredths of the weights of tumour and side effects, and gamma: ``30-70-0.99``."""
    tumour, side = (round(100 * abs(w)) for w in setting.weights)
    return f"{tumour}-{side}-{setting.gamma:g}"


SETTINGS = {setting_name(setting): setting for setting in SIX_SETTINGS}
"""The paper's six, by name."""


@dataclass(frozen=True)
class BenchmarkConfig:
    """How much is done for every job. Weights, discount factor and seed are the job's own.

    Raises:
        ValueError: a number of patients is too small.
    """

    demo: DemoConfig = field(default_factory=DemoConfig)
    """The simulator, the experts, their episodes, and how methods with an outcome model go from these to weights."""
    dsfn: DSFNLoopConfig = field(default_factory=DSFNLoopConfig)
    """How DSFN and DSFN(h) learn."""
    patients: int = 1000
    """Of a return: the same, under the same noise, for every method, setting and seed."""
    exact: int = 50
    """Further ones, without noise, on whom policies are held against the exact optimum."""
    elsewhere: int = 300
    """Of a return in one of the other simulators (:func:`other_simulators`)."""

    def __post_init__(self) -> None:
        if min(self.patients, self.exact, self.elsewhere) < 2:
            raise ValueError(f"patients, exact and elsewhere must be at least 2, got {self}")

    def quick(self) -> BenchmarkConfig:
        """A first look in a fraction of the time."""
        return replace(self, demo=self.demo.quick(), dsfn=quick_dsfn(self.dsfn), exact=5, elsewhere=100)

    def demo_of(self, setting: str, seed: int) -> DemoConfig:
        """What a simulated run of a setting is asked to do."""
        weights, gamma = SETTINGS[setting].weights, SETTINGS[setting].gamma
        return replace(self.demo, weights=weights, seed=seed, fit=replace(self.demo.fit, gamma=gamma))

    def patients_and_noise(self) -> np.random.Generator:
        """Who is treated, and what chance does to them: the same stream for every policy."""
        return np.random.default_rng([1, *b"benchmark"])

    def exact_starts(self) -> FloatArray:
        """``[exact, 2]`` first observations of those without noise."""
        return draw_start(self.demo.parameters, self.exact, np.random.default_rng([2, *b"benchmark"]))


C = TypeVar("C")


@dataclass(frozen=True)
class Benchmark(Generic[C]):
    """A folder, and how much is done for the jobs whose files it holds."""

    folder: Path
    config: C

    def has(self, task: Task[C]) -> bool:
        """Whether a task is done: whether the last of its files is there."""
        return (self.folder / task.file).is_file()


OfPaper: TypeAlias = Benchmark[BenchmarkConfig]
"""In the paper's six settings; that of a table is :data:`irl.benchmark.table.OfTable`."""


class Task(Protocol[C]):
    """A piece of work with files of its own, done by any process that sees the folder."""

    @property
    def name(self) -> str:
        """Of its files, without their endings: a path within the folder."""
        ...

    @property
    def file(self) -> str:
        """The one that is written last, whole: a path within the folder."""
        ...

    def work(self, benchmark: Benchmark[C]) -> None:
        """Do it and write the files."""
        ...


@dataclass(frozen=True)
class ExpertEpisodes:
    """The expert of a setting, trained with a seed, and the episodes that it leaves behind."""

    setting: str
    seed: int

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"parts/{self.setting}/{self.seed}"

    @property
    def file(self) -> str:
        """Seconds, which are written behind expert and episodes."""
        return f"{self.name}/seconds.json"

    def work(self, benchmark: OfPaper) -> None:
        """Steps 1 to 3 of the pipeline."""
        began = time.process_time()
        seconds = self._simulated(benchmark)[1]
        spent = {"stages": seconds, "processor": time.process_time() - began}
        write_json(benchmark.folder / self.file, spent)

    def read(self, benchmark: OfPaper) -> Simulated:
        """Expert and episodes, split as in every run."""
        return self._simulated(benchmark)[0]

    def seconds(self, benchmark: OfPaper) -> tuple[dict[str, float], float]:
        """What its stages took, by name, and processor seconds of all."""
        spent = read_json(benchmark.folder / self.file)
        return spent["stages"], spent["processor"]

    def _simulated(self, benchmark: OfPaper) -> tuple[Simulated, dict[str, float]]:
        """What is stored is read, and what is not is computed and stored."""
        stored = StoredParts(benchmark.folder / self.name)
        with stages(2, quiet=True) as watch:
            return simulate(benchmark.config.demo_of(self.setting, self.seed), watch, stored), watch.seconds


def other_simulators(parameters: TumourParameters) -> dict[str, TumourParameters]:
    """Simulators that differ in one thing from the one in which experts were watched.

    Three times the noise; half as many steps more; a treatment that is weaker by a fifth.
    """
    noise = {name: 3 * getattr(parameters, name) for name in ("tumour_noise", "side_noise")}
    return {
        "more noise": replace(parameters, **noise),
        "longer": replace(parameters, horizon=parameters.horizon + (parameters.horizon + 1) // 2),
        "weaker treatment": replace(parameters, tumour_effect=0.8 * parameters.tumour_effect),
    }


@dataclass(frozen=True)
class OtherSimulator:
    """An agent that knows what to do in another simulator for any weights, under one discount factor."""

    world: str
    gamma: float

    @property
    def name(self) -> str:
        """Of its file."""
        return f"parts/elsewhere/{self.world.replace(' ', '_')}_{self.gamma:g}"

    @property
    def file(self) -> str:
        """The agent."""
        return f"{self.name}.npz"

    def parameters(self, benchmark: OfPaper) -> TumourParameters:
        """Of the simulator."""
        return other_simulators(benchmark.config.demo.parameters)[self.world]

    def work(self, benchmark: OfPaper) -> None:
        """Train it on the other simulator, for weights of the signs that a doctor knows."""
        parameters, demo = self.parameters(benchmark), benchmark.config.demo
        rng = np.random.default_rng([3, *self.name.encode()])
        world = OracleModel(parameters), parameters.feature_map, simulated_starts(parameters, rng), parameters.horizon
        problem = Problem(*world, self.gamma, uniform_weights(demo.signs))
        fit_successor(problem, demo.fit.agent, rng).save(benchmark.folder / self.file)

    def read(self, benchmark: OfPaper) -> SuccessorAgent:
        """The agent."""
        return SuccessorAgent.load(benchmark.folder / self.file, OracleModel(self.parameters(benchmark)))


@dataclass(frozen=True)
class ExactOptimum:
    """What nobody can exceed without noise: all plans of some patients are tried, for all settings at once."""

    name = "parts/optimum"
    file = f"{name}.json"

    def work(self, benchmark: OfPaper) -> None:
        """Try every plan."""
        config = benchmark.config
        criteria = [(setting.weights, setting.gamma) for setting in SETTINGS.values()]
        values = optimum(config.demo.parameters, config.exact_starts(), criteria).values
        found: dict[str, Any] = dict(zip(SETTINGS, values.mean(axis=0).tolist(), strict=True))
        write_json(benchmark.folder / self.file, found)

    def read(self, benchmark: OfPaper) -> dict[str, float]:
        """By setting, the largest mean discounted return of these patients."""
        found: dict[str, float] = read_json(benchmark.folder / self.file)
        return found

    def short(self, benchmark: OfPaper, setting: str, policy: Policy) -> float:
        """By how much a policy falls short of it, mean over the same patients, without noise."""
        asked, parameters = SETTINGS[setting], benchmark.config.demo.parameters
        starts = benchmark.config.exact_starts()
        values = noise_free_values(policy, parameters, starts, asked.weights, asked.gamma)
        return self.read(benchmark)[setting] - float(values.mean())


def true_returns(
    policy: Policy, parameters: TumourParameters, setting: str, patients: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Mean undiscounted and discounted return of a policy in a simulator, under the weights of a setting."""
    played = rollout(TumourWorld(parameters), policy, patients, rng)
    w, phi = np.array(SETTINGS[setting].weights), parameters.feature_map
    undiscounted, discounted = (returns(played, phi, w, gamma).mean() for gamma in (1.0, SETTINGS[setting].gamma))
    return float(undiscounted), float(discounted)
