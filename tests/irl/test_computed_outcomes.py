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
from known_model import PHI, KnownModel, states
from scipy.integrate import quad
from scipy.stats import norm
from scripted import Scripted
from small_agents import TINY, known_problem
from small_batches import cut_off
from small_tables import stays
from tiny_run import POSTERIOR, icu_stays, make_the_command_line_tiny, tiny_explain, tiny_fit

from agents.successor.agent import SuccessorAgent
from agents.successor.planning import Search, plan
from agents.successor.training import fit_successor, uniform_weights
from cirl_gym import Batch, FeatureMap, TumourParameters, TumourWorld, rollout
from cirl_gym.data.outcome_model import CounterfactualWorld
from cirl_gym.data.outcomes import Above, Below, Outside
from cirl_gym.data.rollout import returns
from cirl_gym.envs.counterfactual import CounterfactualEnv
from cirl_gym.interop.episodes import step_rewards
from cirl_gym.outcome_models.network_files import read_model_file, write_model_file
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.outcome_models.store import load_model
from cirl_gym.tables import TableColumns
from cirl_gym.tables.weighed import chosen_outcomes, known_signs
from cirl_gym.worlds.tumour import FEATURES as TUMOUR
from cirl_gym.wrappers.learned_reward import LearnedReward, LinearReward, load_reward
from irl.commands import explain as commands
from irl.commands.cli import main
from irl.commands.compare import command as compare_command
from irl.commands.diagnose import command as diagnose_command
from irl.commands.options import CompareOptions, DiagnoseOptions
from irl.max_margin.loop import expert_mu, phi_along
from irl.preferences.identified_set import not_identifiable
from irl.report.drawing import imagine
from irl.result.result import Result
from irl.result.sentences import expectation_sentences, most_understated, per, seen_sentences, weights_mean_something
from irl.settings import ExplainConfig, FitConfig

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
            ExplainConfig(self.COLUMNS, outcomes=outcomes, fit=FitConfig())


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
    """Two runs on the synthetic stays, with other draws; in the second one as if they were of other patients."""
    frame, folder = icu_stays(), tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        config = tiny_explain(frame, FEATURES, outcomes=("Outside(temperature,36,38)", *OUTCOMES[1:]), seed=seed)
        config = replace(config, signs={OUTCOMES[0]: -1, "wbc": -1})
        commands.explain(frame, config, folder / str(seed))
        frame = frame.assign(stay_id="9" + frame["stay_id"], subject_id="9" + frame["subject_id"])
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
    short = any("at most" in said and OUTCOMES[0] in said for said in result.headline)
    assert short == weights_mean_something(result.verdict)
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
    outcomes = ('Outside("mean pressure", 60, 100)', "Change(temperature)")
    assert Result.read(tmp_path / "run" / "result.json").features == outcomes
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
    assert result.likelihood.cirl.mean > plain.likelihood.cirl.mean
    assert result.accuracy.cirl > plain.accuracy.cirl + 0.02


Y = FeatureMap(("y",), PHI.low[1:], PHI.high[1:], PHI.of)
TURNED = FeatureMap(("y", "x"), PHI.low[::-1], PHI.high[::-1], PHI.of)
SIDE = FeatureMap(("side_effects",), np.zeros(1), np.array([15.0]), TUMOUR)


@pytest.fixture(scope="module")
def batch() -> Batch:
    return rollout(TumourWorld(), Scripted(0.5), 12, np.random.default_rng(0))


@pytest.fixture(scope="module")
def agent() -> SuccessorAgent:
    """For the two weights of y alone, -1 and +1, with room for every plan."""
    problem = known_problem(feature_map=Y, weights=uniform_weights([0]))
    trained = fit_successor(problem, TINY, np.random.default_rng(0))
    trained.width = 81
    return trained


def search(feature_map: FeatureMap, w: np.ndarray) -> np.ndarray:
    def nothing(t, rows, _):
        return np.zeros((*rows.shape[:2], 3))

    found = states(20, seed=3)
    weights = np.tile(w, (len(found), 1))
    return plan(Search(KnownModel(), feature_map, nothing, 4, 0.9, 27), 0, found, weights).psi


def test_plans_for_one_outcome_and_in_another_order() -> None:
    for w in (-1.0, 1.0):
        both = search(PHI, np.array([0.0, w]))
        alone = search(Y, np.array([w]))
        assert alone.shape == (20, 3, 1)
        np.testing.assert_allclose(alone[..., 0], both[..., 1], atol=1e-12)
    np.testing.assert_allclose(search(TURNED, np.array([-0.75, 0.25])), search(PHI, np.array([0.25, -0.75]))[..., ::-1])


def test_the_agent_has_one_weight_per_outcome(agent: SuccessorAgent) -> None:
    assert agent.network.n_features == 1
    starts = np.array([[1.0, -0.5], [0.25, 2.0]], dtype=np.float32)
    world = CounterfactualWorld(KnownModel(), starts, 4)
    course = rollout(world, agent.policy([-1.0]), 2, np.random.default_rng(0))
    assert course.features == ("x", "y")
    psi = agent.psi(course, [-1.0])
    assert psi.shape == (2, course.horizon, 3, 1)
    lowest = psi[:, 0, :, 0].min(axis=1)  # the weight is -1: the best action leads to the least y
    np.testing.assert_allclose(agent.mu([-1.0], starts), [lowest.mean()])
    np.testing.assert_allclose(agent.q(course, [-1.0]), -psi[..., 0])
    with pytest.raises(ValueError, match="w must be 1 finite numbers"):
        agent.policy([-0.5, -0.5])
    with pytest.raises(ValueError, match=r"observations must be \[n, 5\]"):
        agent.policy([-1.0]).predict(np.zeros((1, 4), dtype=np.float32))


def test_the_agent_is_read_as_it_was_written(agent: SuccessorAgent, tmp_path) -> None:
    agent.save(tmp_path / "agent.npz")
    again = SuccessorAgent.load(tmp_path / "agent.npz", KnownModel())
    assert (again.feature_map.features, again.feature_map.of) == (("y",), ("x", "y"))
    starts = np.array([[1.0, -0.5]], dtype=np.float32)
    np.testing.assert_array_equal(again.mu([1.0], starts), agent.mu([1.0], starts))
    whole = fit_successor(known_problem(), TINY, np.random.default_rng(0))
    whole.save(tmp_path / "agent.npz")
    config, arrays = read_model_file(tmp_path / "agent.npz")
    del config["observed"]
    write_model_file(tmp_path / "older.npz", config, arrays)
    assert SuccessorAgent.load(tmp_path / "older.npz", KnownModel()).feature_map.of == ("x", "y")


def test_the_environment_pays_for_the_outcomes_and_shows_all(batch: Batch) -> None:
    env = CounterfactualEnv(OracleModel(), batch, feature_map=SIDE, weights=(-0.5,), end="never")
    obs, _ = env.reset(seed=0)
    assert env.features == TUMOUR
    assert obs.shape == (4,)
    whole = CounterfactualEnv(OracleModel(), batch, end="never")
    whole.reset(seed=0)
    for action in (1, 1, 0):
        obs, reward, _, _, info = env.step(action)
        np.testing.assert_allclose(info["phi"], [obs[1] / 15])
        assert reward == pytest.approx(-0.5 * obs[1] / 15)
        np.testing.assert_array_equal(obs, whole.step(action)[0])
    assert env.reset(options={"weights": (0.25,)})[1]["weights"].tolist() == [0.25]
    with pytest.raises(ValueError, match=r"weights must be 1 numbers, one for each of side_effects; got shape \(2,\)"):
        env.reset(options={"weights": (-0.3, -0.7)})
    whole, part = imagine(OracleModel(), batch, steps=3), imagine(OracleModel(), batch, 3, ("side_effects",))
    assert part.features == ("side_effects",)
    np.testing.assert_array_equal(part.observed, whole.observed[:, 1:])
    for name, course in part.futures.items():
        np.testing.assert_array_equal(course, whole.futures[name][:, 1:])


def test_the_vector_form_is_the_single_form(batch: Batch) -> None:
    pytest.importorskip("gymnasium", minversion="1.1")
    from cirl_gym.envs.counterfactual import CounterfactualVectorEnv

    options = {"model": OracleModel(), "batch": batch, "feature_map": SIDE, "end": "never"}
    many = CounterfactualVectorEnv(3, **options, weights=[[-0.5], [0.5], [1.0]])
    many.reset(seed=4)
    _, rewards, _, _, infos = many.step(np.ones(3, dtype=np.int64))
    assert infos["phi"].shape == (3, 1)
    np.testing.assert_allclose(rewards, infos["phi"][:, 0] * [-0.5, 0.5, 1.0])
    one = CounterfactualEnv(**options, weights=(0.5,))
    one.reset(seed=5)
    assert one.step(1)[1] == rewards[1]


@pytest.mark.parametrize("mode", ["ansi", "rgb_array"])
def test_a_picture_shows_every_feature(batch: Batch, mode: str) -> None:
    env = CounterfactualEnv(OracleModel(), batch, feature_map=SIDE, render_mode=mode)
    env.reset(seed=0)
    env.step(1)
    shown = env.render()
    if mode == "ansi":
        assert "tumour" in shown
        assert "side_effects" in shown
    else:
        assert shown.ndim == 3


def test_a_map_of_other_features_is_refused(batch: Batch) -> None:
    alone = FeatureMap(("side_effects",), np.zeros(1), np.ones(1))
    for make in (
        lambda: CounterfactualEnv(OracleModel(), batch, feature_map=alone),
        lambda: phi_along(OracleModel(), alone, batch),
        lambda: step_rewards(batch, alone, [-1.0]),
        lambda: known_problem(feature_map=FeatureMap(("y",), np.zeros(1), np.ones(1)), weights=uniform_weights([0])),
    ):
        with pytest.raises(ValueError, match="feature"):
            make()


def test_a_learned_reward_of_some_features_pays_in_an_environment_that_tells_all(batch: Batch) -> None:
    learned = LinearReward(FeatureMap(("side_effects",), np.array([1.0]), np.array([5.0])), np.array([-1.0]))
    env = LearnedReward(gym.make("CIRLCounterfactual-v0", model=OracleModel(), batch=batch), learned)
    env.reset(seed=1)
    obs, reward, *_ = env.step(1)
    assert reward == pytest.approx(-(obs[1] - 1) / 4, abs=1e-6)
    wide = LinearReward(TumourParameters().feature_map, np.array([-0.5, -0.5]))
    narrow = CounterfactualEnv(OracleModel(), batch, feature_map=SIDE)
    with pytest.raises(ValueError, match=r"only the reward has \['tumour'\]"):
        LearnedReward(narrow, wide)


def test_what_follows_from_phi_is_the_column_of_all(batch: Batch) -> None:
    whole = TumourParameters().feature_map
    phi, part = phi_along(OracleModel(), whole, batch), phi_along(OracleModel(), SIDE, batch)
    np.testing.assert_array_equal(part, phi[..., 1:])
    all_mu, mu = expert_mu(phi, batch, 0.9), expert_mu(part, batch, 0.9)
    np.testing.assert_allclose(mu.mean, all_mu.mean[1:])
    np.testing.assert_allclose(returns(batch, SIDE, np.array([-0.7])), returns(batch, whole, np.array([0.0, -0.7])))
    np.testing.assert_allclose(step_rewards(batch, SIDE, [-0.7]), step_rewards(batch, whole, [0.0, -0.7]))


def test_only_what_is_weighed_can_be_hard_to_tell() -> None:
    x = np.random.default_rng(0).normal(size=(6, 4))
    obs = np.stack([x, 2 * x + 1, x**2, np.full_like(x, 7.0)], axis=-1)
    actions = np.random.default_rng(1).integers(2, size=(6, 3))
    batch = cut_off(obs, actions, ("x", "twice", "square", "constant"))
    assert set(not_identifiable(batch)) == {"x", "twice", "constant"}
    assert not_identifiable(batch, ("square", "x")) == {}
    assert set(not_identifiable(batch, ("twice", "square", "x"))) == {"x", "twice"}
    assert "moves exactly with 'twice'" in not_identifiable(batch, ("twice", "x"))["x"]
