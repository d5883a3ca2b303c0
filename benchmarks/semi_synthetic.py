"""How often the truth comes back from a table whose experts are known: weights, kappa, habits and the verdict.

A world is fitted to a table. Experts with drawn weights, kappa and habits act in it: as many stays as the table has,
from the table's first observations, with sampled outcomes, until the world ends them. In a part of the runs kappa is 0,
and habit is all there is. What they leave behind is fitted as ``cirl explain`` does it, with habits and without
(``--habit none``), each run with its own seed. Their own chances are known, so it is too whether the outcomes matter
enough to be seen: whether these chances foresee the decisions that are judged better than any habit could, by more than
two standard errors.

    python benchmarks/semi_synthetic.py TABLE [options of cirl explain] [--runs 20] [--first 0] [--quick]

One line is printed for each run; a run whose file is in the folder is not repeated, so that a command that was stopped
goes on, and two commands with other ``--first`` can share a folder. A run takes twice the time of ``cirl explain``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from scipy.special import log_softmax
from stored import stored
from tyro.conf import OmitArgPrefixes, Positional

from agents.expert import Expert
from agents.successor.agent import SuccessorAgent
from agents.successor.training import Problem, fit_successor, uniform_weights
from cirl_gym.data.batch import PREVIOUS, Batch
from cirl_gym.data.features import FeatureMap, draw_weights
from cirl_gym.data.habits import Contexts, Habit, action_before
from cirl_gym.data.known import known_names
from cirl_gym.data.outcome_model import CounterfactualWorld
from cirl_gym.data.outcomes import changing
from cirl_gym.data.rollout import rollout
from cirl_gym.files import StoredParts, read_json, write_json
from cirl_gym.outcome_models.fitting import fit_outcome_model
from cirl_gym.tables.read import prepare_table
from cirl_gym.tables.weighed import chosen_outcomes, known_signs
from cirl_gym.types import Float32Array, FloatArray, IntArray, Step
from irl.checks.metrics import coverage
from irl.checks.predictors import LastActionTable
from irl.commands.options import ModelArguments, TableArguments
from irl.evaluation import judged
from irl.pipeline import Fit, Study, fit
from irl.preferences.choice import KAPPA
from irl.preferences.inference import plan_pool
from irl.preferences.likelihood import per_decision, taken_log_probabilities
from irl.preferences.posterior import TAILS, PosteriorResult, sample_posterior
from irl.settings import FOLDS, FitConfig
from irl.stages import stages
from irl.stored_stages import stored_outcome_model

PERIOD, ALONE = 10, (0, 4, 7)
"""Of ten runs, those whose experts have habits alone."""
STRENGTH = (0.5, 2.0)
"""By how much, as a standard deviation over decisions, what is foreseen moves the experts' logits: between these."""
ROUGH = 0.5
"""Standard deviation of the habits' logits around those that the table shows."""
CLEAR, BORDERLINE = 2.0, (1.0, 3.0)
"""Standard errors of the true gain: beyond which outcomes matter, and between which that is a matter of luck."""
WIDTH = 32
"""Of the experts' search for plans: one that falls short does not act as its weights say."""
_OF_A_RUN = ("out", "runs", "first", "no_none", "world_known")


@dataclass(frozen=True)
class Fitting:
    """What the experts' table is, and how it is fitted; the options are those of ``cirl explain``."""

    table: Positional[Path] = Path("examples/icu_like.csv")
    """The table to which the world is fitted."""
    columns: OmitArgPrefixes[TableArguments] = field(default_factory=TableArguments)
    outcomes: tuple[str, ...] = ()
    lower_is_better: tuple[str, ...] = ()
    sign: tuple[str, ...] = ()
    gamma: float = 0.99
    outcome_model: OmitArgPrefixes[ModelArguments] = field(default_factory=ModelArguments)
    quick: bool = False

    @property
    def config(self) -> FitConfig:
        """As ``cirl explain`` has it, :func:`brief`."""
        config = FitConfig(gamma=self.gamma, folds=FOLDS, habit=(PREVIOUS,))
        return brief(self.outcome_model.put_into(config.quick() if self.quick else config))


@dataclass(frozen=True)
class Options(Fitting):
    """Experts who are known act in a world fitted to a table, and are fitted as ``cirl explain`` does it."""

    runs: int = 20
    first: int = 0
    """Number of the first run, its seed."""
    no_none: bool = False
    """Leave out the fit without habits, which takes a third of the time."""
    world_known: bool = False
    """Judge the decisions in the world that they were made in, too: what is then wrong is no error of a world model."""
    out: Path = Path("runs/semi_synthetic")


def brief(config: FitConfig) -> FitConfig:
    """The same, but for what neither weights nor verdict depend on, which is kept short."""
    cloning = replace(config.cloning, training=replace(config.cloning.training, epochs=1))
    return replace(config, cloning=cloning, quality=replace(config.quality, weights=1, starts=1, limit=None), rounds=1)


class EvenWorld(CounterfactualWorld):
    """A world whose noise leaves expectations as they are: near a limit of an outcome it is smaller, to both sides.

    Noise that is cut off at limits bends the law where many patients are near one (a normal creatinine). A linear law
    fitted to those whom experts chose to treat would then have another effect of treatment than the world has.
    """

    def step(self, state: Float32Array, actions: IntArray, rng: np.random.Generator) -> Step:
        """Append the action and what was sampled to every history; it may end."""
        rows, ends = np.arange(len(actions)), rng.random(len(actions))
        expected = self.model.predict(state)[rows, actions]
        low, high = self.model.bounds
        room = np.maximum(np.minimum(expected - low, high - expected), 0.0)
        noise = self.model.noise(rng.standard_normal((len(actions), len(self.features))))
        obs = (expected + np.clip(noise, -room, room)).astype(np.float32)
        ended = ends < self.model.end_probability(state)[rows, actions]
        return Step(self.model.advance(state, actions, obs), obs, expected, ended)


@dataclass(frozen=True)
class Ward:
    """A table, a world fitted to it, and what to fit."""

    table: Batch
    agent: SuccessorAgent
    """Solved in the world, for all weights."""
    signs: FloatArray
    config: FitConfig

    def experts(self, number: int) -> Expert:
        """Those of a run, some of them with kappa 0; their habits are near those of the table."""
        rng = np.random.default_rng([number, 0])
        w, kappa = self.drawn(rng)
        return self.experts_of(w, 0.0 if number % PERIOD in ALONE else kappa, rng)

    def experts_of(self, w: FloatArray, kappa: float, rng: np.random.Generator) -> Expert:
        """Experts who treat about as often as the table's: what an action changes for everyone alike, habit takes."""
        scores = kappa * self.agent.q(self.table, w) if kappa > 0 else None
        return Expert.of(self.agent, w, kappa, habit_near(self.table, rng, scores))

    def drawn(self, rng: np.random.Generator) -> tuple[FloatArray, float]:
        """Weights and kappa as a fit has them beforehand, of those alone that move logits by :data:`STRENGTH`.

        Others than these would be unlikely from the first: a large kappa chosen to go with weights of outcomes that
        hardly move is no fair test of intervals.
        """
        d = len(self.signs)
        psi = self.agent.psi(self.table, draw_weights(self.signs, rng))[self.table.mask]
        for _ in range(10_000):
            w = draw_weights(self.signs, rng)
            kappa = KAPPA * (2 ** (1 / d) - 1) * float(rng.gamma(d) / rng.gamma(1.0))
            if STRENGTH[0] <= moved(psi @ (kappa * w)) <= STRENGTH[1]:
                return w, kappa
        raise ValueError("no weights move what is done enough: an action changes the outcomes alike in every history")

    def strong(self, w: FloatArray, strength: float) -> float:
        """The kappa with which what is foreseen moves logits by ``strength``."""
        return strength / moved(self.agent.q(self.table, w)[self.table.mask])

    def decisions(self, experts: Expert, patients: int, number: int) -> Batch:
        """What experts leave behind, under the names of the table's actions."""
        drawing, deciding = np.random.SeedSequence([number, 1]).spawn(2)
        world = EvenWorld(self.agent.model, self.table.start, self.agent.horizon)
        policy = experts.policy(int(deciding.generate_state(1)[0]))
        batch = rollout(world, policy, patients, np.random.default_rng(drawing), deterministic=False)
        ids = tuple(f"{row:06}" for row in range(patients))
        return replace(batch, action_names=self.table.action_names, ids=ids, groups=()).trimmed()


def fitted_ward(asked: Fitting, stored: StoredParts) -> Ward:
    """Read the table as ``cirl explain`` does, and fit and solve a world for all its patients together."""
    frame, columns, how = asked.columns.read(asked.table)
    outcomes = chosen_outcomes(columns, asked.outcomes)
    table = prepare_table(frame, columns, how, rng=np.random.default_rng([0, 0]))
    table = table.with_lags(changing(outcomes, columns.features)).with_known(known_names(outcomes, columns.features))
    everyone = Batch.together((table.train, table.validation, table.test))
    given = known_signs(outcomes, asked.lower_is_better, asked.sign)
    signs = np.array([given.get(name, 0) for name in outcomes], dtype=np.float64)
    config = asked.config.whole(everyone.horizon)
    if int((everyone.truncated & (everyone.lengths < everyone.horizon)).sum()) > int(everyone.terminated.sum()):
        # As in a fit of the table; what the world ends counts as ended, and a fit of that would not know.
        config = replace(config, outcome=replace(config.outcome, end=replace(config.outcome.end, formulas=True)))
    learning, solving = (np.random.default_rng([0, part]) for part in (1, 2))
    splits = [batch.with_early_ends(everyone.horizon) for batch in everyone.split(0.15, learning)]
    learnt = partial(fit_outcome_model, config.model, splits[0], splits[1], config.outcome, learning)
    model = stored_outcome_model(stored, learnt).model
    feature_map = FeatureMap.from_batch(everyone, outcomes)
    w = uniform_weights(signs)
    problem = Problem(model, feature_map, everyone.start, everyone.horizon, config.gamma, w, everyone)
    solve = partial(fit_successor, problem, replace(config.agent, width=WIDTH), solving)
    load = partial(SuccessorAgent.load, model=model)
    agent = stored.stage("agent.npz", solve, SuccessorAgent.save, load)
    return Ward(everyone, agent, signs, config)


def moved(scores: FloatArray) -> float:
    """By how much ``[R, A]`` scores move the choice among actions: standard deviation over R decisions."""
    return float((scores - scores[:, :1]).std(axis=0).max())


def habit_near(table: Batch, rng: np.random.Generator, scores: FloatArray | None = None) -> Habit:
    """Logits of the action after each other one that a table shows, moved at random; of mean 0 in each row.

    ``scores`` ``[N, T, A]``, by which experts choose beside, leave the table's rates: their mean is taken away.
    """
    logits = np.log(LastActionTable.fit(table).chances)
    logits = logits + rng.normal(0.0, ROUGH, logits.shape)
    if scores is not None:
        last = action_before(table)
        for level in np.unique(last[table.mask]):
            logits[level] -= scores[table.mask & (last == level)].mean(axis=0)
    return Habit(Contexts.of(table, (PREVIOUS,)), logits - logits.mean(axis=1, keepdims=True))


def true_gain(experts: Expert, batch: Batch) -> tuple[float, float]:
    """By how much the experts' own chances foresee decisions better than the best account by habit, a decision.

    That account is, after each action, the mean of the experts' own chances.

    Returns:
        Mean and standard error by patient, of log-likelihood.
    """
    assert experts.habit is not None
    own = log_softmax(experts.kappa * experts.agent.q(batch, experts.w) + experts.habit.along(batch), axis=-1)
    last, alone = action_before(batch), np.zeros_like(own)
    for level in range(batch.n_actions + 1):
        inside = batch.mask & (last == level)
        if inside.any():
            alone[inside] = np.log(np.exp(own[inside]).mean(axis=0))
    return per_decision(taken_log_probabilities(own, batch) - taken_log_probabilities(alone, batch), batch)


def fitted(
    batch: Batch, phi: FeatureMap, signs: FloatArray, config: FitConfig, number: int, stored: StoredParts
) -> tuple[Fit, dict[str, Any]]:
    """One fit as ``cirl explain`` does it, with the run's number as seed, and what it says."""
    test_split, split = (np.random.default_rng([number, part]) for part in (2, 3))
    rest, test = batch.split(0.15, test_split)
    train, validation = rest.split(0.15 / 0.85, split)
    with stages(8, quiet=True) as watch:
        found = fit(Study(train, validation, phi, signs, config, number, watch, stored, batch))
        result = judged(Study(train, validation, phi, signs, config, number, watch), found, test, config={})
    likelihood = result.likelihood
    assert likelihood is not None
    return found, {
        "verdict": result.verdict,
        "beyond_habit": [likelihood.beyond_habit.mean, likelihood.beyond_habit.standard_error],
        "log_likelihood": {name: getattr(likelihood, name).mean for name in ("cirl", "habit", "boosting")},
        "decisions": likelihood.decisions,
        "uninterpreted": sorted(result.uninterpreted),
        **said(found.posterior),
        "seconds": dict(watch.seconds),
    }


def said(posterior: PosteriorResult) -> dict[str, Any]:
    """Point estimates and 90 % intervals."""
    ends = np.quantile(posterior.logits, TAILS[[0, 2]], axis=0)
    return {
        "weights": posterior.median.tolist(),
        "intervals": [list(pair) for pair in posterior.intervals],
        "kappa": posterior.kappa_mean,
        "kappa_interval": list(posterior.kappa_interval),
        "habit_intervals": np.moveaxis(ends, 0, -1).tolist(),
        "converged": posterior.sampler.converged,
        "power": posterior.sampler.power,
    }


def in_the_true_world(ward: Ward, batch: Batch, number: int) -> dict[str, Any]:
    """The posterior of the same decisions, judged in the world in which they were made."""
    rng, contexts = np.random.default_rng([number, 4]), Contexts.of(batch, ward.config.habit)
    pool = plan_pool(partial(ward.agent.psi, batch), batch, ward.signs, ward.config.posterior, rng, contexts)
    return said(sample_posterior(pool, ward.signs, rng))


def run(ward: Ward, number: int, folder: Path, none: bool, world_known: bool) -> dict[str, Any]:
    """Experts of their own, what they do, and what is said of it with habits and without."""
    experts = ward.experts(number)
    assert experts.habit is not None
    batch = ward.decisions(experts, len(ward.table), number)
    # Worlds do not depend on what habits are looked for: the second fit reads those of the first.
    unfinished = folder / "unfinished" / str(number)
    stored = StoredParts(unfinished)
    how = (ward.agent.feature_map, ward.signs)
    found, with_habit = fitted(batch, *how, ward.config, number, stored)
    assert found.foreseen is not None
    shown = found.foreseen.judged
    answer: dict[str, Any] = {
        "number": number,
        "truth": {
            "weights": experts.w.tolist(),
            "kappa": experts.kappa,
            "habit": experts.habit.logits.tolist(),
            "gain": list(true_gain(experts, shown)),
        },
        "decisions": batch.n_steps,
        "outcomes": list(ward.agent.feature_map.features),
        "habit": with_habit,
    }
    if none:
        answer["none"] = fitted(batch, *how, replace(ward.config, habit=()), number, stored)[1]
    if world_known:
        answer["world known"] = in_the_true_world(ward, shown, number)
    shutil.rmtree(unfinished, ignore_errors=True)
    return answer


# --- what is said of all runs together --------------------------------------------------------------------------------


def matters(found: Mapping[str, Any]) -> bool:
    """Whether the outcomes matter enough to be seen in the decisions of a run."""
    gain, error = found["truth"]["gain"]
    return bool(found["truth"]["kappa"] > 0 and gain > CLEAR * error)


def borderline(found: Mapping[str, Any]) -> bool:
    """Whether that is a matter of luck."""
    gain, error = found["truth"]["gain"]
    low, high = BORDERLINE
    return bool(found["truth"]["kappa"] > 0 and low * error < gain <= high * error)


def row(found: Mapping[str, Any]) -> str:
    """One run in a line."""
    truth, habit = found["truth"], found["habit"]
    gain, error = truth["gain"]
    weights = " ".join(
        f"{true:+.2f} [{low:+.2f}, {high:+.2f}]{' ' if low <= true <= high else '!'}"
        for true, (low, high) in zip(truth["weights"], habit["intervals"], strict=True)
    )
    right = "right" if (habit["verdict"] == "beyond habit") == matters(found) else "WRONG"
    added, its = habit["beyond_habit"]
    return (
        f"run {found['number']:<3} kappa {truth['kappa']:5.1f} [{habit['kappa_interval'][0]:.1f}, "
        f"{habit['kappa_interval'][1]:.1f}] true gain {gain:+.4f} ({error:.4f}) seen {added:+.4f} ({its:.4f}) "
        f"{habit['verdict']} {right}; weights {weights}"
        + (f"; without habits: {found['none']['verdict']}" if "none" in found else "")
        + ("" if habit["converged"] else "; NOT CONVERGED")
    )


def summary(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """How often intervals hold and verdicts are right; of weights and kappa where the experts have any."""
    lines = []
    preferring = [found for found in runs if found["truth"]["kappa"] > 0]
    seen = [found for found in preferring if matters(found)]
    for account in ("habit", "none", "world known"):
        if not all(account in found for found in runs):
            continue
        own: Callable[[Mapping[str, Any]], Any] = lambda found, account=account: found[account]  # type: ignore[misc] # noqa: E731
        held = [
            _held("weights", [pair for f in preferring for pair in own(f)["intervals"]], _weights(preferring)),
            _held(
                "weights where outcomes matter", [pair for f in seen for pair in own(f)["intervals"]], _weights(seen)
            ),
            _held("kappa", [own(f)["kappa_interval"] for f in preferring], [f["truth"]["kappa"] for f in preferring]),
        ]
        if account != "none":
            ends = np.array([own(f)["habit_intervals"] for f in runs])[..., 1:, :].reshape(-1, 2)
            held.append(_held("habit", ends.tolist(), np.array([f["truth"]["habit"] for f in runs])[..., 1:].ravel()))
        lines.append(f"{account}: 90 % intervals hold {'; '.join(held)}")
        if account != "world known":
            right = [(own(f)["verdict"] == "beyond habit") == matters(f) for f in runs]
            clear = [one for one, f in zip(right, runs, strict=True) if not borderline(f)]
            certain = f"{sum(clear)} of the {len(clear)} that are not borderline"
            lines.append(f"{account}: verdict right in {sum(right)} of {len(right)} runs, {certain}")
    lines.append(
        f"outcomes matter in {len(seen)} of {len(runs)} runs, in {sum(map(borderline, runs))} by luck; "
        f"kappa is 0 in {len(runs) - len(preferring)}"
    )
    return lines


def _weights(runs: Sequence[Mapping[str, Any]]) -> list[float]:
    return [weight for found in runs for weight in found["truth"]["weights"]]


def _held(what: str, intervals: Sequence[Sequence[float]], truths: Sequence[float] | FloatArray) -> str:
    if not len(intervals):
        return f"no {what}"
    share = coverage(np.array(intervals)[:, None], np.asarray(truths)[:, None], level=0.9)
    hits = round(float(share.share[0]) * len(intervals))
    return f"{hits} of {len(intervals)} {what} ({share.share[0]:.2f})"


def check_folder(asked: Mapping[str, Any], out: Path) -> None:
    """Raise ValueError where a folder holds runs with other options."""
    own, path = {name: repr(value) for name, value in asked.items()}, out / "asked.json"
    if path.is_file():
        others = [name for name, value in read_json(path).items() if own.get(name) != value]
        if others:
            raise ValueError(f"--out: {out} holds runs with another {others[0]}")
    write_json(path, own)


def main() -> None:
    asked = tyro.cli(Options, config=(tyro.conf.FlagCreatePairsOff,))
    torch.set_num_threads(1)
    check_folder({name: value for name, value in vars(asked).items() if name not in _OF_A_RUN}, asked.out)
    ward = fitted_ward(asked, StoredParts(asked.out / "world"))
    found = []
    for number in range(asked.first, asked.first + asked.runs):
        path = asked.out / f"run_{number:03}.json"
        how = (ward, number, asked.out, not asked.no_none, asked.world_known)
        found.append(stored(path, partial(run, *how)))
        print(row(found[-1]), flush=True)
    print("\n".join(summary(found)))


if __name__ == "__main__":
    main()
