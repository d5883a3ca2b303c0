"""How well outcome models predict what was done and what was not done, in what time, and whether balancing helps.

Data come from the simulator: an expert for weights (-0.3, -0.7) at gamma 0.99 whose decisions are the more confounded
the larger kappa is (0: a coin). Errors are one step ahead, on 1,000 fresh patients, and divided by those of the
simulator's own expectation on the very same rows: 1.000 is as good as the noise allows. Counterfactual means the same
patients, the same noise, the other action.

    python benchmarks/outcome_models.py models [--episodes 10000] [--kappa 100] [--kinds ar crn ...]
    python benchmarks/outcome_models.py balancing [--episodes 2000] [--kappas 0 20 100 200] [--seeds 5]
    python benchmarks/outcome_models.py probe [--episodes 2000] [--alphas 0 0.1 1] [--seeds 3] [--learning-rate 0.01]

``models`` (what is run without a word) prints, for every kind, as it is and without the linear law that it corrects,
the seconds of the whole fit, when its validation error first came within 1.2 times the floor, both errors, and how far
the mean course of never and always treating is from the simulator's (in percent of it, wherever it is at least a
hundredth of the range). ``balancing`` fits the CRN with alpha = 1 and alpha = 0, with and without the law, and prints
mean and standard deviation over seeds.

``probe`` asks what is left in the CRN's representation, without the law, of doctors who treat with probability
sigmoid(.6 (x - 28)): how often the network's own head of the treatment is right, how often a fresh classifier is, on
new patients, and how far the error falls when everything up to the representation is kept as it was trained and only
the head of the outcomes is trained anew, without balancing. A loss that the new head undoes was not a loss of
information.
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
from cirl_gym.diagnostics import representations, treatment_probe
from cirl_gym.outcome_models.correction import fit_correction
from cirl_gym.outcome_models.errors import course_gap, factual_error, flipped_ahead
from cirl_gym.outcome_models.fitting import FittedOutcomeModel, OutcomeModelConfig, fit_outcome_model
from cirl_gym.outcome_models.inputs import KINDS
from cirl_gym.outcome_models.model import Correction, LearnedModel
from cirl_gym.outcome_models.networks import CorrectingNetwork, CRNConfig
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.outcome_models.training import Watch, seeded
from cirl_gym.types import Policy
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


class LogisticDoctor:
    """Treats with probability sigmoid(.6 (x - 28)), x the tumour's volume now."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def predict(self, observation, state=None, episode_start=None, deterministic=False):  # type: ignore[no-untyped-def]
        """One action per row ``[n, d + A]``; nothing is remembered."""
        chances = 1 / (1 + np.exp(-0.6 * (observation[:, 0] - 28)))
        return (self.rng.random(len(observation)) < chances).astype(np.int64), None


class Data:
    """Episodes to learn from, and patients to be judged on, all of one policy.

    Args:
        policy: who decides.
        episodes: to learn from.
        seed: of everything else that is drawn.
    """

    def __init__(self, policy: Policy, episodes: int, seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
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
    data = Data(replace(trained_expert(), kappa=arguments.kappa).policy(1), arguments.episodes)
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
        deciding = replace(expert, kappa=kappa)
        seeds = range(1, arguments.seeds + 1)
        sets = [Data(deciding.policy(seed), arguments.episodes, seed) for seed in seeds]
        for base in (True, False):
            for alpha in (0.0, 1.0):
                config = replace(default, base=base, crn=replace(default.crn, balance=alpha))
                found = []
                for seed, data in enumerate(sets):
                    rng = np.random.default_rng(seed)
                    found.append(data.ratios(fit_outcome_model("crn", data.train, data.validation, config, rng).model))
                columns = "  ".join(f"{np.mean(c):7.4f} ({np.std(c, ddof=1):.4f})" for c in zip(*found, strict=True))
                print(f"{kappa:5g}  {'yes' if base else 'no ':3}  {alpha:5g}  {columns}", flush=True)


def own_accuracy(model: LearnedModel, test: Batch) -> float:
    """Share of a test batch's actions that a CRN's own head of the treatment names."""
    network, representation = model.correction.network, representations(model)["representation"](test)
    with torch.inference_mode():
        named = network.treatment(torch.from_numpy(representation)).argmax(dim=-1).numpy()
    return float((named == test.actions)[test.mask].mean())


def with_fresh_head(model: LearnedModel, data: Data, seed: int) -> LearnedModel:
    """Everything up to the representation as it is, and a head of the outcomes that is trained anew on it."""
    old = model.correction
    with seeded(seed):
        fresh = CorrectingNetwork(len(model.features), model.n_actions, replace(old.network.config, balance=0.0))
    for name in ("lstm", "balancing"):
        part = getattr(fresh, name)
        part.load_state_dict(getattr(old.network, name).state_dict())
        part.requires_grad_(False)
    again = LearnedModel(model.law, model.spec, model.end, Correction(fresh, old.scaler, old.scale))
    fit_correction(again, (data.train, data.validation), fresh.config.training, seed)
    return again


def probe(arguments: argparse.Namespace) -> None:
    default = OutcomeModelConfig(base=False)
    print(f"{arguments.episodes:,} episodes; accuracies in percent; errors beside those of the simulator's expectation")
    print(
        "alpha  seed  most frequent  own head  fresh probe (se)  error: factual, counterf.  with a fresh head     epoch"
    )
    for alpha in arguments.alphas:
        for seed in range(1, arguments.seeds + 1):
            data = Data(LogisticDoctor(seed), arguments.episodes, seed)
            training = replace(default.crn.training, learning_rate=arguments.learning_rate)
            config = replace(default, crn=CRNConfig(balance=alpha, training=training))
            found = fit_outcome_model("crn", data.train, data.validation, config, np.random.default_rng(seed))
            model, rng = found.model, np.random.default_rng(seed)
            told = treatment_probe(representations(model)["representation"], data.train, data.test, rng)
            own, (factual, flipped) = own_accuracy(model, data.test), data.ratios(model)
            fresh, fresh_flipped = data.ratios(with_fresh_head(model, data, seed))
            right = 100 * np.array([told.majority, own, told.accuracy, told.standard_error])
            shares = "{:13.1f}  {:8.1f}  {:11.1f} ({:.1f})".format(*right)
            errors = f"{factual:14.3f} {flipped:11.3f}  {fresh:14.3f} {fresh_flipped:8.3f}"
            print(f"{alpha:5g}  {seed:4}  {shares}  {errors}  {found.report['correction']['best_epoch']:6}", flush=True)


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
    three = commands.add_parser("probe", help="what is left in the CRN's representation")
    three.add_argument("--episodes", type=int, default=2_000)
    three.add_argument("--alphas", type=float, nargs="+", default=[0.0, 0.1, 1.0])
    three.add_argument("--seeds", type=int, default=3)
    three.add_argument("--learning-rate", type=float, default=0.01)
    three.set_defaults(run=probe)
    arguments = parser.parse_args(sys.argv[1:] or ["models"])
    torch.set_num_threads(1)
    arguments.run(arguments)


if __name__ == "__main__":
    main()
