"""Outcomes that are computed of what is observed: their values, their names, their scale, and what is refused."""

from __future__ import annotations

import pickle

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outcome_batches import cut_off
from small_tables import COLUMNS, stays

from cirl_gym import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.outcomes import Above, Below, Change, Column, Outside, Product, changing, read_outcome, with_lags
from cirl_gym.envs.counterfactual import CounterfactualEnv
from cirl_gym.envs.picture import EpisodeSoFar, Frame
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.tables.read import prepare_table
from cirl_gym.wrappers.learned_reward import LearnedReward, LinearReward

OBSERVED = ("age", "x", "y", "x before")
ROWS = np.array([[60.0, 35.0, 2.0, 36.0], [61.0, 37.0, -1.0, 37.0], [62.0, 40.5, 0.5, 37.0]])
BY_HAND = {
    "x": [35.0, 37.0, 40.5],
    "Outside(x, 36, 38)": [1.0, 0.0, 2.5],
    "Above(x, 36.5)": [0.0, 0.5, 4.0],
    "Below(x, 36.5)": [1.5, 0.0, 0.0],
    "Product(x, y)": [70.0, -37.0, 20.25],
    "Product(y, y)": [4.0, 1.0, 0.25],
    "Change(x)": [-1.0, 0.0, 3.5],
}


def phi_of(*outcomes: str, of: tuple[str, ...] = OBSERVED) -> FeatureMap:
    """The computed values themselves: every range is from 0 to 1."""
    return FeatureMap(outcomes, np.zeros(len(outcomes)), np.ones(len(outcomes)), of)


def test_values_by_hand_in_any_shape_range_and_process() -> None:
    phi = phi_of(*BY_HAND)
    np.testing.assert_array_equal(phi(ROWS), np.array(list(BY_HAND.values())).T)
    assert phi(np.zeros((5, 2, 4), dtype=np.float32)).shape == (5, 2, len(BY_HAND))
    assert phi(ROWS[0].astype(np.float32)).dtype == np.float64
    with pytest.raises(ValueError, match=r"phi is of \[\.\., 4\] numbers"):
        phi([1.0, 2.0])
    phi(ROWS)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(phi))(ROWS), phi(ROWS))
    # phi is linear in the computed value, and clips nothing: twice the range is 2.
    phi = FeatureMap(("Outside(x, 36, 38)",), np.zeros(1), np.array([2.5]), ("x",))
    assert phi([[36.0], [38.0], [35.0], [40.5], [43.0]])[:, 0].tolist() == [0, 0, 0.4, 1, 2]
    assert phi.unscaled([[0.4]]).tolist() == [[1.0]]


texts = st.text(min_size=1, max_size=12) | st.sampled_from(
    ["x", "None", "lambda", "µg", "a b", 'q"', "\\d", "x, 1)", "1"]
)
numbers = st.floats(-1e9, 1e9) | st.integers(-(10**9), 10**9)
outcomes = st.one_of(
    st.builds(lambda c, a, b: Outside(c, min(a, b), max(a, b) + (a == b)), texts, numbers, st.floats(-1e8, 1e8)),
    st.builds(Above, texts, numbers),
    st.builds(Below, texts, numbers),
    st.builds(Product, texts, texts),
    st.builds(Change, texts),
)


@given(outcomes)
@settings(max_examples=150, deadline=None)
def test_a_name_reads_as_what_it_names(outcome) -> None:
    assert read_outcome(outcome.name, ()) == outcome
    assert read_outcome(f"  {outcome.name.replace('(', ' ( ', 1)} ", ()) == outcome
    assert read_outcome(outcome.name, (outcome.name,)) == Column(outcome.name), "a column of that name is that column"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Outside(x,36.0,38.50)", "Outside(x, 36, 38.5)"),
        ("Outside('a b', -2, 1e3)", 'Outside("a b", -2, 1000)'),
        ("Above(x, -0.0)", "Above(x, 0)"),
        ("Below(\n x,\n 3)", "Below(x, 3)"),
        ("Above(µg, 1)", "Above(µg, 1)"),
        ("Product('None', 'x')", 'Product("None", x)'),
        ("lactate (arterial, last)", "lactate (arterial, last)"),
    ],
)
def test_there_is_one_spelling(text: str, name: str) -> None:
    assert read_outcome(text, ()).name == name


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Outside(x, 36", "brackets, commas or quotes are not in order"),
        ("Outside(x y, 36, 38)", "brackets, commas or quotes are not in order"),
        ("Above('\\d', 1)", "brackets, commas or quotes are not in order"),
        ("Outside" + "(" * 300, "brackets, commas or quotes are not in order"),
        ("Outside(x, 36, 38) + 1", "it must be Outside with its arguments in brackets, and nothing more"),
        ("Outside(x, low=36, high=38)", "and nothing more"),
        ("Above(x, 1)(2)", "and nothing more"),
        ("Outside(x, 36)", "Outside takes 3 arguments, not 2"),
        ("Change()", "Change takes 1 arguments, not 0"),
        ("Outside(36, x, 38)", "column must be a column's name, in quotes if it is no plain word"),
        ("Change(Outside(x, 1, 2))", "column must be a column's name"),
        ("Product(x, *y)", "b must be a column's name"),
        ("Above(x, y)", "limit must be a number"),
        ("Above(x, True)", "limit must be a number"),
        ("Above(x, 1j)", "limit must be a number"),
        ("Above(x, --1)", "limit must be a number"),
        ("Above(x, __import__('os'))", "limit must be a number"),
        ("Above(x, 1e999)", r"Above: limit must be a finite number, at most 1e\+15 in size, got inf"),
        ("Above(x, 10000000000000000)", r"Above: limit must be a finite number, at most 1e\+15"),
        ("Outside(x, 38, 36)", r"Outside\(x, 38, 36\): the lower end of the range must be below the upper one"),
        ("Outside(x, 36, 36)", "the lower end of the range must be below"),
    ],
)
def test_a_text_that_is_none_is_one_clear_error(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        phi_of(text)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Above(3, 1.0), "Above: column must be a column's name, got 3"),
        (lambda: Above("x", None), "Above: limit must be a finite number"),
        (lambda: Outside("x", float("nan"), 1), "Outside: low must be a finite number"),
        (
            lambda: phi_of("Outside(z, 1, 2)"),
            r"outcome 'Outside\(z, 1, 2\)' needs 'z', which is not among the observed",
        ),
        (
            lambda: phi_of("Change(y)"),
            "needs 'y before', which is not among .*; cirl_gym.data.outcomes.with_lags adds it",
        ),
        (lambda: phi_of("outside(x, 1, 2)"), r"is not among the observed features: age, .* is written Outside\(column"),
        (lambda: phi_of("Above(x, 1)", "Above(x,1.0)"), "the names must be different"),
        (lambda: phi_of("x", "Above(x, 1)").columns, r"Above\(x, 1\): computed, and no column"),
        (lambda: phi_of("x", "Above(y, 1)", of=("x", "y")).raw([0, 0]), "phi has no inverse: it says nothing of y"),
    ],
)
def test_what_cannot_be_computed_is_refused(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_an_inverse_where_every_column_is_an_outcome_too_whatever_its_name_looks_like() -> None:
    phi = FeatureMap(("y", "Above(x, 1)", "x"), np.array([0.0, 0, 10]), np.array([2.0, 1, 20]), ("x", "y"))
    assert phi([[15.0, 1.0]]).tolist() == [[0.5, 14.0, 0.5]]
    assert phi.raw([0.5, 14.0, 0.5]).tolist() == [15, 1]
    phi = phi_of("Above(x, 1)", of=("x", "Above(x, 1)"))
    assert phi([[9.0, 3.0]]).tolist() == [[3.0]]
    assert phi.columns.tolist() == [1]


def test_ranges_are_those_of_the_computed_values() -> None:
    batch, _ = Batch.from_dataframe(stays(2, 1))  # x: 0 1 2 10 11; y: 0 -1 -2 100 99
    texts = ("Outside(x, 1, 10)", "Above(x, -5)", "Above(x, 50)", "Product(x, y)", "y")
    phi = FeatureMap.from_batch(batch.padded(7), texts)
    assert phi.features == texts
    assert phi.of == batch.features
    # A distance begins at 0 though none is below 5; nobody is above 50: a range of 1.
    assert phi.low.tolist() == [0, 0, 0, -4, -2]
    assert phi.high.tolist() == [1, 16, 1, 1089, 100]
    made = FeatureMap.from_batch(batch, [Outside("x", 1, 10), "y"])
    assert made.features == ("Outside(x, 1, 10)", "y")
    assert (made.outcomes[0], made.read) == (Outside("x", 1, 10), ("x", "y"))
    with pytest.raises(ValueError, match=r"outcome 'Above\(q, 1\)' needs 'q'"):
        FeatureMap.from_batch(batch, [Above("q", 1)])


@pytest.mark.parametrize("names", [None, ("y", "x"), ("y",)])
def test_plain_columns_are_what_they_were_to_the_byte(names) -> None:
    batch, _ = Batch.from_dataframe(stays(5, 3, 4))
    phi = FeatureMap.from_batch(batch, names)
    chosen = [batch.features.index(name) for name in names or batch.features]
    rows = batch.obs[batch.seen][:, chosen].astype(np.float64)
    assert phi.low.tobytes() == rows.min(axis=0).tobytes()
    assert phi.high.tobytes() == rows.max(axis=0).tobytes()
    expected = (batch.obs.astype(np.float64)[..., chosen] - phi.low) / (phi.high - phi.low)
    assert phi(batch.obs).tobytes() == expected.tobytes()
    assert phi.columns.tolist() == chosen


class TestLags:
    def test_which_columns_change_and_what_was_before_whatever_the_order_of_episodes(self) -> None:
        batch, _ = Batch.from_dataframe(stays(3, 1))  # x: 0 1 2 3 | 10 11
        wide = with_lags(batch, ("x",))
        assert wide.features == ("x", "y", "x before")
        assert wide.obs[..., 2].tolist() == [[0, 0, 1, 2], [10, 10, 0, 0]]
        np.testing.assert_array_equal(wide.obs[..., :2], batch.obs)
        change = FeatureMap.from_batch(wide, ("Change(x)",))
        assert change.unscaled(change(wide.next_obs))[..., 0][wide.mask].tolist() == [1, 1, 1, 1]
        assert with_lags(batch, ()) is batch
        batch, _ = Batch.from_dataframe(stays(3, 1, 2))
        turned = batch.take(np.array([2, 0]))
        assert with_lags(turned, ("y", "x")) == with_lags(batch, ("y", "x")).take(np.array([2, 0]))
        batch, _ = Batch.from_dataframe(stays(2, 1))
        with pytest.raises(ValueError, match="'q' is not a feature; the features are x, y"):
            with_lags(batch, ("q",))
        with pytest.raises(ValueError, match="there is a feature 'x before'"):
            with_lags(with_lags(batch, ("x",)), ("x",))
        assert changing(("Change(y)", "x", "Above(x, 1)", "Change(x)"), ("x", "y")) == ("y", "x")
        assert changing(("Change(x)",), ("x", "Change(x)")) == ()

    def test_a_table_says_what_was_added_and_every_part_has_it(self) -> None:
        frame = stays(*[3] * 8)
        table = prepare_table(frame, COLUMNS, rng=np.random.default_rng(0))
        wide = table.with_lags(("x",))
        assert {part.features for part in (wide.train, wide.validation, wide.test)} == {("x", "y", "x before")}
        assert wide.report.as_dict()["before"] == ["x"]
        assert [line for line in wide.report.lines() if "before" in line] == [
            "'x before' added, x as it was one row earlier (on the first row as it is there), so that its change can "
            "be weighed"
        ]
        assert not [line for line in table.report.lines() if "before" in line]
        assert table.with_lags(()) is table


class TestReward:
    LEARNED = LinearReward(
        FeatureMap(("Outside(x, 36, 38)", "y"), np.zeros(2), np.array([2.0, 4.0])), np.array([-0.6, -0.4])
    )
    """As a run's file is read: a function of the outcomes' values, whatever they are computed of."""

    def test_of_values_and_of_what_they_are_computed_of(self) -> None:
        assert self.LEARNED([[1.0, 2.0]]).tolist() == pytest.approx([-0.5])
        seen = self.LEARNED.among(("y", "age", "x"))
        assert seen([[2.0, 60.0, 39.0], [2.0, 60.0, 37.0]]).tolist() == pytest.approx([-0.5, -0.2])
        assert seen.features == self.LEARNED.features
        with pytest.raises(ValueError, match=r"only the reward has \['Outside\(x, 36, 38\)'\], which lacks \['age'\]"):
            self.LEARNED.among(("y", "age"))

    def test_in_an_environment_that_weighs_the_columns(self) -> None:
        env = gym.make("CIRLTumour-v0")
        learned = LinearReward(
            FeatureMap(("Above(tumour, 20)", "side_effects"), np.zeros(2), np.array([30.0, 15.0])),
            np.array([-0.5, -0.5]),
        )
        paid = LearnedReward(env, learned)
        paid.reset(seed=0)
        for action in (0, 1, 1):
            obs, reward, *_ = paid.step(action)
            assert reward == pytest.approx(-0.5 * max(obs[0] - 20, 0) / 30 - 0.5 * obs[1] / 15, abs=1e-6)


def test_a_picture_shows_the_columns() -> None:
    phi = FeatureMap(("Outside(x, 36, 38)", "y"), np.zeros(2), np.array([2.0, 4.0]), ("x", "y"))
    frame = Frame.of(EpisodeSoFar(phi, np.array([[37.0, 1.0]]), (), ("0", "1"), 0.0))
    assert frame.features == ("x", "y")
    assert frame.low[0] > 30, "the range of a distance is not the column's"
    assert frame.high[1] == pytest.approx(4.32)


def test_the_environment_pays_for_computed_outcomes() -> None:
    obs, actions = np.full((2, 4, 2), [30.0, 2.0]), np.zeros((2, 3), dtype=np.int64)
    batch = cut_off(obs, actions, OracleModel().features, ("0", "1"))
    phi = FeatureMap.from_batch(batch, ("Outside(tumour, 5, 25)", "Product(tumour, side_effects)"))
    env = CounterfactualEnv(OracleModel(), batch, feature_map=phi, weights=(-0.6, -0.4), end="never")
    env.reset(seed=0)
    obs, reward, _, _, info = env.step(1)
    assert env.features == ("tumour", "side_effects")
    by_hand = [max(5 - obs[0], 0, obs[0] - 25) / 5, obs[0] * obs[1] - 60]
    np.testing.assert_allclose(info["phi"], by_hand, rtol=1e-5)
    assert reward == pytest.approx(-0.6 * by_hand[0] - 0.4 * by_hand[1], rel=1e-5)
