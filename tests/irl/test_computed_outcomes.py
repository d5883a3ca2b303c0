"""Computed outcomes as a user chooses them, whole runs that weigh them, and how a report speaks of them.

Their values are in tests of cirl_gym.data.
"""

from __future__ import annotations

import json
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from small_tables import stays
from tiny_run import POSTERIOR, icu_stays, make_the_command_line_tiny, tiny_explain, tiny_fit

from agents.successor.agent import SuccessorAgent
from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.outcomes import Above, Below, Outside
from cirl_gym.outcome_models.store import load_model
from cirl_gym.tables import TableColumns
from cirl_gym.wrappers.learned_reward import LearnedReward, load_reward
from irl.commands import explain as commands
from irl.commands.cli import main
from irl.commands.compare import command as compare_command
from irl.commands.diagnose import command as diagnose_command
from irl.commands.explain import known_signs
from irl.commands.options import CompareOptions, DiagnoseOptions
from irl.preferences.identified_set import not_identifiable
from irl.result.result import Result
from irl.result.sentences import expectation_sentences, most_understated, per, seen_sentences
from irl.settings import ExplainConfig, chosen_outcomes

FEATURES = ("temperature", "wbc", "lactate", "heart_rate")
OUTCOMES = ("Outside(temperature, 36, 38)", "Change(lactate)", "wbc")
WEIGHED = ("Outside(x, -1, 1)", "effort")
OBSERVED = ("age", "x", "y", "x before")


def phi_of(*outcomes: str, of: tuple[str, ...] = OBSERVED) -> FeatureMap:
    """Ranges from 0 to 1."""
    return FeatureMap(outcomes, np.zeros(len(outcomes)), np.ones(len(outcomes)), of)


class TestChoice:
    COLUMNS = TableColumns("id", "t", "a", ("age", "x", "y"), static=("age",))

    def test_names_come_in_one_spelling_and_have_signs(self) -> None:
        given = ("y", "Outside(x,36,38.0)", "Change(x)", "Product(age, y)")
        config = ExplainConfig(self.COLUMNS, outcomes=given, signs={"Outside( x, 36, 38)": -1})
        assert config.outcomes == ("y", "Outside(x, 36, 38)", "Change(x)", "Product(age, y)")
        assert dict(config.signs) == {"Outside(x, 36, 38)": -1}
        assert ExplainConfig(self.COLUMNS).outcomes == ()
        names = chosen_outcomes(self.COLUMNS, ("y", "Outside(x, 36, 38)", 'Change("x")'))
        found = known_signs(names, ["Outside(x,36,38)"], ["Change(x)=+1", "y=-1"])
        assert found == {"Outside(x, 36, 38)": -1, "Change(x)": 1, "y": -1}
        with pytest.raises(ValueError, match=r"--sign: 'Above\(x, 1\)' is not an outcome; the outcomes are y, Outside"):
            known_signs(names, [], ["Above(x, 1)=-1"])

    @pytest.mark.parametrize(
        ("outcomes", "message"),
        [
            (("y", "Above(z, 1)"), r"--outcomes: 'z' \(in Above\(z, 1\)\) is not a feature; the features are"),
            (("y", "Product(x, z)"), r"--outcomes: 'z' \(in Product\(x, z\)\) is not a feature"),
            (("y", "Change(age)"), r"--outcomes: 'Change\(age\)' is static; no action changes it"),
            (("y", "Product(age, age)"), "is static"),
            (("y", "above(x, 1)"), r"'above\(x, 1\)' is not a feature; .* is written Outside"),
            (("Above(x, 1)", "Above(x, 1.0)"), r"a name is there twice: Above\(x, 1\), Above\(x, 1\)"),
            (("y", "Outside(x, 3, 2)"), "the lower end of the range"),
            (("Above(x, 1)",), r"a trade-off needs two outcomes, got Above\(x, 1\)"),
        ],
    )
    def test_what_is_refused(self, outcomes: tuple[str, ...], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            ExplainConfig(self.COLUMNS, outcomes=outcomes)


def test_what_no_data_can_tell_is_judged_by_the_values() -> None:
    batch, _ = Batch.from_dataframe(stays(*[6] * 9))  # x within 0..86, y within -6..800
    reasons = not_identifiable(batch, ("Above(x, 90)", "Outside(x, 20, 200)", "Below(x, 20)", "y", "Above(x, -1)", "x"))
    assert reasons["Above(x, 90)"] == "constant: every outcome is 0, so its weight would only count steps"
    # Below 20 alone x is outside; x + 1 moves with x.
    assert "moves exactly with 'Below(x, 20)'" in reasons["Outside(x, 20, 200)"]
    assert set(reasons) == {"Above(x, 90)", "Outside(x, 20, 200)", "Below(x, 20)", "Above(x, -1)", "x"}
    assert not_identifiable(batch, ("x", "Below(x, 20)", "y")) == {}
    with pytest.raises(ValueError, match="needs 'x before'"):
        not_identifiable(batch, ("Change(x)", "y"))


class TestSentences:
    PHI = FeatureMap(("Outside(x, 36, 38)", "Change(x)", "y"), np.zeros(3), np.array([2.0, 4, 5]), OBSERVED)

    def test_what_a_weight_is_per_and_what_was_only_seen(self) -> None:
        said = "per 2 units outside 36..38", "per 4 units of change", "per 5 units"
        assert tuple(per(self.PHI, i) for i in range(3)) == said
        assert per(phi_of("Above(x, 12)"), 0) == "per 1 units above 12"
        assert per(phi_of("Below(x, 9.5)"), 0) == "per 1 units below 9.5"
        assert seen_sentences(self.PHI) == [
            "Of 4 observed features 3 go into the 3 outcomes that are weighed; the others are only seen and predicted."
        ]
        assert seen_sentences(phi_of("x", "y"))[0].startswith("Of 4 observed features 2 are weighed as outcomes; ")
        assert seen_sentences(phi_of("Change(x)", of=("x", "x before"))) == []
        noise = np.array([0.0, 0.5, 3.0, 0.0])
        (said,) = expectation_sentences(self.PHI, noise)
        assert said.endswith("leaves out what chance adds on average: at most 0.2 to Outside(x, 36, 38).")
        assert expectation_sentences(phi_of("y", "Change(x)", "Product(x, y)"), noise) == []
        assert expectation_sentences(phi_of("Above(x, 1)"), np.zeros(4)) == []

    @pytest.mark.parametrize(
        "outcome", [Above("x", 1.0), Below("x", 1.0), Outside("x", 1.0, 9.0), Outside("x", 1, 1.5)]
    )
    def test_what_an_expectation_leaves_out(self, outcome) -> None:
        deviation = 0.7

        def shortfall(mean: float) -> float:
            expected = quad(
                lambda x: float(outcome({"x": np.array(x)})) * norm.pdf(x, mean, deviation),
                mean - 9 * deviation,
                mean + 9 * deviation,
                points=[1.0, 1.5, 9.0],
                limit=200,
            )[0]
            return expected - float(outcome({"x": np.array(mean)}))

        at_kink = most_understated(outcome, deviation)
        assert shortfall(1.0) == pytest.approx(at_kink, rel=1e-6)
        assert max(shortfall(mean) for mean in np.linspace(-1, 11, 25)) <= at_kink + 1e-9
        assert most_understated(Above("x", 0), deviation) == pytest.approx(deviation / np.sqrt(2 * np.pi))


# --- whole runs -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs on the synthetic stays, with other draws."""
    frame, folder = icu_stays(), tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        config = tiny_explain(frame, FEATURES, outcomes=("Outside(temperature,36,38)", *OUTCOMES[1:]), seed=seed)
        config = replace(config, signs={OUTCOMES[0]: -1, "wbc": -1})
        commands.explain(frame, config, folder / str(seed))
    return folder


@pytest.fixture(scope="module")
def run(runs):
    return runs / "0"


def test_the_result_and_its_page_name_what_was_weighed(run):
    result = Result.read(run / "result.json")
    assert result.features == OUTCOMES
    assert result.config["outcomes"] == list(OUTCOMES)
    assert result.config["signs"] == {OUTCOMES[0]: -1, "wbc": -1}
    assert result.config["ranges"][OUTCOMES[0]][0] == 0
    assert result.weights[0] <= 0
    assert result.table is not None
    assert result.table["before"] == ["lactate"]
    # Heart rate alone is only seen: lactate is weighed by its change, which needs what was before.
    assert any(said.startswith("Of 5 observed features 4 go into the 3 outcomes") for said in result.headline)
    assert any("at most" in said and OUTCOMES[0] in said for said in result.headline)
    page = (run / "report.html").read_text()
    assert "Outside(temperature, 36, 38)" in page
    assert "Change(lactate)" in page
    numbers = page[page.index("Observed and predicted courses") :]
    head = numbers[: numbers.index("</tr>")]
    assert [name for name in (*FEATURES, "lactate before", *OUTCOMES[:2]) if name in head] == list(FEATURES[:3])


def test_what_was_before_is_observed_now_and_the_agent_comes_back_with_its_outcomes(run):
    model, test = load_model(run / "outcome_model.npz"), Batch.load(run / "test.npz")
    assert test.features == (*FEATURES, "lactate before")
    predicted = model.predict(model.encode(test)[:, :-1])[test.mask]
    now = test.obs[:, :-1, FEATURES.index("lactate")][test.mask]
    assert np.sqrt(((predicted[..., -1] - now[:, None]) ** 2).mean()) < 0.05 * now.std()
    agent = SuccessorAgent.load(run / "agent.npz", model)
    phi = agent.feature_map
    assert (phi.features, phi.of) == (OUTCOMES, (*FEATURES, "lactate before"))
    learned = load_reward(run)
    np.testing.assert_array_equal(phi(test.obs), learned.among(test.features).feature_map(test.obs))
    # One step before the end there is nothing but phi itself.
    last = agent.planned_psi(agent.horizon - 1, model.start(test.start), np.tile(learned.weights, (len(test), 1)))
    np.testing.assert_allclose(last, phi(model.predict(model.start(test.start))), atol=1e-5)


def test_the_environment_pays_w_times_phi_of_what_is_expected(run):
    env = gym.make("CIRLCounterfactual-v0", run=str(run), end="never")
    learned = load_reward(run)
    phi = learned.among(env.unwrapped.features).feature_map
    before, _ = env.reset(seed=3)
    for action in (0, 1, 1, 0):
        obs, reward, _, _, info = env.step(action)
        outside = max(36 - obs[0], 0.0, obs[0] - 38)
        # What is expected of "before" is what was observed, to the digits of the law.
        values = [outside, obs[2] - before[2], obs[1]]
        np.testing.assert_allclose(info["phi"], (values - phi.low) / (phi.high - phi.low), atol=0.02)
        assert reward == pytest.approx(float(learned.weights @ info["phi"]), abs=1e-6)
        assert reward == pytest.approx(float(learned.weights @ phi(obs[:5])), abs=1e-5)
        before = obs
    paid = LearnedReward(gym.make("CIRLCounterfactual-v0", run=str(run), end="never"), str(run))
    paid.reset(seed=3)
    _, again, *_, info = paid.step(0)
    assert again == pytest.approx(info["original_reward"], abs=1e-9)
    many = gym.make_vec("CIRLCounterfactual-v0", num_envs=3, vectorization_mode="vector_entry_point", run=str(run))
    many.reset(seed=0)
    _, rewards, _, _, infos = many.step(np.array([0, 1, 0]))
    np.testing.assert_allclose(rewards, infos["phi"] @ learned.weights, atol=1e-6)


def test_runs_are_compared_and_diagnosed(runs, run, tmp_path):
    found = compare_command(CompareOptions(runs / "0", runs / "1", out=tmp_path, rescale=True))
    assert tuple(found.differences) == OUTCOMES
    assert json.loads((tmp_path / "comparison.json").read_text())["ranges"].keys() == set(OUTCOMES)
    found = diagnose_command(DiagnoseOptions(run, tmp_path, patients=4, steps=2))
    assert (found.features, found.outcomes) == ((*FEATURES, "lactate before"), OUTCOMES)
    assert found.normaliser[OUTCOMES[0]][0] == 0


def test_the_command_line_takes_texts(monkeypatch, tmp_path, capsys):
    make_the_command_line_tiny(monkeypatch)
    table = tmp_path / "table.csv"
    icu_stays(40).rename(columns={"mean_arterial_pressure": "mean pressure"}).to_csv(table, index=False)
    options = ["--features", "temperature", "mean pressure", "--outcomes", 'Outside("mean pressure", 60, 100)']
    options += ["Change(temperature)", "--lower-is-better", "Outside('mean pressure',60,100)"]
    assert main(["explain", str(table), *options, "--out", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().out
    assert "'temperature before' added, temperature as it was one row earlier" in printed
    assert 'Outside("mean pressure", 60, 100)' in printed.replace("\n", " ")
    faults = {"Outside(wbc, 4, 12)": "'wbc' (in Outside", "Above(temperature)": "Above takes 2 arguments"}
    for bad, message in faults.items():
        assert main(["explain", str(table), *options[:3], "--outcomes", "temperature", bad]) == 2
        assert message in capsys.readouterr().err


def _stays_near_zero(truth: np.ndarray, kappa: float, stays: int, seed: int) -> pd.DataFrame:
    """X falls back by a tenth; cooling and heating move it by one and cost effort. Experts look one step ahead.

    They pay ``truth`` for [distance of x from -1..1, per 2 units; effort, 0 or 1], and err as kappa allows.
    """
    rng, rows, effect = np.random.default_rng(seed), [], np.array([-1.0, 0.0, 1.0])
    for stay in range(stays):
        x, effort = rng.uniform(-5, 5), 0.0
        for t in range(7):
            expected = 0.9 * x + effect
            q = -truth[0] * np.maximum(np.abs(expected) - 1, 0) / 2 - truth[1] * np.abs(effect)
            action = int((kappa * q + rng.gumbel(size=3)).argmax())
            rows.append([stay, t, x, effort, "" if t == 6 else action])
            x, effort = expected[action] + 0.1 * rng.standard_normal(), abs(effect[action])
    return pd.DataFrame(rows, columns=["stay", "t", "x", "effort", "action"]).astype(str)


def test_experts_who_keep_a_value_in_its_range_are_understood(tmp_path):
    frame = _stays_near_zero(np.array([0.7, 0.3]), 12.0, 150, 0)
    judged = replace(POSTERIOR, decisions=300, plans=6)
    found = {}
    for outcomes in (WEIGHED, ("x", "effort")):
        config = tiny_explain(frame, ("x", "effort"), outcomes=outcomes, fit=tiny_fit(gamma=0.0, posterior=judged))
        config = replace(config, options=replace(config.options, end="truncated"))
        found[outcomes] = commands.explain(frame, config, tmp_path)
    result, plain = found.values()
    # What was paid per two units is more per range, which goes from 0 to the largest distance.
    truth = np.array([0.7 * result.config["ranges"][WEIGHED[0]][1] / 2, 0.3])
    truth /= truth.sum()
    np.testing.assert_allclose(np.negative(result.weights), truth, atol=0.03)
    low, high = result.intervals[WEIGHED[0]]
    assert low <= -truth[0] <= high
    # No weight on x itself says that it is to be in the middle.
    assert plain.intervals["x"][0] < 0 < plain.intervals["x"][1]
    assert result.accuracy.cirl > plain.accuracy.cirl + 0.02
