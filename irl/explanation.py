"""``irl.explain``, ``irl.load`` and ``irl.compare``: the commands of these names, for a notebook."""

from __future__ import annotations

import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pandas as pd

from agents import MuSource, Solver
from cirl_gym.data.batch import Batch
from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.data.outcomes import read_outcome
from cirl_gym.files import held, write_text
from cirl_gym.outcome_models.inputs import Kind
from cirl_gym.tables.columns import TableOptions
from irl import whole_run
from irl.commands.arguments import ModelArguments, SolverArguments, TableArguments, TimeArguments, WeighedArguments
from irl.commands.options import ExplainOptions
from irl.commands.prepared import asked_table, signs_of
from irl.processes import engine
from irl.report.drawing import WIDTH, imagine
from irl.report.notebook import notebook
from irl.report.plots import plot_course, plot_radar, plot_weights, unread
from irl.report.run import report_of
from irl.report.why import report_of_why
from irl.result.result import Result
from irl.run import Run
from irl.stored_stages import remove
from irl.studies import comparison
from irl.studies.comparison import Comparison
from irl.studies.why import Why, find_decision

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Names: TypeAlias = str | Sequence[str]
GROUPS = {
    "columns": TableArguments,
    "weighed": WeighedArguments,
    "outcome_model": ModelArguments,
    "policies": SolverArguments,
    "times": TimeArguments,
}
"""Fields of :class:`ExplainOptions` that are groups of options."""


class Explanation:
    """What a run found. Weights are a finding only as far as :attr:`verdict` lets them be; plots and summary say so.

    Made by :func:`explain` or :func:`load`; each part is read when it is first asked for.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        """The folder of the run: models, episodes, and policies of the weights."""

    @property
    def result(self) -> Result:
        """Every number that was found, field by field the keys of ``result.json``."""
        return self.run.result

    @property
    def verdict(self) -> str:
        """Whether outcomes add anything to habit: "beyond habit", "nothing beyond habit" or "not identifiable"."""
        return self.result.verdict

    @property
    def headline(self) -> tuple[str, ...]:
        """What was found in plain sentences, the verdict first."""
        return self.result.headline

    @property
    def weights(self) -> pd.Series[float]:
        """``[d]`` reward weights by outcome, posterior medians; :meth:`summary` says which are no finding, and why."""
        index = pd.Index(self.result.features, name="feature")
        return pd.Series(list(self.result.weights), index=index, name="weight", dtype="float64")

    def summary(self) -> pd.DataFrame:
        """One row an outcome: its weight, the 90 % interval, what explains equally well, and why it is no finding.

        The last column is empty where the weight may be read. With simulated experts the truth is a column too.
        """
        result = self.result
        columns: dict[str, Any] = {"weight": list(result.weights)}
        for title, ranges in (("weight", result.intervals), ("equally well", result.identified_set.ranges)):
            added = " 90%" if title == "weight" else ""
            columns[f"{title} lower{added}"] = [ranges[name][0] for name in result.features]
            columns[f"{title} upper{added}"] = [ranges[name][1] for name in result.features]
        if result.true_weights:
            columns["truth"] = list(result.true_weights)
        why_not = unread(result)
        columns["no finding"] = [why_not.get(name, "") for name in result.features]
        return pd.DataFrame(columns, index=pd.Index(result.features, name="feature"))

    def plot_weights(self, ax: Axes | None = None) -> Axes:
        """Weights with intervals, and what explains equally well; grey where the verdict lets none be read.

        Raises:
            ValueError: the verdict would let weights be read, but no outcome does.
        """
        return plot_weights(self.result, ax or _axes(1.6 + 0.42 * len(self.result.features)))

    def plot_radar(self, ax: Axes | None = None) -> Axes:
        """Sizes of weights as a radar, with intervals; ``ax`` must be polar.

        Raises:
            ValueError: it is not, or fewer than three weights may be read.
        """
        return plot_radar(self.result, ax or _axes(WIDTH, projection="polar"))

    def plot_course(
        self, patient: str, feature: str | None = None, *, step: int | None = None, ax: Axes | None = None
    ) -> Axes:
        """The observed course of a held-out patient, and what is expected if one action is taken from then on.

        Args:
            patient: id of the episode, or of a patient who has one alone.
            feature: what is drawn; default: what the first outcome is computed of.
            step: of the first action that is imagined, from 0; default: the middle of the episode.
            ax: where to draw; default: new axes.

        Raises:
            ValueError: there is no such patient, step or feature; the message names what there is.
        """
        batch = self.run.test
        seen = [column for name in self.result.features for column in read_outcome(name, batch.features).columns]
        feature = feature or next((name for name in seen if name in batch.features), batch.features[0])
        if feature not in batch.features:
            raise ValueError(f"feature: {feature!r} was not observed; the features are {', '.join(batch.features)}")
        row, chosen = find_decision(batch, str(patient), step or 0)
        at = int(batch.lengths[row]) // 2 if step is None else chosen
        return plot_course(imagine(self.run.model, batch, outcomes=[feature], decision=(row, at)), ax or _axes(3.4))

    def why(self, patient: str, step: int) -> Why:
        """Why a decision of a held-out patient was made (:meth:`irl.run.Run.why`); a notebook shows it in words."""
        found = self.run.why(str(patient), step)
        return replace(found, notebook=partial(notebook, report_of_why(self.result, found), "why"))

    def report(self, path: str | Path) -> Path:
        """Write the page, a file that needs no other and no network; returns its path."""
        with self.run.whole("report.html"):
            page = (self.run.folder / "report.html").read_text(encoding="utf-8")
        write_text(path, page)
        return Path(path)

    def save(self, folder: str | Path) -> Path:
        """Write the folder that ``cirl explain`` writes, which :func:`load` and the other commands take.

        Raises:
            ValueError: another command works in the folder, or the run is there already.
            OSError: the folder cannot be written to.
        """
        with held(Path(folder)):
            return self.run.copy(Path(folder)).folder

    def __repr__(self) -> str:
        return f"<Explanation: {self.verdict}; outcomes {', '.join(self.result.features)}>"

    def _repr_html_(self) -> str:
        return notebook(report_of(self.result), "weights")


def explain(
    data: str | Path | pd.DataFrame | Batch | Sequence[Batch],
    *,
    id: str | None = None,
    time: str | None = None,
    action: Names = (),
    features: Names = (),
    static: Names = (),
    group: str | None = None,
    end: Literal["terminated", "truncated"] | None = None,
    last_row: Literal["observation", "drop_action"] = "observation",
    duplicates: Literal["error", "first", "last", "mean"] = "error",
    lag: Names = (),
    actions: Names = (),
    as_written: bool = False,
    missing_values: Names = (),
    valid: Mapping[str, tuple[float, float]] | Sequence[tuple[str, float, float]] = (),
    drop_bad_patients: bool = False,
    max_steps: int | None = None,
    outcomes: Names = (),
    lower_is_better: Names = (),
    sign: Mapping[str, int] | Names = (),
    gamma: float = 0.99,
    model: Kind | OutcomeModel | None = None,
    model_config: str | Path | None = None,
    members: int = 1,
    bootstrap: bool = False,
    relative: Names = (),
    solver: Solver = "successor",
    mu: MuSource | None = None,
    iterations: int | None = None,
    steps: int | None = None,
    quality_limit: float | None = None,
    windows: Sequence[int] = (),
    choose_gamma: Sequence[float] = (),
    horizon: int | None = None,
    habit: Names = (),
    forbid: Names = (),
    effect: Names = (),
    enforce_effects: bool = False,
    seed: int = 0,
    quick: bool = False,
    jobs: int = 1,
    fresh: bool = False,
    out: str | Path | None = None,
    progress: bool = True,
) -> Explanation:
    """Say what the experts behind a table of decisions were trading off: ``cirl explain``, with its options.

    Args:
        data: a CSV or Parquet file, a data frame of one row per episode and time step, a batch, or three of them: to
            learn from, to choose by, and held out. One batch or a table is split by patient.
        id: column that names the episode, such as a stay; of these and other options about columns, what is not given
            is found by the content, or asked for.
        time: column of the time step.
        action: column of the action, or several.
        features: columns of what was observed; default: all others that are numbers.
        static: features that do not change within an episode; they are observed and never weighed.
        group: column that says whose episode it is.
        end: how episodes end, if no column says it.
        last_row: what the last row of an episode is, where not all agree.
        duplicates: what to do with differing rows of one (id, time).
        lag: features that describe the time after the row's action.
        actions: all values of the action, in their order.
        as_written: take ids, actions and levels of habits as they are written.
        missing_values: what stands for a missing reading.
        valid: by feature (low, high); readings outside are counted and taken out.
        drop_bad_patients: go on without patients of whom a row cannot be used.
        max_steps: end episodes, truncated, after so many steps.
        outcomes: what is weighed: features, or what is computed of them; default: all features that are not static.
            The limit of one is found where it is a question mark: ``Below(potassium, ?)``.
        lower_is_better: outcomes whose weights are negative, as is known.
        sign: by outcome -1 or +1 where the sign of a weight is known.
        gamma: discount factor, 0 to 1.
        model: outcome model; default: "crn", with ``quick`` "ar". One of your own, of the features in their order, is
            taken as it is (:class:`cirl_gym.data.outcome_model.OutcomeModel`), and no file will hold it.
        model_config: the tuning.json of ``cirl tune``.
        members: outcome models that are fitted; intervals hold what they differ in.
        bootstrap: fit each of them to patients drawn with replacement.
        relative: features that change in proportion to their size (networks only).
        solver: who finds policies.
        mu: where their feature expectations come from.
        iterations: gradient steps of each training of "drqn" and "mu_learning".
        steps: imagined steps of each training of "recurrent_ppo".
        quality_limit: by how much plans may promise more than is reached, in ranges, before the run stops.
        windows: first steps of windows of time whose weights are found one by one.
        choose_gamma: discount factors of which held-out decisions choose one.
        horizon: how many actions a decision looks ahead, at most, and is planned anew at the next step; default: to the
            end of the longest episode.
        habit: what habits depend on: "previous", "previous2", columns; or "none".
        forbid: what the experts could not do, as "ACTION when CONDITION".
        effect: what is known of an action's effect, as "ACTION raises NAME".
        enforce_effects: hold the outcome model to these.
        seed: everything that is drawn.
        quick: a first look in a fraction of the time, with wider errors.
        jobs: processes, each with one thread, for what needs nothing of each other (folds of patients, members,
            discount factors); -1: as many as there are processors.
        fresh: begin anew, even if a run in ``out`` was stopped before and could go on.
        out: a folder for the run, as ``cirl explain --out`` leaves it; default: none (:meth:`Explanation.save`).
        progress: show how far the run has come.

    Raises:
        ValueError: the data cannot be used as they are, or an option is not possible; the message names column, id and
            row, or the option.
        OSError: a file cannot be read, or the folder not written to.
    """
    given = dict(locals())
    for name in ("data", "out", "progress"):
        del given[name]
    own = None if model is None or isinstance(model, str) else model
    if own is not None:
        given["model"] = None
    source = Path(data) if isinstance(data, (str, Path)) else data
    batches = (source,) if isinstance(source, Batch) else source
    with _spelt_as_in_python(), engine("loky", jobs), _folder(out) as folder:
        options = _options(given, folder)
        if isinstance(batches, (Path, pd.DataFrame)):
            table, how, signs = asked_table(options, batches)
            name = batches.name if isinstance(batches, Path) else ""
            config = whole_run.asked_of(options, table.report.columns, how, signs, name)
            episodes = whole_run.Episodes.of_table(table)
        elif isinstance(batches, Sequence) and batches and all(isinstance(one, Batch) for one in batches):
            columns = options.columns.of_batch(batches[0])
            config = whole_run.asked_of(options, columns, TableOptions(), signs_of(options.weighed, columns))
            episodes = whole_run.episodes_of_batches(batches, config)
        else:
            raise ValueError(f"data must be a path, a pandas frame, a Batch or three, got {type(data).__name__}")
        if fresh:
            remove(folder)
        found = Explanation(whole_run.explain(episodes, config, folder, quiet=not progress, model=own))
    if out is None:
        weakref.finalize(found, shutil.rmtree, found.run.folder, ignore_errors=True)
    return found


def load(folder: str | Path) -> Explanation:
    """What a run found, from the folder that ``cirl explain``, ``cirl demo`` or :meth:`Explanation.save` left.

    Raises:
        ValueError: it is not the folder of a whole run; the message names the file and what is wrong.
    """
    found = Explanation(Run(Path(folder)))
    _ = found.run.settings, found.result
    return found


def compare(a: Explanation | str | Path, b: Explanation | str | Path, *, rescale: bool = False) -> Comparison:
    """Weights of A minus those of B, with 90 % intervals (:func:`irl.studies.comparison.compare`).

    Args:
        a: what a run found, or its folder.
        b: the same of another, independent run that weighs the same features.
        rescale: compare even if the ranges of a feature have less than 90 % in common.

    Raises:
        ValueError: both are the same run, or the runs cannot be compared.
    """
    runs = [one.run if isinstance(one, Explanation) else Run(Path(one)) for one in (a, b)]
    if runs[0].folder.resolve() == runs[1].folder.resolve():
        raise ValueError(f"a and b are the same run: {runs[0].folder}")
    with _spelt_as_in_python():
        return comparison.compare(runs[0].preferences, runs[1].preferences, rescale=rescale)


def _options(given: Mapping[str, Any], table: Path) -> ExplainOptions:
    """The command's options, from arguments of the same names."""
    values: dict[str, Any] = {
        name: (value,) if name in _SEVERAL and isinstance(value, str) else value for name, value in given.items()
    }
    if isinstance(values["valid"], Mapping):
        values["valid"] = [(name, *ends) for name, ends in values["valid"].items()]
    if isinstance(values["sign"], Mapping):
        values["sign"] = [f"{name}={value:+d}" for name, value in values["sign"].items()]
    if values["model_config"] is not None:
        values["model_config"] = Path(values["model_config"])
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    groups = {name: kind(**{one.name: values.pop(one.name) for one in fields(kind)}) for name, kind in GROUPS.items()}
    return ExplainOptions(table, **groups, **values)


_ALL = [one for kind in (ExplainOptions, *GROUPS.values()) for one in fields(kind)]
_SEVERAL = {one.name for one in _ALL if one.default == ()}
_NAMES = {one.name for one in _ALL} | {"rescale"}


@contextmanager
def _spelt_as_in_python() -> Iterator[None]:
    """Messages name an option as an argument: ``--lower-is-better`` becomes ``lower_is_better``."""

    def spelt(match: re.Match[str]) -> str:
        name = match[1].replace("-", "_")
        return name if name in _NAMES else match[0]

    try:
        yield
    except ValueError as error:
        raise ValueError(re.sub(r"--([a-z][a-z-]*[a-z])", spelt, str(error))) from error


@contextmanager
def _folder(out: str | Path | None) -> Iterator[Path]:
    """Where the run is written: the folder that was named, held meanwhile, or one that is removed where it fails."""
    if out is not None:
        with held(Path(out)):
            yield Path(out)
        return
    folder = Path(tempfile.mkdtemp(prefix="cirl-"))
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _axes(height: float, projection: str | None = None) -> Axes:
    """New axes of the page's width; ``height`` in inches."""
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(WIDTH, height), layout="constrained", subplot_kw={"projection": projection})[1]
