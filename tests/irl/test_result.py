"""The result file: same content back, no NaN, and one clear error for whatever is not a result."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from sample_result import sample_fields, sample_result
from small_batches import batch_of

from irl.result import result as records
from irl.result.codec import Record
from irl.result.result import AllowedActions, Foreseen, IdentifiedRanges, Result
from irl.result.windows import WindowChange

SAMPLE = sample_result()
KEYS = """
    schema verdict features weights intervals identified_set mu_expert margin rounds accuracy returns model_error
    seconds
    seed config versions estimates kappa true_weights table headline stop identification sampler episodes
    members windows gammas limit mu_recovered mu_gap agreement likelihood quality allowed mixture
    exchange_rates effects overlap uninterpreted habits simulated_habits consequences
"""


@pytest.mark.parametrize("d", [1, 2, 15])
def test_what_is_written_is_read_back(d: int, tmp_path: Path) -> None:
    result = sample_result(d)
    for name in ("result.json", "again.json"):
        result.write(tmp_path / name)
    assert Result.read(tmp_path / "result.json") == result
    assert (tmp_path / "result.json").read_bytes() == (tmp_path / "again.json").read_bytes()


def test_the_file_has_exactly_the_documented_keys(tmp_path: Path) -> None:
    sample_result().write(tmp_path / "result.json")
    content = json.loads((tmp_path / "result.json").read_text())
    assert list(content) == KEYS.split()
    assert content["schema"] == 1
    assert list(content["rounds"][0]) == [*("k", "w", "mu", "lambda", "margin", "seconds", "agreement", "changed")]
    assert [one["lambda"] for one in content["rounds"][:2]] == [None, 0.5]
    assert set(content["accuracy"]) == {"cirl", "cloning", "majority", "repeat_last_action", "ceiling"}
    assert set(content["returns"]) == {"expert", "cirl", "cloning", "random", "never", "always"}
    assert content["returns"]["expert"] == {"mean": -3.41, "standard_error": 0.061}
    assert content["identified_set"]["ranges"]["side_effects"] == list(SAMPLE.identified_set.ranges["side_effects"])
    assert content["weights"] == [-0.29, -0.71]
    assert set(content["windows"][0]) == {"from", "to", "decisions", "patients", "found", "changes"}
    assert [window["to"] for window in content["windows"]] == [5, 11, None]
    assert content["windows"][2]["found"] is None
    assert set(content["gammas"]) == {"chosen", "tried", "decisions", "patients"}


def test_arrays_become_plain_numbers() -> None:
    fields = sample_fields() | {"margin": np.float32(0.5), "seed": np.int64(3), "config": {"w": np.array([1.5, np.pi])}}
    result = Result(**fields)
    assert (type(result.margin), result.margin) == (float, 0.5)
    assert (type(result.seed), result.seed) == (int, 3)
    assert result.config == {"w": [1.5, float(np.pi)]}
    assert result.weights == (-0.29, -0.71)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": (-0.29, -0.2)}, r"the weight of side_effects, -0\.2, must lie in its interval"),
        ({"weights": (-0.3, -0.3, -0.4)}, "weights must be 2 numbers, one per feature, got 3"),
        ({"weights": (float("nan"), 1.0)}, r"Result\.weights\[0\] must be finite, got nan"),
        ({"margin": float("inf")}, r"Result\.margin must be finite"),
        ({"margin": -0.1}, r"Result\.margin: Expected float >= 0\.0, got -0\.1"),
        ({"margin": "0.1"}, r"Result\.margin: Expected float, got str"),
        ({"seed": True}, r"Result\.seed: Expected int, got bool"),
        ({"seed": 1.5}, r"Result\.seed: Expected int, got float"),
        ({"features": ("a", "a")}, "features must be distinct"),
        ({"features": "ab"}, r"Result\.features: Expected array, got str"),
        ({"intervals": {"tumour_volume": (-0.4, -0.2)}}, "intervals must have one"),
        ({"intervals": dict.fromkeys(SAMPLE.features, (0, -1))}, r"intervals\[tumour_volume\] must be \[low"),
        (
            {"intervals": dict.fromkeys(SAMPLE.features, (0,))},
            r"Result\.intervals\[\.\.\.\]: Expected array of length 2",
        ),
        ({"true_weights": (1.0,)}, "true_weights must be 2 numbers"),
        ({"estimates": {"posterior": (1.0,)}}, r"estimates\.posterior must be 2 numbers"),
        ({"mu_expert": (1.0,)}, "mu_expert must be 2 numbers"),
        ({"returns": {}}, "returns must be of expert, cirl"),
        ({"accuracy": {"cirl": 1.0}}, r"Result\.accuracy: Object missing required field cloning"),
        ({"kappa": {"mean": 1, "interval": (0, 1), "mode": 1}}, r"Result\.kappa: Object contains unknown field mode"),
        ({"config": {"a": {"b": [1.0, float("nan")]}}}, r"Result\.config\.a\.b\[1\] must be finite"),
        ({"config": {"a": object()}}, r"Result\.config: a object is nothing that JSON can hold"),
        ({"mixture": {"policies": [], "mu": (0, 0), "distance": 0}}, "shares must add up to 1, got 0"),
        (
            {"mixture": records.PolicyMixture((records.MixedPolicy(0, 1, (1,)),), (0, 0), 0)},
            r"mixture\.policies\[0\]\.w must be 2 numbers",
        ),
        ({"rounds": None}, r"Result\.rounds: Expected array, got null"),
        (
            {"identified_set": structs.replace(SAMPLE.identified_set, not_identifiable={"age": "constant"})},
            r"names no feature: \['age'\]",
        ),
        ({"mu_gap": 0.1}, "mu_gap must be 0.042"),
        ({"mu_gap": None}, "mu_recovered and mu_gap belong together"),
        ({"mu_recovered": None}, "mu_recovered and mu_gap belong together"),
        ({"mu_recovered": (1.0, 2.0, 3.0)}, "mu_recovered must be 2 numbers"),
    ],
)
def test_a_broken_promise_is_one_clear_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Result(**(sample_fields() | changes))


TRIED = SAMPLE.gammas.tried[0]
LEVEL = SAMPLE.habits.contexts[0].levels[0]
SAID = Foreseen(-0.4, 0.01, 0.8)


@pytest.mark.parametrize(
    ("record", "changes", "message"),
    [
        (SAMPLE.accuracy, {"cirl": 83.5}, r"Accuracy\.cirl: Expected float <= 1\.0, got 83\.5"),
        (SAMPLE.accuracy, {"cirl": None}, r"Accuracy\.cirl: Expected float, got null"),
        (SAMPLE.kappa, {"interval": (2.0, 0.5)}, r"Kappa\.interval must be \[low, high\]"),
        (SAMPLE.rounds[3], {"lambda_": 1.2}, r"LoopRound\.lambda: Expected float <= 1\.0, got 1\.2"),
        (SAMPLE.identified_set, {"tolerance": -1.0}, r"tolerance: Expected float >= 0\.0"),
        (SAMPLE.allowed, {"forced": 4322}, "allowed: forced, limited and decisions must rise"),
        (SAMPLE.allowed, {"limited": 120001}, "allowed: forced, limited and decisions must rise"),
        (SAMPLE.allowed, {"forced": -1}, r"AllowedActions\.forced: Expected int >= 0, got -1"),
        (SAMPLE.allowed, {"rules": ()}, r"allowed\.rules must hold a rule"),
        (TRIED, {"gamma": 1.2}, r"GammaTried\.gamma: Expected float <= 1\.0, got 1\.2"),
        (TRIED, {"log_likelihood": 0.1}, r"log_likelihood: Expected float <= 0\.0"),
        (TRIED, {"difference": 0.1}, r"difference: Expected float <= 0\.0"),
        (TRIED, {"standard_error": -0.1}, r"standard_error: Expected float >= 0\.0"),
        (TRIED, {"weights": (-1.0,)}, "one interval for each weight"),
        (TRIED, {"intervals": ((0, -1), (0, 1))}, r"GammaTried\.intervals\[0\] must be \[low, high\]"),
        (SAID, {"mean": 0.1}, r"Foreseen\.mean: Expected float <= 0\.0, got 0\.1"),
        (SAID, {"standard_error": -0.1}, r"Foreseen\.standard_error: Expected float >= 0\.0"),
        (SAID, {"standard_error": "?"}, r"Foreseen\.standard_error: Expected float, got str"),
        (SAMPLE.likelihood, {"decisions": 0}, r"HeldOutLikelihood\.decisions: Expected int >= 1, got 0"),
        (SAMPLE.agreement, {"episodes": (5,)}, "agreement: one number for each step"),
        (SAMPLE.agreement, {"episodes": (), "cirl": (), "cloning": ()}, "agreement: one number for each step"),
        (SAMPLE.agreement, {"episodes": (5, 4, 0)}, r"AgreementOverTime\.episodes\[2\]: Expected int >= 1"),
        (SAMPLE.agreement, {"cirl": (1.2, 0.5, 0.5)}, r"AgreementOverTime\.cirl\[0\]: Expected float <= 1\.0"),
        (SAMPLE.habits, {"contexts": ()}, "habits: there must be a context"),
        (SAMPLE.habits, {"actions": ("a", "b", "c")}, "habits: every level must have 3 logits"),
        (LEVEL, {"logits": (0.0,)}, "habits: none yet: one count, logit and chance and two intervals for"),
        (LEVEL, {"logits": (0.0, 0.0)}, "habits: none yet: a number lies outside its interval"),
        (LEVEL, {"chances": (0.5, 0.5)}, "habits: none yet: a number lies outside its interval"),
        (LEVEL, {"chances": (1.5, 0.5)}, r"HabitLevel\.chances\[0\]: Expected float <= 1\.0"),
        (SAMPLE.quality, {"weights": 0}, r"Quality\.weights: Expected int >= 1, got 0"),
        (SAMPLE.quality, {"noise": -0.1}, r"Quality\.noise: Expected float >= 0\.0, got -0\.1"),
        (SAMPLE.quality, {"value": 0.06}, "above the limit, which stops a run"),
        (SAMPLE.quality, {"systematic": 0.06}, "above the limit, which stops a run"),
        (SAMPLE.quality, {"sampled": float("nan")}, r"Quality\.sampled must be finite"),
        (WindowChange(0.1, (0.0, 0.2)), {"interval": (0.2, 0.0)}, r"Change\.interval must be \[low, high\]"),
        (SAMPLE.windows[0].found, {"intervals": ((-1, 0),)}, "one interval for each weight"),
        (SAMPLE.windows[0].found, {"intervals": ((-1, -2), (0, 1))}, r"intervals\[0\] must be \[low, high\]"),
        (SAMPLE.windows[0].found, {"kappa_interval": (2, 1)}, r"kappa_interval must be \[low, high\]"),
        (SAMPLE.windows[0], {"from_": 5, "to": 4}, "from 5 to 4 holds no step"),
        (SAMPLE.windows[0], {"decisions": -1}, r"TimeWindow\.decisions: Expected int >= 0, got -1"),
        (SAMPLE.windows[2], {"changes": (WindowChange(0, (0, 0)),)}, "one change for each weight"),
    ],
)
def test_a_record_is_what_its_types_say(record: Record, changes: dict[str, Any], message: str) -> None:
    assert structs.replace(record) == record
    with pytest.raises(ValueError, match=message):
        structs.replace(record, **changes)


@pytest.mark.parametrize("name", ["schema", "minimum", "tolerance", "ranges", "lambda"])
def test_a_feature_may_have_any_name(name: str, tmp_path: Path) -> None:
    fields = sample_fields(1)
    fields["features"] = (name,)
    fields["intervals"] = {name: (0.0, 1.0)}
    fields["identified_set"] = IdentifiedRanges({name: (0.0, 1.0)}, 0.0, 0.1, {name: "constant"})
    Result(**fields).write(tmp_path / "result.json")
    assert Result.read(tmp_path / "result.json") == Result(**fields)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is not JSON"),
        ('{"schema": 1, "feat', "is not JSON"),
        (json.dumps(SAMPLE.as_dict())[:-9], "is not JSON"),
        ("[]", "is not a result of schema 1"),
        ("{}", "is not a result of schema 1"),
        ('{"schema": 2}', "is not a result of schema 1"),
        ('{"schema": 1, "weights": []}', "Object missing required field verdict"),
    ],
)
def test_another_file_is_refused_by_name(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        Result.read(path)
    assert str(path) in str(caught.value)


def test_an_older_file_lacks_keys_and_nan_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    later = ("allowed", "gammas", "mixture", "windows")
    path.write_text(json.dumps({key: value for key, value in SAMPLE.as_dict().items() if key not in later}))
    assert Result.read(path) == structs.replace(SAMPLE, allowed=None, gammas=None, mixture=None, windows=())
    path = tmp_path / "result.json"
    sample_result().write(path)
    path.write_text(path.read_text().replace('"margin": 3.25', '"margin": NaN'))
    with pytest.raises(ValueError, match=r"result\.json is not JSON: NaN is no finite number"):
        Result.read(path)


def test_what_a_run_may_not_know_and_versions() -> None:
    assert SAMPLE.mu_gap == pytest.approx(0.03 * np.sqrt(2))
    none = dict.fromkeys(("mu_recovered", "mu_gap", "agreement", "likelihood"))
    assert [getattr(structs.replace(SAMPLE, **none), name) for name in none] == [None] * 4
    versions = records.installed_versions()
    assert list(versions) == ["python", "numpy", "torch", "gymnasium", "stable_baselines3", "cirl_gym"]
    assert versions["numpy"] == np.__version__


def test_what_is_recorded_of_rules():
    batch = replace(
        batch_of([0, 1], [1]), allowed=np.array([[[True, False], [True, True]], [[False, True], [True, True]]])
    )
    found = AllowedActions.of(["a rule"], batch)
    assert found == AllowedActions(("a rule",), 3, 2, 2)
    assert found.sentence == (
        "Some action was forbidden in 2 of 3 decisions; one action alone was allowed in 2, which say nothing "
        "of the weights."
    )
    assert "never comes up in the 3 decisions" in AllowedActions(("a rule",), 3, 0, 0).sentence
    assert AllowedActions.of([], replace(batch, allowed=None)) is None
