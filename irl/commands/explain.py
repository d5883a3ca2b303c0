"""``cirl demo`` and ``cirl explain TABLE``: what experts were trading off; a folder that is whole or has no result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.console import Console

from agents.expert import Expert
from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.outcomes import changing, read_outcome
from cirl_gym.files import write_json, write_text
from cirl_gym.outcome_models.store import save_model
from cirl_gym.tables.read import prepare_table
from irl import evaluation as findings
from irl.checks.held_out import agreement_over_time
from irl.checks.metrics import RETURN_EPISODES
from irl.commands.options import DemoOptions, ExplainOptions, fit_config
from irl.pipeline import Fit, fit, simulate
from irl.report.renderers import render, show
from irl.report.run import report_of
from irl.report.what_if import imagine
from irl.result.posterior_file import POSTERIOR, save_posterior
from irl.result.result import Result, installed_versions
from irl.result.resuming import identity_of, remove, unfinished
from irl.settings import DemoConfig, ExplainConfig, chosen_outcomes
from irl.stages import stages

if TYPE_CHECKING:
    import pandas as pd

    from cirl_gym.tables.sheet import Sheet

_WRITTEN = (
    "result.json",
    "report.html",
    "diagnostics.json",
    "diagnostics.html",
    "baselines.json",
    "batch.npz",
    "test.npz",
    "outcome_model.npz",
    "agent.npz",
    "cloning.npz",
    "posterior.npz",
    "expert.npz",
)


def command(options: DemoOptions | ExplainOptions) -> None:
    """Run ``cirl demo`` or ``cirl explain``.

    Raises:
        ValueError: an option is out of its range, or the table cannot be used.
        OSError: the table cannot be read or the folder not be written to.
    """
    if isinstance(options, DemoOptions):
        config = DemoConfig(options.weights, options.kappa, options.episodes, seed=options.seed)
        config = replace(config.quick() if options.quick else config, fit=fit_config(options))
        _begin_anew(options)
        demo(config, options.out)
        return
    frame, columns, how = options.columns.read(options.table)
    outcomes = chosen_outcomes(columns, options.outcomes)
    signs = known_signs(outcomes, options.lower_is_better, options.sign)
    asked = ExplainConfig(columns, how, signs, options.seed, fit_config(options), options.outcomes)
    _begin_anew(options)
    explain(frame, asked, options.out)


def _begin_anew(options: DemoOptions | ExplainOptions) -> None:
    if options.fresh:
        remove(options.out)


def known_signs(outcomes: Sequence[str], lower_is_better: Sequence[str], sign: Sequence[str]) -> dict[str, int]:
    """What ``--lower-is-better`` and ``--sign`` say, by outcome.

    Raises:
        ValueError: a name is not an outcome, an entry is not NAME=-1 or NAME=+1, or two entries contradict each other.
    """
    entries = [(name, "-1", "--lower-is-better") for name in lower_is_better]
    for entry in sign:
        name, found, value = entry.rpartition("=")
        if not found or value not in ("-1", "1", "+1"):
            raise ValueError(f"--sign takes NAME=-1 or NAME=+1, got {entry!r}")
        entries.append((name, value, "--sign"))
    signs: dict[str, int] = {}
    for text, value, option in entries:
        name = read_outcome(text, outcomes).name
        if name not in outcomes:
            raise ValueError(f"{option}: {name!r} is not an outcome; the outcomes are {', '.join(outcomes)}")
        if signs.setdefault(name, int(value)) != int(value):
            raise ValueError(f"{option}: {name!r} is given two different signs")
    return signs


def demo(config: DemoConfig, out: Path) -> Result:
    """Recover a simulated expert's preferences and compare them with the truth.

    Raises:
        ValueError: an option is out of its range.
        OSError: the folder cannot be written to.
    """
    torch.set_num_threads(1)
    saved = {"command": "demo", **asdict(config)}
    _begin(out, saved)
    identity = identity_of(_plain(saved), installed_versions())
    with stages(9 + config.fit.more_stages) as run, unfinished(out, identity, run) as stored:
        simulated = simulate(config, run, stored)
        splits = (simulated.train, simulated.validation, simulated.test)
        feature_map = simulated.expert.agent.feature_map
        signs = np.array(config.signs, dtype=np.float64)
        settings = config.fit.whole(config.parameters.horizon)
        found = fit(
            simulated.train, simulated.validation, feature_map, signs, settings, config.seed, run, stored=stored
        )
        with run.stage("evaluation"):
            chances = simulated.expert.probabilities(simulated.test)
            chosen = findings.chosen_actions(found, simulated.test)
            met = findings.measured_accuracy(chosen, simulated.train, simulated.test, chances)
            likely = findings.measured_likelihood(found, simulated.train, simulated.test, chances)
            earned = findings.measured_returns(found, simulated, config.parameters, RETURN_EPISODES, config.seed)
            error = findings.measured_error(found, simulated.test, config.parameters)
            parts = findings.parts(found, splits)
    result = Result(
        **parts,
        accuracy=met,
        agreement=agreement_over_time(*chosen, simulated.test),
        likelihood=likely,
        returns=earned,
        model_error=error,
        seconds=run.seconds,
        seed=config.seed,
        config=_plain(saved) | {"ranges": _ranges(feature_map)},
        versions=installed_versions(),
        true_weights=tuple(simulated.expert.w),
        table=None,
        headline=findings.headline(found, met, simulated.expert.w, parts["allowed"]),
    )
    _finish(out, result, found, simulated.train, simulated.test, simulated.expert)
    return result


def explain(frame: pd.DataFrame | Sheet, config: ExplainConfig, out: Path) -> Result:
    """Recover the preferences behind a table of decisions (from :func:`cirl_gym.tables.sheet.read_table`).

    Raises:
        ValueError: the table cannot be used as it is; the message names column, id and row, or the option to give.
        OSError: the folder cannot be written to.
    """
    torch.set_num_threads(1)
    table = prepare_table(frame, config.columns, config.options, rng=np.random.default_rng([config.seed, 0]))
    table = table.with_lags(changing(config.outcomes, config.columns.features)).masked(config.fit.forbid)
    for line in table.report.lines():
        print(line)
    static = config.columns.static
    outcomes = config.outcomes or tuple(name for name in table.train.features if name not in static)
    saved = {"command": "explain", **asdict(config), "outcomes": outcomes}
    _begin(out, saved)
    splits = (table.train, table.validation, table.test)
    settings = config.fit.whole(max(batch.horizon for batch in splits))
    feature_map = FeatureMap.from_batch(table.train, outcomes)
    signs = np.array([config.signs.get(name, 0) for name in feature_map.features], dtype=np.float64)
    identity = identity_of(_plain(saved), installed_versions(), splits)
    with stages(7 + config.fit.more_stages) as run, unfinished(out, identity, run) as stored:
        found = fit(table.train, table.validation, feature_map, signs, settings, config.seed, run, stored=stored)
        with run.stage("evaluation"):
            chosen = findings.chosen_actions(found, table.test)
            met = findings.measured_accuracy(chosen, table.train, table.test, None)
            likely = findings.measured_likelihood(found, table.train, table.test, None)
            error = findings.measured_error(found, table.test, None)
            parts = findings.parts(found, splits)
    result = Result(
        **parts,
        accuracy=met,
        agreement=agreement_over_time(*chosen, table.test),
        likelihood=likely,
        returns=None,
        model_error=error,
        seconds=run.seconds,
        seed=config.seed,
        config=_plain(saved) | {"ranges": _ranges(feature_map)},
        versions=installed_versions(),
        true_weights=None,
        table=table.report.as_dict(),
        headline=findings.headline(found, met, allowed=parts["allowed"]),
    )
    _finish(out, result, found, table.train, table.test, None)
    return result


def _begin(out: Path, config: dict[str, Any]) -> None:
    """Take away what an earlier run wrote, the result first, so that nothing of it can be taken for this one's."""
    out.mkdir(parents=True, exist_ok=True)
    for name in _WRITTEN:
        (out / name).unlink(missing_ok=True)
    write_json(out / "config.json", _plain(config))


def _finish(out: Path, result: Result, found: Fit, train: Batch, test: Batch, expert: Expert | None) -> None:
    """Write the training and held-out episodes and the models, then the page, and last of all the result."""
    train.save(out / "batch.npz")
    test.save(out / "test.npz")
    save_model(found.model.model, out / "outcome_model.npz")
    found.agent.save(out / "agent.npz")
    found.cloning.save(out / "cloning.npz")
    save_posterior(found.posterior, out / POSTERIOR)
    if expert is not None:
        expert.agent.save(out / "expert.npz")
    what_if = imagine(found.model.model, test, outcomes=found.feature_map.read)
    write_text(out / "report.html", render(report_of(result, what_if)))
    result.write(out / "result.json")
    remove(out)
    show(report_of(result, folder=out), Console(highlight=False))


def _ranges(feature_map: FeatureMap) -> dict[str, list[float]]:
    ends = zip(feature_map.low, feature_map.high, strict=True)
    return {name: [float(a), float(b)] for name, (a, b) in zip(feature_map.features, ends, strict=True)}


def _plain(value: Any) -> Any:
    """A configuration in JSON's own types."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value
