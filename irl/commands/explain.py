"""``cirl demo`` and ``cirl explain TABLE``: what experts were trading off; a folder that is whole or has no result."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from msgspec.structs import replace as replaced

from agents.expert import Expert
from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.habits import PREVIOUS
from cirl_gym.data.outcomes import read_outcome
from cirl_gym.files import escaped
from cirl_gym.outcome_models.stated import StatedEffect, read_effect
from cirl_gym.tables.read import PreparedTable
from irl.commands.options import DemoOptions, ExplainOptions, fit_config
from irl.commands.prepared import prepared
from irl.commands.terminal import console
from irl.evaluation import judged
from irl.pipeline import Fit, Study, fit, simulate
from irl.report.drawing import imagine
from irl.report.run import report_of
from irl.report.section import render, show
from irl.report.why import most_shown
from irl.result.result import Result, installed_versions
from irl.run import Run
from irl.settings import FEW_ACTIONS, HABIT, DemoConfig, ExplainConfig, FitConfig
from irl.stages import stages
from irl.stored_stages import identity_of, remove, unfinished
from irl.studies.why import shown_decisions, why

if TYPE_CHECKING:
    import pandas as pd

    from cirl_gym.tables.columns import TableOptions
    from cirl_gym.tables.sheet import Sheet


def command(options: DemoOptions) -> None:
    """Run ``cirl demo``; raises as :func:`demo` does."""
    config = DemoConfig(
        options.weights, options.kappa, options.episodes, seed=options.seed, expert_habit=options.expert_habit
    )
    config = replace(config.quick() if options.quick else config, fit=fit_config(options))
    if options.fresh:
        remove(options.out)
    demo(config, options.out)


def of_table(options: ExplainOptions, table: PreparedTable, how: TableOptions, signs: Mapping[str, int]) -> None:
    """Run ``cirl explain`` on a table that was read as ``how`` says; raises as :func:`explain` does."""
    stated = (options.effect, options.enforce_effects)
    asked = ExplainConfig(
        table.report.columns,
        how,
        signs,
        options.seed,
        fit_config(options),
        options.outcomes,
        *stated,
        options.table.name,
    )
    if options.fresh:
        remove(options.out)
    explain(table, asked, options.out)


def demo(config: DemoConfig, out: Path) -> Result:
    """Recover a simulated expert's preferences and compare them with the truth.

    Raises:
        ValueError: an option is out of its range.
        OSError: the folder cannot be written to.
    """
    torch.set_num_threads(1)
    asked = _plain({"command": "demo", **asdict(config)})
    run, identity = Run.begin(out, asked), identity_of(asked, installed_versions())
    with stages(9 + config.fit.more_stages) as shown, unfinished(out, identity, shown) as stored:
        simulated = simulate(config, shown, stored)
        study = Study(
            simulated.train,
            simulated.validation,
            simulated.expert.agent.feature_map,
            np.array(config.signs, dtype=np.float64),
            config.fit.whole(config.parameters.horizon),
            config.seed,
            shown,
            stored,
        )
        found, result = _explained(study, simulated.test, asked, simulated=simulated)
    return _written(run, study, found, result, simulated.test, simulated.expert)


def explain(frame: pd.DataFrame | Sheet | PreparedTable, config: ExplainConfig, out: Path) -> Result:
    """Recover the preferences behind a table of decisions (:func:`cirl_gym.tables.files.read_table`, or prepared).

    Raises:
        ValueError: the table cannot be used as it is; the message names column, id and row, or the option to give.
        OSError: the folder cannot be written to.
    """
    torch.set_num_threads(1)
    table = frame
    if not isinstance(table, PreparedTable):
        table = prepared(table, config.columns, config.options, config.outcomes, config.fit.forbid, config.seed)
    for line in table.report.lines():
        print(escaped(line))
    outcomes = config.outcomes or tuple(name for name in table.train.features if name not in config.columns.static)
    asked = _plain({"command": "explain", **asdict(config), "outcomes": outcomes})
    splits = (table.train, table.validation, table.test)
    run, identity = Run.begin(out, asked), identity_of(asked, installed_versions(), splits)
    feature_map = FeatureMap.from_batch(table.train, outcomes)
    signs = np.array([config.signs.get(name, 0) for name in feature_map.features], dtype=np.float64)
    everyone = Batch.together(splits)
    # A fold needs a few patients to be judged and a few to learn from.
    folds = min(config.fit.folds, len(set(everyone.groups)) // 3)
    how = replace(config.fit.whole(everyone.horizon), folds=folds if folds > 1 else 0)
    if how.habit == HABIT and everyone.n_actions > FEW_ACTIONS:
        how = replace(how, habit=(PREVIOUS,))
    effects = stated_effects(config, feature_map, everyone)
    if config.enforce_effects:
        how = held_to(how, effects, table.train.features)
    with stages(7 + how.more_stages) as shown, unfinished(out, identity, shown) as stored:
        study = Study(
            table.train, table.validation, feature_map, signs, how, config.seed, shown, stored, everyone, None, effects
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "action .* is never taken in these episodes")  # the account has said so
            found, result = _explained(study, table.test, asked, table=table.report.as_dict())
    return _written(run, study, found, result, table.test)


def stated_effects(config: ExplainConfig, phi: FeatureMap, everyone: Batch) -> tuple[StatedEffect, ...]:
    """What ``--effect`` says, by the names of a table whose episodes are ``everyone``.

    Raises:
        ValueError: an entry cannot be read, names what is not there, speaks of an action that nobody took, or says more
            of an effect that another speaks of.
    """
    action_names, taken = everyone.action_names, set(everyone.actions[everyone.mask].tolist())
    column = config.columns.actions[0] if len(config.columns.actions) == 1 else ""
    names = tuple(dict.fromkeys((*phi.features, *phi.of)))
    read: dict[tuple[str, str], StatedEffect] = {}
    for text in config.effects:
        one = read_effect(text, action_names, names, column)
        never = [name for name in (action_names[0], one.action) if action_names.index(name) not in taken]
        if never:
            raise ValueError(
                f"--effect: {text!r} cannot be compared with the table, action {never[0]!r} was never taken"
            )
        if (one.action, one.outcome) in read:
            raise ValueError(f"--effect: {text!r} and {read[one.action, one.outcome].text!r} are of the same effect")
        read[one.action, one.outcome] = one
    return tuple(read.values())


def held_to(config: FitConfig, effects: Sequence[StatedEffect], observed: Sequence[str]) -> FitConfig:
    """The configuration of a fit whose outcome model, a law alone, is held to effects.

    Raises:
        ValueError: an effect is on what is computed of features, and not on one that is observed.
    """
    for one in effects:
        if one.outcome not in observed:
            raise ValueError(
                f"--enforce-effects: {one.outcome!r} is computed; state the effect of what it is computed of"
            )
    law = replace(config.outcome.autoregression, effects=tuple(one.bounds for one in effects))
    return replace(config, model="ar", outcome=replace(config.outcome, autoregression=law))


def _explained(study: Study, test: Batch, asked: dict[str, Any], **known: Any) -> tuple[Fit, Result]:
    """Fit, and judge by held-out episodes and what else is known (:func:`irl.evaluation.judged`)."""
    found = fit(study)
    with study.stages.stage("evaluation"):
        result = judged(study, found, test, config=asked, **known)
    return found, replaced(result, seconds=study.stages.seconds)


def _written(run: Run, study: Study, found: Fit, result: Result, test: Batch, expert: Expert | None = None) -> Result:
    """Leave a whole folder, and print what was found."""
    seen = [name for name in found.feature_map.of if read_outcome(name, (name,)).columns]  # not what an action is
    what_if = imagine(found.model.model, test, outcomes=found.feature_map.read or seen)
    decisions = shown_decisions(test, most_shown(result, test))
    whys = why(found.agent, found.posterior, test, decisions)
    page = render(report_of(result, what_if, whys=whys, held_out=test.n_steps, date=run.date))
    run.write(result, page, found, study.train, test, expert)
    remove(run.folder)
    show(report_of(result, folder=run.folder), console())
    return result


def _plain(value: Any) -> Any:
    """A configuration in JSON's own types."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value
