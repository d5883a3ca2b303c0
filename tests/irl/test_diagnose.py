"""``cirl diagnose`` from a run's folder to its files, what it says, and what it does with a folder that is no run's."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs
from outcome_batches import linear_system, random_model
from shown import printed
from tiny_run import icu_stays, tiny_explain

from agents.policies.policy import ConstantPolicy
from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.diagnostics import EffectiveSize
from cirl_gym.outcome_models.model import EnsembleModel, RowWeights
from irl.commands import explain as commands
from irl.commands.cli import main
from irl.commands.diagnose import command as diagnose_command
from irl.commands.options import DiagnoseOptions
from irl.report.diagnosis import report_of_diagnosis, verdicts
from irl.report.section import render
from irl.studies.diagnosis import Diagnosis, ErrorsAhead, Material, Propensity, diagnose

HOSTILE = "<script>alert(1)</script> [red]"
THREE = ("temperature", "wbc", "lactate")


@pytest.fixture(scope="module")
def of_demo(demo_run, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    return diagnose_command(DiagnoseOptions(demo_run, out, patients=40)), out


@pytest.fixture(scope="module")
def table_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explain")
    frame = icu_stays()
    commands.explain(frame, tiny_explain(frame, THREE, outcomes=("wbc", "lactate")), folder)
    return folder


@pytest.fixture(scope="module")
def of_table(table_run):
    return diagnose_command(DiagnoseOptions(table_run)), table_run


def with_ratio(found: Diagnosis, factual: float, flipped: float) -> Diagnosis:
    """The same diagnosis with other ratios one step ahead, from as many predictions as a verdict needs."""

    def changed(errors: ErrorsAhead, ratio: float) -> ErrorsAhead:
        model = tuple(replace(error, n=1000) for error in errors.model)
        return replace(errors, model=model, ratio=(ratio, *errors.ratio[1:]))

    counterfactual = replace(found.counterfactual, flipped=changed(found.counterfactual.flipped, flipped))
    return structs.replace(found, factual=changed(found.factual, factual), counterfactual=counterfactual)


def test_a_simulated_run_is_diagnosed_on_fresh_patients(of_demo, demo_run, tmp_path):
    found, out = of_demo
    written = json.loads((out / "diagnostics.json").read_text())
    assert written == found.as_dict()
    assert written["episodes"]["test"] == 40
    assert written["normaliser"] == {"tumour": [0.0, 50.0], "side_effects": [0.0, 15.0]}
    for errors in (written["factual"], written["counterfactual"]["flipped"]):
        assert len(errors["model"]) == len(errors["oracle"]) == len(errors["ratio"]) == 6
        for model, oracle, ratio in zip(errors["model"], errors["oracle"], errors["ratio"], strict=True):
            assert model["n"] == oracle["n"] > 0
            assert ratio == pytest.approx(model["pooled"] / oracle["pooled"])
    # The noise of the simulator, on rows that nobody clipped: whoever gets below has seen the answers.
    assert written["counterfactual"]["flipped"]["oracle"][0]["raw"][0] == pytest.approx(0.1, abs=0.03)
    assert set(written["support"]) == {"always 0", "always 1", "random", "recovered"}
    assert set(written["counterfactual"]["courses"]) == {"0", "1"}
    assert written["propensity"]["true"]["n"] == written["propensity"]["estimated"]["n"]
    assert [entry["level"] for entry in written["intervals"]] == [0.5, 0.8, 0.9, 0.95]
    assert written["members"] == 1
    again = diagnose_command(DiagnoseOptions(demo_run, tmp_path, patients=40))
    for name in ("diagnostics.json", "diagnostics.html"):
        assert (tmp_path / name).read_bytes() == (out / name).read_bytes(), name
    assert again == found
    other = diagnose_command(DiagnoseOptions(demo_run, tmp_path, patients=40, seed=1, steps=2))
    assert other.factual.model != again.factual.model[:2]


def test_a_table_is_diagnosed_on_the_episodes_held_out(of_table):
    found, folder = of_table
    test = Batch.load(folder / "test.npz")
    train = Batch.load(folder / "batch.npz")
    assert not set(test.groups) & set(train.groups)
    assert found.episodes == {"train": len(train), "test": len(test)}
    assert found.counterfactual is found.factual.oracle is found.propensity.true is None
    assert found.factual.model[0].n == found.factual.unchanged[0].n == test.n_steps
    assert (found.features, found.outcomes) == (THREE, ("wbc", "lactate"))
    assert len(found.factual.model[0].raw) == 3
    assert len(found.factual.model[0].scaled) == 2
    assert {path.name for path in folder.iterdir()} >= {"diagnostics.json", "diagnostics.html", "result.json"}
    said = " ".join(verdicts(found))
    assert "cannot be checked on a table" in said
    assert "as the data allow" not in said


def test_a_good_word_is_only_said_where_the_numbers_bear_it(of_demo):
    found, _ = of_demo
    good, bad = (" ".join(verdicts(with_ratio(found, *ratios))) for ratios in ((1.04, 1.09), (1.06, 1.2)))
    for what in ("that were taken", "that were not taken"):
        assert f"Predictions for actions {what} are as good as the data allow" in good
        assert f"Predictions for actions {what} are off by more than noise" in bad
    rare = replace(found.factual, model=tuple(replace(error, n=99) for error in found.factual.model))
    few = structs.replace(found, factual=rare)
    assert "that were taken" not in " ".join(verdicts(few))
    off = structs.replace(found, ends=replace(found.ends, expected=40.0, observed=10, deviation=5.0))
    assert "Ends of episodes do not come as often as predicted" in " ".join(verdicts(off))
    near = structs.replace(found, ends=replace(found.ends, expected=19.0, observed=10, deviation=5.0))
    assert "Ends of episodes come as often as predicted" in " ".join(verdicts(near))

    def said(error, *shares, n=1000):
        entries = [
            replace(entry, free=share, n_free=n, standard_error=error)
            for entry, share in zip(found.intervals, shares, strict=True)
        ]
        return " ".join(verdicts(structs.replace(found, intervals=tuple(entries))))

    right = said(0.001, 0.52, 0.78, 0.92, 0.96)
    assert (
        "Intervals hold what they promise: of the outcomes that no limit is near, 52.0 % inside 50 %, 78.0 %" in right
    )
    # Right at 90 % and wrong elsewhere is wrong.
    assert "Intervals are too wide at 50 and 80 %: " in said(0.01, 0.62, 0.87, 0.91, 0.93)
    assert "Intervals are too narrow at 95 %, too wide at 50 %: " in said(0.01, 0.62, 0.81, 0.9, 0.91)
    assert "Intervals hold what they promise" in said(0.03, 0.45, 0.75, 0.85, 0.9)
    assert "Intervals" not in said(0.03, 0.45, 0.75, 0.85, 0.9, n=99)
    # Ratios are unknown where the oracle makes no error.
    error = found.factual.model[0]
    assert ErrorsAhead.of((error,), (replace(error, pooled=0.0),)).ratio == (None,)
    assert ErrorsAhead.of((error,), (replace(error, pooled=error.pooled / 2),)).ratio == (pytest.approx(2.0),)
    assert ErrorsAhead.of((error,)).ratio is None
    assert np.isfinite(error.pooled)


def test_the_page_holds_the_numbers_and_no_markup_of_strangers(of_table):
    found, _ = of_table
    named = structs.replace(
        found,
        features=(HOSTILE, *found.features[1:]),
        outcomes=(HOSTILE, "lactate"),
        normaliser={HOSTILE: (0.0, 1.0), "lactate": (0.0, 2.0)},
        actions=(HOSTILE, "1"),
        support={HOSTILE: found.support["random"]},
    )
    page = render(report_of_diagnosis(named))
    text = printed(report_of_diagnosis(named), width=200)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "[red]" in text
    assert page.rstrip().endswith("</html>")
    assert all(f"{found.factual.model[0].pooled:.4f}" in shown for shown in (page, text))
    assert "http" not in page.replace("http-equiv", "")
    assert render(report_of_diagnosis(named)) == page


@pytest.mark.parametrize(
    "lost", ["result.json", "config.json", "batch.npz", "outcome_model.npz", "agent.npz", "test.npz"]
)
def test_a_folder_that_lacks_a_file_is_one_clear_error(table_run, tmp_path, lost, capsys):
    folder = tmp_path / "run"
    shutil.copytree(table_run, folder)
    (folder / lost).unlink()
    assert main(["diagnose", str(folder)]) == 2
    told = capsys.readouterr().err
    assert all(part in told for part in ("cirl: error:", "is not the folder of a whole run", lost))
    assert "Traceback" not in told


def test_other_bad_folders_and_options_are_one_clear_error(demo_run, tmp_path, capsys):
    assert main(["diagnose", str(tmp_path / "nothing")]) == 2
    assert "nothing is not the folder of a whole run" in capsys.readouterr().err
    folder = tmp_path / "run"
    shutil.copytree(demo_run, folder)
    config = json.loads((folder / "config.json").read_text())
    for content, said in (
        ({**config, "command": "sing"}, "not the configuration of cirl demo or cirl explain"),
        ({name: value for name, value in config.items() if name != "kappa"}, "expert.npz lacks 'kappa'"),
        ({**config, "parameters": {**config["parameters"], "order": 0}}, "order must be a whole number"),
        ([], "not the configuration"),
    ):
        (folder / "config.json").write_text(json.dumps(content))
        with pytest.raises(ValueError, match="is not the folder of a whole run") as error:
            diagnose_command(DiagnoseOptions(folder))
        assert said in str(error.value)
    shutil.copy(demo_run / "config.json", folder / "config.json")
    (folder / "outcome_model.npz").write_bytes((demo_run / "outcome_model.npz").read_bytes()[:100])
    with pytest.raises(ValueError, match=r"outcome_model\.npz"):
        diagnose_command(DiagnoseOptions(folder))
    for option in ({"patients": 1}, {"steps": 0}, {"seed": -1}):
        with pytest.raises(ValueError, match="patients must be at least 2"):
            diagnose_command(DiagnoseOptions(demo_run, **option))


@pytest.mark.parametrize("kind", ["crn", "ensemble"])
def test_networks_ensembles_and_three_actions_are_diagnosed(kind):
    model = EnsembleModel([random_model("ar"), random_model("crn")]) if kind == "ensemble" else random_model("crn")
    train, test = linear_system(40, seed=0, noise=0.3), linear_system(20, seed=1, noise=0.3)
    policies = {"low": ConstantPolicy(1, 3, np.random.default_rng(0))}
    material = Material(model, train, test, FeatureMap.from_batch(train), 12, policies)
    names = []
    found = diagnose(material, None, np.random.default_rng(0), lambda name: nullcontext(names.append(name)))
    assert names == ["errors", "probes", "propensity", "calibration", "support"]
    parts = ["window", "memory", "representation"] if kind == "crn" else ["state"]
    assert list(found.probes) == parts
    assert found.members == (2 if kind == "ensemble" else 1)
    assert len(found.propensity.estimated.by_action) == 3
    # Actions are drawn evenly here: none is ever rare, and nothing tells them.
    assert found.propensity.estimated.any < 0.05
    assert found.propensity.quality.accuracy < 0.5
    # A model with random weights is neither good nor sure of the right things.
    assert "no better than" in " ".join(verdicts(found))
    assert json.dumps(found.as_dict(), allow_nan=False)
    assert render(report_of_diagnosis(found))
    said = " ".join(verdicts(found))
    assert said.count("rests on") == 2 + 1
    assert "The comparison of action low with action no rests on " in said
    assert "RMSN" not in said
    weights = RowWeights(1.0, 0.5, 0.1, 7.0, 20, 1000)
    told = " ".join(verdicts(structs.replace(found, row_weights=(weights, weights))))
    assert "RMSN clipped the weights of 40 of 2,000 training rows; weighed, they are worth 50.0 % of" in told


def test_the_action_that_lacks_overlap_is_named(of_table):
    found, _ = of_table
    estimated = replace(
        found.propensity.estimated, any=0.3, by_action=(0.0, 0.3), effective=(EffectiveSize(40, 400, 25.2, 111.0),)
    )
    lacking = structs.replace(
        found, actions=("wait", "give"), propensity=Propensity(estimated, found.propensity.quality, None)
    )
    said = " ".join(verdicts(lacking))
    assert "At 30.0 % of the steps some action had an estimated probability below 0.05 (action give at 30.0 %)" in said
    assert (
        "The comparison of action give with action wait rests on 400 decisions, 40 of them for give, worth 25 under"
        in said
    )
    assert "under inverse propensity weights and 111 where both were possible (overlap weights)." in said
    assert "25" in printed(report_of_diagnosis(lacking), width=200)
    never = replace(estimated, effective=(EffectiveSize(0, 400, None, None),))
    lacking = structs.replace(lacking, propensity=Propensity(never, found.propensity.quality, None))
    assert "Actions give and wait cannot be compared" in " ".join(verdicts(lacking))
    assert render(report_of_diagnosis(lacking))


def test_where_only_one_action_occurs_nothing_is_said_of_overlap():
    train, test = (
        replace(one, actions=np.zeros_like(one.actions)) for one in (linear_system(40, 0), linear_system(20, 1))
    )
    policies = {"low": ConstantPolicy(1, 3, np.random.default_rng(0))}
    material = Material(random_model("crn"), train, test, FeatureMap.from_batch(train), 12, policies)
    found = diagnose(material, None, np.random.default_rng(0), nullcontext)
    assert found.propensity is None
    assert found.probes == {}
    report = report_of_diagnosis(found)
    for said in (" ".join(verdicts(found)), printed(report, width=200), render(report)):
        assert "not measurable: only one action occurs" in said
        assert "classifier does not clearly tell" not in said
    assert json.loads(json.dumps(found.as_dict()))["propensity"] is None
