"""``irl.explain``, ``irl.load`` and ``irl.compare``: what the commands find, for a notebook."""

from __future__ import annotations

import ast
import dataclasses
import html
import inspect
import json
import re
from dataclasses import fields

import matplotlib
import numpy as np
import pandas as pd
import pytest
from five_state_model import FiveStateModel, every_course
from matplotlib import pyplot
from msgspec.structs import replace
from sample_result import sample_result
from tiny_run import ICU_TABLE, icu_stays, make_the_command_line_tiny

import irl
from cirl_gym import Batch
from cirl_gym.interop.long_table import to_long_table
from cirl_gym.tables.columns import infer_columns
from cirl_gym.tables.read import HELD_OUT, split_groups
from irl.commands.cli import main
from irl.commands.options import ExplainOptions
from irl.explanation import GROUPS, Explanation
from irl.report.plots import plot_radar, plot_weights
from irl.settings import FitConfig
from irl.whole_run import check_plans

TWO = ("wbc", "lactate")
ASKED = {"outcomes": list(TWO), "lower_is_better": "lactate", "seed": 1, "progress": False}


@pytest.fixture(autouse=True)
def headless(monkeypatch):
    """Nothing is shown, and no figure is left behind."""
    matplotlib.use("Agg")
    make_the_command_line_tiny(monkeypatch)
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def batch() -> Batch:
    frame = icu_stays(40)
    read, _ = Batch.from_dataframe(frame, infer_columns(frame, features=("temperature", *TWO)))
    return dataclasses.replace(read, action_names=("none", "drug"))


@pytest.fixture(scope="module")
def found(batch) -> Explanation:
    """From a batch."""
    with pytest.MonkeyPatch.context() as patched:
        make_the_command_line_tiny(patched)
        return irl.explain(batch, **ASKED)


@pytest.fixture(scope="module")
def saved(found, tmp_path_factory):
    """The folder that it is saved in."""
    return found.save(tmp_path_factory.mktemp("saved") / "run")


def numbers(explanation: Explanation) -> dict:
    """All that was found; not what a clock and a table say, which names an action by its column too."""
    text = (explanation.run.folder / "result.json").read_text()
    told = json.loads(text.replace("action none", "none").replace("action drug", "drug"))
    del told["seconds"], told["table"], told["config"]["columns"]
    for one in told["rounds"]:
        del one["seconds"]
    return told


class TestData:
    def test_a_frame_in_any_order_gives_what_the_batch_gives_and_not_a_word_is_said(self, found, batch, capsys):
        shuffled = to_long_table(batch).sample(frac=1, random_state=1)
        assert numbers(irl.explain(shuffled, **ASKED)) == numbers(found)
        assert not any(capsys.readouterr())

    @pytest.mark.slow
    def test_where_a_row_stands_in_the_file_changes_no_key_of_the_result(self, tmp_path):
        """But for the lines of the file that are named, how many were put in order, and what a clock says."""
        told, frame = [], icu_stays()
        for folder, rows in (("a", frame), ("b", frame.sample(frac=1, random_state=1))):
            path = tmp_path / folder / "table.csv"
            path.parent.mkdir()
            rows.to_csv(path, index=False)
            out = path.parent / "run"
            asked = ["--outcomes", *TWO, "--windows", "3", "--choose-gamma", "0.5", "0.99"]
            assert main(["explain", str(path), *asked, "--out", str(out)]) == 0
            content = json.loads(re.sub(r"line \d+", "line", (out / "result.json").read_text()))
            for one in content["rounds"]:
                del one["seconds"]
            del content["seconds"]
            order = {key: content["table"]["episodes"].pop(key) for key in ("regrouped", "resorted")}
            account = content["table"]["account"]
            content["table"]["account"] = [line for line in account if not re.search("were (grouped|sorted)", line)]
            told.append((content, {each.name: each.read_bytes() for each in out.glob("*.npz")}, order))
        (one, files, none), (other, others, some) = told
        assert set(none.values()) == {0} != set(some.values())
        assert other == one
        assert others == files

    @pytest.mark.slow
    def test_the_command_a_path_and_splits_do_so_too(self, found, batch, tmp_path):
        path = tmp_path / "table.csv"
        to_long_table(batch).to_csv(path, index=False)
        parts = split_groups(batch.groups, np.random.default_rng([1, 0]), *HELD_OUT)
        splits = [batch.take(part).trimmed() for part in parts]
        assert numbers(irl.explain(splits, **ASKED)) == numbers(found)
        order = ["none", "drug"]  # a file does not say which action is the first
        asked = ["--outcomes", *TWO, "--lower-is-better", "lactate", "--seed", "1", "--out", str(tmp_path / "run")]
        assert main(["explain", str(path), *asked, "--actions", *order]) == 0
        by_call = irl.explain(str(path), **ASKED, actions=order, out=tmp_path / "again")
        by_command = irl.load(tmp_path / "run")
        assert numbers(by_command) == numbers(by_call)
        assert by_command.weights.equals(found.weights)
        assert by_call.result.table == by_command.result.table
        assert {p.name for p in (tmp_path / "run").iterdir()} == {p.name for p in (tmp_path / "again").iterdir()}
        assert (tmp_path / "again" / "config.json").read_bytes() == (tmp_path / "run" / "config.json").read_bytes()

    def test_splits_that_share_a_patient_and_what_is_no_data_are_refused(self, batch):
        n = len(batch)
        assert len(set(batch.groups[-3:])) == 1
        splits = [batch.take(np.array(rows)) for rows in (range(n - 2), [n - 2], [n - 1])]
        with pytest.raises(ValueError, match=f"the splits share patients, '{batch.groups[-1]}' among them"):
            irl.explain(splits, **ASKED)
        with pytest.raises(ValueError, match="one batch, or three: to learn from, to choose by, held out; got 2"):
            irl.explain([batch, batch], **ASKED)
        for nothing in ([1, 2], {}, None, []):
            with pytest.raises(ValueError, match="data must be a path, a pandas frame, a Batch or three, got"):
                irl.explain(nothing)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"outcomes": "wbx"}, "^outcomes: 'wbx' is not a feature"),
            ({"lower_is_better": "temp"}, "^lower_is_better: 'temp' is not an outcome"),
            ({"sign": {"wbc": -1}, "lower_is_better": "wbc", "members": 0}, "members"),
            ({"sign": {"wbc": 1}, "lower_is_better": "wbc"}, "^sign: 'wbc' is given two different signs"),
            ({"enforce_effects": True}, "^enforce_effects: there is nothing to enforce; state an effect by effect$"),
            ({"max_steps": 3}, "^max_steps says how a table is read, and a batch is read already"),
            ({"bootstrap": True}, "bootstrap draws patients anew for each of several models; give members 5, say"),
        ],
    )
    def test_messages_name_options_as_python_does(self, batch, options, message):
        with pytest.raises(ValueError, match=message) as refused:
            irl.explain(batch, **options)
        assert "--" not in str(refused.value)

    def test_nobody_plans_to_the_ends_of_long_episodes_unasked(self, batch, monkeypatch):
        most = batch.horizon - 1
        monkeypatch.setattr("irl.whole_run.FARTHEST", most)
        told = f"^episodes have up to {most + 1} steps, .*: horizon 20 looks 20 .*, or max_steps {most} cuts"
        with pytest.raises(ValueError, match=told):
            irl.explain(batch, **ASKED)
        check_plans(FitConfig(), most)
        check_plans(FitConfig(horizon=20), most + 1)

    def test_it_takes_the_options_of_the_command_with_their_defaults(self):
        own = inspect.signature(irl.explain).parameters
        command = [one for one in fields(ExplainOptions) if one.name not in (*GROUPS, "table", "out")]
        command += [one for kind in GROUPS.values() for one in fields(kind)]
        assert {one.name: one.default for one in command} == {
            name: one.default for name, one in own.items() if name not in ("data", "out", "progress")
        }


class TestFolders:
    def test_what_is_saved_is_what_is_loaded(self, found, saved):
        again = irl.load(saved)
        assert numbers(again) == numbers(found)
        assert again.result == found.result
        pd.testing.assert_frame_equal(again.summary(), found.summary())
        names = {path.name for path in found.run.folder.iterdir()}
        assert {path.name for path in saved.iterdir()} == names > {"result.json", "report.html", "config.json"}
        assert all((saved / name).read_bytes() == (found.run.folder / name).read_bytes() for name in names)
        with pytest.raises(ValueError, match="the run is in "):
            again.save(saved)
        assert irl.load(saved).result == found.result

    def test_the_page_is_the_runs(self, found, tmp_path):
        page = found.report(tmp_path / "page.html")
        assert page.read_bytes() == (found.run.folder / "report.html").read_bytes()

    def test_a_run_of_many_actions_is_read_with_the_habits_that_it_has(self, batch):
        drawn = np.random.default_rng(0).integers(5, size=batch.actions.shape)
        many = dataclasses.replace(batch, actions=np.where(batch.mask, drawn, 0), action_names=tuple("abcde"))
        found = irl.explain(many, **ASKED, horizon=2)
        assert found.result.config["fit"]["habit"] == ["previous"]
        one = irl.load(found.run.folder).why(found.run.test.ids[0], 0)
        assert one.courses.shape[:2] == (5, 2)

    def test_no_folder_is_left_behind(self, batch, tmp_path, monkeypatch):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        with pytest.raises(ValueError, match="outcomes"):
            irl.explain(batch, outcomes=["nothing", "at all"])
        assert not list(tmp_path.iterdir())
        monkeypatch.setattr("irl.whole_run.explain", lambda episodes, config, folder, **how: irl.Run(folder))
        one = irl.explain(batch, **ASKED)
        assert one.run.folder.is_dir()
        del one
        assert not list(tmp_path.iterdir())

    def test_what_is_no_run_is_not_loaded(self, tmp_path):
        with pytest.raises(ValueError, match="is not the folder of a whole run"):
            irl.load(tmp_path)

    def test_two_runs_are_compared(self, found, saved, demo_run, tmp_path):
        with pytest.raises(ValueError, match="a and b are the same run"):
            irl.compare(saved, irl.load(saved))
        with pytest.raises(ValueError, match="the runs weigh different features"):
            irl.compare(found, demo_run)
        other = irl.compare(found, irl.load(saved))  # two folders of one batch: no checksum tells it
        table = other.summary()
        assert list(table.index) == list(TWO)
        np.testing.assert_allclose(table["difference"], 0)
        np.testing.assert_allclose(table["probability above"], 0.5)
        assert not table["clear"].any()
        read = found.verdict == "beyond habit"
        said = table["no finding"]
        assert [name for name in TWO if said[name]] == [name for name in TWO if not read or name in other.uninterpreted]


class TestWhatItSays:
    def test_numbers_are_those_of_the_result(self, found):
        result, table = found.result, found.summary()
        assert found.weights.to_dict() == dict(zip(TWO, result.weights, strict=True))
        assert (found.verdict, found.headline) == (result.verdict, result.headline)
        pd.testing.assert_series_equal(table["weight"], found.weights)
        for name in TWO:
            row = table.loc[name]
            assert (row["weight lower 90%"], row["weight upper 90%"]) == result.intervals[name]
            assert (row["equally well lower"], row["equally well upper"]) == result.identified_set.ranges[name]
        one = found.why(found.run.test.ids[0], 0)
        assert f"<h3>Why this decision: {one.episode}, step 0." in one._repr_html_()
        assert "<table>" in one._repr_html_()
        assert "notebook" not in repr(one)

    def test_what_is_no_finding_says_why_in_the_words_of_the_terminal(self, monkeypatch, saved):
        explanation = irl.load(saved)
        nothing = replace(explanation.result, verdict="nothing beyond habit", headline=("Nothing: it is so.", "More."))
        monkeypatch.setitem(vars(explanation.run), "result", nothing)
        assert set(explanation.summary()["no finding"]) == {"Nothing: it is so."}
        shown = explanation._repr_html_()
        assert shown.index("Nothing: it is so.") < shown.index("More.") < shown.index("they are no finding")
        assert "<td>" not in shown
        told = replace(nothing, verdict="beyond habit", uninterpreted={"lactate": "unknown <b>"})
        monkeypatch.setitem(vars(explanation.run), "result", told)
        assert explanation.summary()["no finding"].to_dict() == {"wbc": "", "lactate": "unknown <b>"}
        shown = explanation._repr_html_()
        assert "not interpreted" in shown
        assert "<b>" not in shown


def lines(axes, label: str) -> list:
    return [line for line in axes.get_lines() if line.get_label() == label]


class TestPlots:
    def test_weights(self):
        result = replace(sample_result(5), uninterpreted={"temperature": "unknown"})
        axes = pyplot.figure().add_subplot()
        assert plot_weights(result, axes) is axes
        names = [name for name in result.features if name != "temperature"]
        shown = dict(zip(result.features, result.weights, strict=True))
        (dots,) = lines(axes, "weight")
        np.testing.assert_allclose(dots.get_xdata(), [shown[name] for name in names])
        drawn = [tuple(line.get_xdata()) for line in lines(axes, "90 % interval")]
        assert drawn == [tuple(result.intervals[name]) for name in names]
        bars = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches]
        np.testing.assert_allclose(bars, [result.identified_set.ranges[name] for name in names])
        assert axes.get_title("left").replace("\n", " ") == f"{result.headline[0]} Not interpreted: temperature."
        assert dots.get_color() == "#0072B2"

    def test_weights_that_are_no_finding_are_grey_and_said_to_be_none(self):
        result = replace(sample_result(5), verdict="nothing beyond habit", headline=("Nothing.",))
        for plot, projection in ((plot_weights, None), (plot_radar, "polar")):
            axes = plot(result, pyplot.figure().add_subplot(projection=projection))
            assert axes.get_title("left") == "Nothing.\nThese weights are no finding."
            assert lines(axes, "size of the weight" if projection else "weight")[0].get_color() == "#A6A6A6"
            assert len(lines(axes, "90 % interval")) == 5

    def test_radar(self):
        result = sample_result(5)
        low, high = result.weights[0] - 1, result.weights[0] + 2
        result = replace(result, intervals={**result.intervals, result.features[0]: (low, high)})
        axes = plot_radar(result, pyplot.figure().add_subplot(projection="polar"))
        (around,) = lines(axes, "size of the weight")
        np.testing.assert_allclose(around.get_xdata(), [*(2 * np.pi * np.arange(5) / 5), 0])
        np.testing.assert_allclose(around.get_ydata()[:5], np.abs(result.weights))
        spokes = [tuple(line.get_ydata()) for line in lines(axes, "90 % interval")]
        assert spokes[0] == (0.0, max(-low, high))  # on both sides of zero
        others = [tuple(sorted(map(abs, result.intervals[name]))) for name in result.features[1:]]
        assert [tuple(ends) for ends in spokes[1:]] == others
        with pytest.raises(ValueError, match="polar axes"):
            plot_radar(result, pyplot.figure().add_subplot())
        with pytest.raises(ValueError, match="a radar needs 3 weights that may be read, got 2"):
            plot_radar(sample_result(2), pyplot.figure().add_subplot(projection="polar"))

    def test_course(self, found):
        test = found.run.test
        row = int(test.lengths.argmax())
        axes = found.plot_course(test.ids[row], "wbc", step=2)
        (observed,) = lines(axes, "observed")
        column = test.features.index("wbc")
        np.testing.assert_allclose(observed.get_ydata(), test.obs[row, :3, column])
        states = found.run.model.encode(test.take(np.array([row])))[:, 2]
        expected = found.run.model.predict(states)[0, :, column]
        paths = [line.get_ydata() for line in axes.get_lines() if len(line.get_ydata()) == 9]
        np.testing.assert_allclose([path[1] for path in paths], expected, rtol=1e-6)
        own = pyplot.figure().add_subplot()
        assert found.plot_course(test.ids[row], ax=own) is own
        assert own.get_ylabel() == "wbc"
        with pytest.raises(ValueError, match="feature: 'x' was not observed; the features are temperature"):
            found.plot_course(test.ids[row], "x")
        with pytest.raises(ValueError, match="patient 'nobody' is not among those held out"):
            found.plot_course("nobody")

    def test_new_axes_where_none_are_given(self, found):
        assert len({found.plot_weights().figure.number, found.plot_course(found.run.test.ids[0]).figure.number}) == 2


def test_the_notebook_runs_from_its_first_cell_to_its_last_and_holds_no_outputs(tmp_path, monkeypatch):
    """As a notebook does: the last expression of a cell is shown. Quick settings are made tiny here."""
    notebook = json.loads((ICU_TABLE.parent / "explain.ipynb").read_text())
    icu_stays(40).to_csv(tmp_path / ICU_TABLE.name, index=False)
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    shown = []
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
        *statements, last = ast.parse("".join(cell["source"])).body
        exec(compile(ast.Module(statements, []), "notebook", "exec"), names)
        assert isinstance(last, ast.Expr)
        shown.append(eval(compile(ast.Expression(last.value), "notebook", "eval"), names))
    first, table, axes, *_, verdict = shown
    assert first.result.headline[0] in html.unescape(first._repr_html_())
    assert list(table.index) == ["temperature", "wbc", "lactate"]
    assert axes.get_title("left")
    assert verdict == first.verdict
    assert (tmp_path / "report.html").stat().st_size > 10_000


@pytest.mark.slow
def test_an_outcome_model_of_ones_own_is_taken_as_it_is():
    batch = every_course(4)
    found = irl.explain(batch, lower_is_better=batch.features, model=FiveStateModel(), seed=1, progress=False)
    assert found.result.model_error.factual == 0  # it is exact
    assert found.why(found.run.test.ids[0], 0).actions
