"""A run, from what is asked to its folder, which is whole or has no result: the one road behind ``cirl demo``,
``cirl explain`` and :func:`irl.explain`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace as replaced

from agents.expert import Expert
from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.habits import PREVIOUS
from cirl_gym.data.known import known_names, with_known
from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.data.outcomes import Sought, changing, read_outcome, with_lags
from cirl_gym.data.rules import masked
from cirl_gym.files import StoredParts
from cirl_gym.outcome_models.stated import StatedEffect, read_effect
from cirl_gym.tables.columns import TableColumns, TableOptions
from cirl_gym.tables.read import HELD_OUT, PreparedTable, check_enough, split_groups
from irl.commands.options import ExplainOptions, fit_config
from irl.evaluation import judged
from irl.pipeline import Fit, fit, simulate
from irl.processes import one_thread
from irl.report.drawing import imagine
from irl.report.run import report_of
from irl.report.section import render
from irl.report.why import most_shown
from irl.result.result import installed_versions
from irl.run import Run
from irl.settings import FARTHEST, FEW_ACTIONS, HABIT, DemoConfig, ExplainConfig, FitConfig
from irl.stages import stages
from irl.stored_stages import identity_of, remove, unfinished
from irl.studies.why import shown_decisions, why
from irl.study import Study


@dataclass(frozen=True)
class Episodes:
    """Episodes to learn from, to choose by and to be held out: no patient is in two of them."""

    train: Batch
    validation: Batch
    test: Batch
    table: dict[str, Any] | None = None
    """What was found and repaired when the table was read; None where they were batches before."""

    def __post_init__(self) -> None:
        parts = [set(one.groups) for one in self.splits]
        if both := sorted((parts[0] & parts[1]) | (parts[0] & parts[2]) | (parts[1] & parts[2])):
            raise ValueError(f"the splits share patients, {both[0]!r} among them: held-out patients are others")
        check_enough(parts[0], len(set.union(*parts)))

    @classmethod
    def of_table(cls, table: PreparedTable) -> Episodes:
        """Those of a table, and the account of it."""
        return cls(table.train, table.validation, table.test, table.report.as_dict())

    @property
    def splits(self) -> tuple[Batch, Batch, Batch]:
        """All three."""
        return self.train, self.validation, self.test


def asked_of(
    options: ExplainOptions, columns: TableColumns, how: TableOptions, signs: Mapping[str, int], name: str = ""
) -> ExplainConfig:
    """What the options ask for, of a table of the file ``name`` or of batches that have such columns.

    Raises:
        ValueError: an option is not possible; the message names it.
    """
    stated, chosen = (options.effect, options.enforce_effects), fit_config(options)
    return ExplainConfig(columns, how, signs, options.seed, chosen, options.weighed.outcomes, *stated, name)


def demo(config: DemoConfig, out: Path) -> Run:
    """Recover a simulated expert's preferences and compare them with the truth.

    Raises:
        ValueError: an option is out of its range.
        OSError: the folder cannot be written to.
    """
    asked = in_json({"command": "demo", **asdict(config)})
    run, identity = Run.begin(out, asked), identity_of(asked, installed_versions())
    with one_thread(), stages(9 + config.fit.more_stages) as shown, unfinished(out, identity, shown) as stored:
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
            Batch.together((simulated.train, simulated.validation)) if config.fit.folds else None,
        )
        return _finished(run, study, simulated.test, asked, simulated.expert, simulated=simulated)


def episodes_of_batches(batches: Sequence[Batch], config: ExplainConfig) -> Episodes:
    """One batch, split by patient as a table is, or the three splits as they are.

    Raises:
        ValueError: there are neither one nor three, they do not fit together, or share patients.
    """
    if len(batches) not in (1, 3):
        raise ValueError(f"give one batch, or three: to learn from, to choose by, held out; got {len(batches)}")
    whole = Batch.together(batches)
    if len(batches) == 1:
        batches = [
            whole.take(part).trimmed()
            for part in split_groups(whole.groups, np.random.default_rng([config.seed, 0]), *HELD_OUT)
        ]
    asked_for = (config.outcomes, config.columns.features)
    lagged = (with_lags(batch, changing(*asked_for)) for batch in batches)
    known = (with_known(batch, known_names(*asked_for)) for batch in lagged)
    train, validation, test = (masked(batch, config.fit.forbid) for batch in known)
    return Episodes(train, validation, test)


def explain(
    episodes: Episodes, config: ExplainConfig, out: Path, *, quiet: bool = False, model: OutcomeModel | None = None
) -> Run:
    """Recover the preferences behind decisions; ``quiet`` shows no progress.

    An outcome model that is given is taken as it is. Nothing says whether it is the same as that of a run that was
    stopped, so that nothing of such a run is stored.

    Raises:
        ValueError: nothing can be learnt from these episodes, or an option does not fit them.
        OSError: the folder cannot be written to.
    """
    config = for_actions(config, episodes.train.n_actions)  # what is stored is what was done
    asked = in_json({"command": "explain", **asdict(config), "outcomes": weighed(config, episodes.train)})
    run, identity = Run.begin(out, asked, model), identity_of(asked, installed_versions(), episodes.splits)
    study = study_of(config, episodes.train, episodes.validation, Batch.together(episodes.splits))
    total = 7 + study.config.more_stages + (study.sought is not None)
    with one_thread(), stages(total, quiet=quiet) as shown, unfinished(out, identity, shown) as stored:
        study = replace(study, stages=shown, stored=stored if model is None else StoredParts(), model=model)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "action .* is never taken in these episodes")  # the account has said so
            return _finished(run, study, episodes.test, asked, table=episodes.table)


def for_actions(config: ExplainConfig, n_actions: int) -> ExplainConfig:
    """The same for so many actions: with more than a few, usual habits depend on the last one alone."""
    if config.fit.habit == HABIT and n_actions > FEW_ACTIONS:
        return replace(config, fit=replace(config.fit, habit=(PREVIOUS,)))
    return config


def weighed(config: ExplainConfig, train: Batch) -> tuple[str, ...]:
    """Names of the outcomes that are weighed: those asked for, or all features that are not static."""
    return config.outcomes or tuple(name for name in train.features if name not in config.columns.static)


def study_of(config: ExplainConfig, train: Batch, validation: Batch, everyone: Batch) -> Study:
    """What is learnt from a table's episodes, and how.

    Args:
        config: what is asked, settled by :func:`for_actions`.
        train: episodes to learn from.
        validation: episodes to choose by.
        everyone: episodes whose decisions are judged by cross-fitting over their patients.

    Raises:
        ValueError: an outcome or an effect that is stated does not fit the episodes, or these are too long to plan to
            their ends.
    """
    names = weighed(config, train)
    feature_map, sought = outcomes_of(train, names)
    signs = np.array([config.signs.get(name, 0) for name in names], dtype=np.float64)
    # A fold needs a few patients to be judged and a few to learn from.
    folds = min(config.fit.folds, len(set(everyone.groups)) // 3)
    how = replace(config.fit.whole(everyone.horizon), folds=folds if folds > 1 else 0)
    check_plans(how, everyone.horizon)
    effects = stated_effects(config, feature_map, everyone)
    if config.enforce_effects:
        how = held_to(how, effects, train.features)
    seen = (train, validation, feature_map, signs, how, config.seed)
    return Study(*seen, everyone=everyone, effects=effects, sought=sought)


def check_plans(config: FitConfig, steps: int) -> None:
    """Raise ValueError where plans would have to be searched to the far ends of episodes of so many steps."""
    if config.solver == "successor" and config.horizon is None and steps > FARTHEST:
        raise ValueError(
            f"episodes have up to {steps:,} steps, and plans to their ends would take hours: --horizon 20 looks 20 "
            f"steps ahead at every decision, or --max-steps {FARTHEST} cuts what is longer"
        )


def outcomes_of(train: Batch, outcomes: Sequence[str]) -> tuple[FeatureMap, int | None]:
    """The outcomes, and the place of the one whose limit is sought, between extremes of its column until it is found.

    Raises:
        ValueError: an outcome is not observed nor computed of what is.
    """
    read = [read_outcome(name, train.features) for name in outcomes]
    place = next((i for i, outcome in enumerate(read) if isinstance(outcome, Sought)), None)
    if place is not None:
        sought = read[place]
        assert isinstance(sought, Sought)
        values = train.obs[train.seen][:, train.features.index(sought.column)]
        between = (sought.at(float(np.quantile(values, share))) for share in np.linspace(0.5, 0.9, len(read) + 1))
        read[place] = next((one for one in between if one not in read), sought.at(float(values.mean())))
    return FeatureMap.from_batch(train, read), place


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


def _finished(
    run: Run, study: Study, test: Batch, asked: dict[str, Any], expert: Expert | None = None, **known: Any
) -> Run:
    """Fit, judge by held-out episodes and what else is known (:func:`irl.evaluation.judged`), leave a whole folder."""
    found = fit(study)
    with study.stages.stage("evaluation"):
        result = judged(study, found, test, config=_as_found(asked, found), **known)
    result = replaced(result, seconds=study.stages.seconds)
    seen = [name for name in found.feature_map.of if read_outcome(name, (name,)).columns]  # not what an action is
    what_if = imagine(found.model.model, test, outcomes=found.feature_map.read or seen)
    decisions = shown_decisions(test, most_shown(result, test))
    whys = why(found.agent, found.posterior, test, decisions)
    page = render(report_of(result, what_if, whys=whys, held_out=test.n_steps, date=run.date))
    run.write(result, page, found, study.train, test, expert)
    remove(run.folder)
    return run


def _as_found(asked: dict[str, Any], found: Fit) -> dict[str, Any]:
    """What was asked, with signs by the names of the outcomes that were weighed."""
    names = {} if found.limit is None else {found.limit.asked: found.limit.outcome}
    if not names:
        return asked
    return {**asked, "signs": {names.get(name, name): sign for name, sign in asked["signs"].items()}}


def in_json(value: Any) -> Any:
    """A configuration in JSON's own types; a number that is not finite becomes a text."""
    if isinstance(value, Mapping):
        return {str(key): in_json(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [in_json(entry) for entry in value]
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value
