"""How well outcome models predict what was done and what was not done, in what time, and whether balancing helps.

Data come from the simulator: an expert for weights (-0.3, -0.7) at gamma 0.99 whose decisions are the more confounded
the larger kappa is (0: a coin). Errors are one step ahead, on 1,000 fresh patients, and divided by those of the
simulator's own expectation on the very same rows: 1.000 is as good as the noise allows. Counterfactual means the same
patients, the same noise, the other action.

    python benchmarks/outcome_models.py models [--episodes 10000] [--kappa 100] [--kinds ar crn ...]
    python benchmarks/outcome_models.py balancing [--episodes 2000] [--kappas 0 20 100 200] [--seeds 5]

``models`` (what is run without a word) prints, for every kind, as it is and without the linear law that it corrects,
the seconds of the whole fit, when its validation error first came within 1.2 times the floor, both errors, and how far
the mean course of never and always treating is from the simulator's (in percent of it, wherever it is at least a
hundredth of the range). ``balancing`` fits the CRN with alpha = 1 and alpha = 0, with and without the law, and prints
mean and standard deviation over seeds.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace

import numpy as np
import torch

from agents.expert import EXPERT, Expert, successor_expert
from cirl_gym import TumourParameters, TumourWorld, rollout
from cirl_gym.data.batch import Batch
from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.outcome_models.errors import course_gap, factual_error, flipped_ahead
from cirl_gym.outcome_models.fitting import FittedOutcomeModel, OutcomeModelConfig, fit_outcome_model
from cirl_gym.outcome_models.inputs import KINDS
from cirl_gym.outcome_models.model import LearnedModel
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.outcome_models.training import Watch
from cirl_gym.worlds.exact import Patients, PatientsWorld, constant_futures

PARAMETERS = TumourParameters()
ORACLE = OracleModel(PARAMETERS)
PHI = PARAMETERS.feature_map
TEST_PATIENTS = 1000
CLOSE = 1.2
"""How near the floor counts as near."""


def trained_expert() -> Expert:
    """The preferences of the paper's first setting; any kappa can be put to it."""
    return successor_expert(PARAMETERS, np.array([-0.3, -0.7]), 0.99, 1.0, EXPERT, np.random.default_rng(0))


class Data:
    """Episodes to learn from, and patients to be judged on, all of one expert.

    Args:
        expert: who decides.
        kappa: how surely.
        episodes: to learn from.
        seed: of everything that is drawn.
    """

    def __init__(self, expert: Expert, kappa: float, episodes: int, seed: int = 1) -> None:
        policy, rng = replace(expert, kappa=kappa).policy(seed), np.random.default_rng(seed)
        seen = rollout(TumourWorld(PARAMETERS), policy, episodes, rng, deterministic=False)
        self.train, self.validation = seen.split(0.1, rng)
        self.patients = Patients.draw(PARAMETERS, TEST_PATIENTS, rng)
        self.test: Batch = rollout(PatientsWorld(self.patients), policy, TEST_PATIENTS, rng, deterministic=False)
        self.floor = self.errors(ORACLE)

    def errors(self, model: OutcomeModel) -> tuple[float, float]:
        """Factual and counterfactual error, pooled, on the scale of phi."""
        flipped = flipped_ahead(model, self.test, self.patients, PHI, 1)[0]
        return factual_error(model, self.test, PHI).pooled, flipped.pooled

    def ratios(self, model: OutcomeModel) -> tuple[float, float]:
        """The same, divided by those of the simulator's expectation."""
        (factual, flipped), (floor, flipped_floor) = self.errors(model), self.floor
        return factual / floor, flipped / flipped_floor

    def courses(self, model: OutcomeModel) -> str:
        """How far mean courses are off, in percent of the simulator's mean, for never and always treating."""
        gaps = [course_gap(model, self.test.start, constant_futures(self.patients, a), PHI).relative for a in (0, 1)]
        return "  ".join(" ".join(f"{100 * gap:6.2f}" for gap in both) for both in gaps)


def seconds_to(close: float, data: Data, fitted: FittedOutcomeModel, epochs: list[tuple[float, float]]) -> str:
    """When the validation error first was at most ``close`` times that of the simulator's expectation."""
    model = fitted.model
    if not isinstance(model, LearnedModel) or model.correction is None:
        return f"{fitted.seconds:.0f}" if data.ratios(model)[0] <= close else "never"
    # Losses are mean squared errors in these units.
    every = ORACLE.predict(ORACLE.encode(data.validation)[:, :-1])
    taken = np.take_along_axis(every, data.validation.actions[..., None, None], axis=2)[:, :, 0]
    errors = (taken - data.validation.next_obs)[data.validation.mask] / model.correction.scale
    target = close**2 * float((errors**2).mean())
    return next((f"{seconds:.0f}" for seconds, loss in epochs if loss <= target), "never")


def models(arguments: argparse.Namespace) -> None:
    data = Data(trained_expert(), arguments.kappa, arguments.episodes)
    floor = f"floor {data.floor[0]:.5f} and {data.floor[1]:.5f}"
    print(f"{arguments.episodes:,} episodes, kappa {arguments.kappa:g}; {floor}")
    print(f"model               seconds  to {CLOSE:g}x  factual  counterf.  never: x, z     always: x, z  (%)")
    for base in (True, False):
        for kind in arguments.kinds:
            if kind == "ar" and not base:
                continue
            begun, epochs = time.perf_counter(), []

            def note(name: str, _epoch: int, loss: float, begun: float = begun, epochs: list = epochs) -> None:
                if name == "correction":
                    epochs.append((time.perf_counter() - begun, loss))

            config, rng = OutcomeModelConfig(base=base), np.random.default_rng(0)
            fitted = fit_outcome_model(kind, data.train, data.validation, config, rng, watch=Watch(note))
            factual, flipped = data.ratios(fitted.model)
            name = kind if base else f"{kind} without law"
            soon = seconds_to(CLOSE, data, fitted, epochs)
            columns = f"{fitted.seconds:8.1f} {soon:>8} {factual:8.3f} {flipped:9.3f}"
            print(f"{name:18} {columns}   {data.courses(fitted.model)}", flush=True)


def balancing(arguments: argparse.Namespace) -> None:
    expert, default = trained_expert(), OutcomeModelConfig()
    print(f"{arguments.episodes:,} episodes, {arguments.seeds} seeds: mean (standard deviation)")
    print("kappa  law  alpha  factual          counterfactual")
    for kappa in arguments.kappas:
        sets = [Data(expert, kappa, arguments.episodes, seed + 1) for seed in range(arguments.seeds)]
        for base in (True, False):
            for alpha in (0.0, 1.0):
                config = replace(default, base=base, crn=replace(default.crn, balance=alpha))
                found = []
                for seed, data in enumerate(sets):
                    rng = np.random.default_rng(seed)
                    found.append(data.ratios(fit_outcome_model("crn", data.train, data.validation, config, rng).model))
                columns = "  ".join(f"{np.mean(c):7.4f} ({np.std(c, ddof=1):.4f})" for c in zip(*found, strict=True))
                print(f"{kappa:5g}  {'yes' if base else 'no ':3}  {alpha:5g}  {columns}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("models", help="every kind, with and without the linear law")
    one.add_argument("--episodes", type=int, default=10_000)
    one.add_argument("--kappa", type=float, default=100.0)
    one.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    one.set_defaults(run=models)
    two = commands.add_parser("balancing", help="the CRN with and without balancing")
    two.add_argument("--episodes", type=int, default=2_000)
    two.add_argument("--kappas", type=float, nargs="+", default=[0, 20, 100, 200])
    two.add_argument("--seeds", type=int, default=5)
    two.set_defaults(run=balancing)
    arguments = parser.parse_args(sys.argv[1:] or ["models"])
    torch.set_num_threads(1)
    arguments.run(arguments)


if __name__ == "__main__":
    main()
