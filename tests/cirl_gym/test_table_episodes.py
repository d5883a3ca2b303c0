"""Missing readings, splits and warnings: nothing flows between patients, back in time, or from test to training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from outcome_batches import cut_off
from small_tables import COLUMNS, put, stays

from cirl_gym.data.batch import Batch
from cirl_gym.data.outcome_model import CounterfactualWorld
from cirl_gym.outcome_models.fitting import OutcomeModelConfig, fit_outcome_model
from cirl_gym.tables import TableColumns, TableOptions
from cirl_gym.tables.doubts import told_by
from cirl_gym.tables.episodes import carry_forward
from cirl_gym.tables.read import PreparedTable, from_dataframe, prepare_table, split_groups

NAN = float("nan")


def test_carrying_forward_stays_in_the_episode_and_a_gap_at_the_start_is_filled_by_the_median_of_readings() -> None:
    obs = np.array([[[NAN], [1], [NAN], [NAN], [4]], [[NAN], [NAN], [7], [NAN], [NAN]]])
    want = np.array([[[NAN], [1], [1], [1], [4]], [[NAN], [NAN], [7], [7], [7]]])
    np.testing.assert_array_equal(carry_forward(obs), want)
    frame = put(put(stays(2, 2, 2), 5, "x", ""), 6, "x", "NA")  # stay 001: x missing at bins 0 and 1, 12 at bin 2
    batch, report = from_dataframe(frame)
    # The readings left are 0 1 2, 12, 20 21 22: median 12. The last one of stay 000 is 2.
    assert batch.obs[1, :, 0].tolist() == [12, 12, 12]
    assert (report.features[0].empty, report.features[0].carried, report.features[0].filled) == (2, 0, 2)
    frame = stays(4, 1)
    frame["x"] = ["1", "", "", "", "", "", "5"]
    batch, _ = from_dataframe(frame)
    assert batch.obs[0, :, 0].tolist() == [1] * 5
    assert batch.obs[1, :2, 0].tolist() == [3, 5]


def test_indicators_tell_what_was_missing() -> None:
    frame = put(put(stays(2, 1), 3, "y", ""), 5, "y", "")
    batch, _ = from_dataframe(frame, options=TableOptions(missing_indicator=True))
    assert batch.features == ("x", "y", "y_missing")
    assert batch.obs[..., 2].tolist() == [[0, 1, 0], [1, 0, 0]]
    assert np.array_equal(batch.obs[..., :2], from_dataframe(frame)[0].obs)
    with pytest.raises(ValueError, match="already has a feature 'y_missing'"):
        from_dataframe(frame.assign(y_missing="0"), options=TableOptions(missing_indicator=True))


def test_readings_out_of_range_become_missing_with_a_count_per_side_before_means() -> None:
    frame = put(put(put(stays(3, 2), 3, "x", "-5"), 4, "x", "10000000"), 6, "x", "900")
    batch, report = from_dataframe(frame, options=TableOptions(ranges={"x": (0, 12), "y": (-np.inf, np.inf)}))
    x, y = report.features
    assert (x.empty, x.below, x.above, x.carried, x.filled) == (0, 1, 2, 2, 1)
    assert (y.empty, y.below, y.above) == (0, 0, 0)
    # x was 0 -5 1e7 3 | 900 11 12: never clipped to 0 or 12; the median of 0 3 11 12 is 7. The bounds belong to it.
    assert batch.obs[:, :, 0].tolist() == [[0, 0, 0, 3], [7, 11, 12, 0]]
    assert any("x: 0 empty, 1 below and 2 above the plausible range" in line for line in report.lines())
    frame = pd.concat([stays(2, 1), put(stays(2, 1), 3, "x", "1e7").loc[[3]]])
    batch, report = from_dataframe(frame, COLUMNS, TableOptions(duplicates="mean", ranges={"x": (0, 100)}))
    assert batch.obs[0, :, 0].tolist() == [0, 1, 2]
    assert (report.rows.merged, report.features[0].above) == (1, 0)


def test_a_lagged_feature_moves_to_the_next_row_and_one_without_readings_is_refused() -> None:
    batch, report = from_dataframe(stays(2, 1), options=TableOptions(lag=("y",)))
    # y was 0 -1 -2 | 100 99; what is left after the lag is 0 -1 | 100, whose median is 0.
    assert batch.obs[..., 1].tolist() == [[0, 0, -1], [0, 100, 0]]
    assert batch.obs[..., 0].tolist() == [[0, 1, 2], [10, 11, 0]]
    assert (report.features[1].empty, report.features[1].filled) == (2, 2)
    with pytest.raises(ValueError, match="column 'x' has no reading in the training episodes: leave it out of --feat"):
        from_dataframe(stays(2, 1).assign(x=""), COLUMNS)


AGED = TableColumns("stay_id", "bin", "action", ("x", "age", "y"), None, "terminated", "truncated", ("age",))


def aged(*lengths: int) -> pd.DataFrame:
    """Stay i is 40 + i years old."""
    frame = stays(*lengths)
    return frame.assign(age=frame["stay_id"].map(lambda name: str(40 + int(name))))


def test_a_static_column_is_a_column_of_every_observation_in_every_part() -> None:
    batch, report = from_dataframe(aged(2, 1), AGED)
    assert batch.features == ("x", "age", "y")
    assert batch.obs[..., 1].tolist() == [[40, 40, 40], [41, 41, 0]]
    assert "3 features: x, age, y (static: age)" in report.lines()[0]
    table = prepare_table(aged(3, 2, 3, 2, 3, 3), AGED, rng=np.random.default_rng(0))
    for batch in (table.train, table.validation, table.test):
        for obs, _ in batch.episodes():
            assert len(set(obs[:, 1].tolist())) == 1


def test_a_column_that_changes_is_named() -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        from_dataframe(put(aged(2, 1), 6, "age", "41.5"), AGED)
    assert str(caught.value) == (
        "column 'age', id '001', line 6: 41.5 here, but 41 in line 5: "
        "a static feature must be constant within an episode (--static)"
    )
    # Without the user's word it is a feature like any other.
    plain = replace(AGED, static=())
    assert from_dataframe(put(aged(2, 1), 6, "age", "41.5"), plain)[0].obs[1, 1, 1] == 41.5


def test_a_value_written_once_holds_for_the_whole_episode_and_one_never_written_is_the_training_median() -> None:
    once = put(put(aged(2, 1), 2, "age", ""), 4, "age", "")  # known in line 3 alone
    never = put(put(aged(2, 1), 5, "age", ""), 6, "age", "")
    for frame, episode, counts in ((once, 0, (2, 2, 0)), (never, 1, (2, 0, 2))):
        batch, report = from_dataframe(frame, AGED, TableOptions(missing_indicator=True))
        assert set(batch.obs[episode, : batch.lengths[episode] + 1, 1].tolist()) == {40}
        assert (report.features[1].empty, report.features[1].carried, report.features[1].filled) == counts
        assert batch.features == ("x", "age", "y"), "a missing static value has no indicator"


def cohort(n: int = 30) -> pd.DataFrame:
    """Two stays per patient, with gaps."""
    frame = stays(*[1 + i % 4 for i in range(n)])
    frame.insert(1, "subject_id", frame["stay_id"].map(lambda s: f"p{int(s) // 2}"))
    gaps = np.random.default_rng(1).random(len(frame)) < 0.3
    frame.loc[gaps, "x"] = ""
    return frame


def prepare(frame: pd.DataFrame, seed: int = 0, **options: bool) -> PreparedTable:
    return prepare_table(frame, options=TableOptions(**options), rng=np.random.default_rng(seed))


def test_a_split_is_by_patient_loses_nobody_and_names_actions_training_never_sees() -> None:
    frame = cohort()
    table = prepare(frame)
    parts = (table.train, table.validation, table.test)
    groups = [set(part.groups) for part in parts]
    assert [len(g) for g in groups] == [11, 2, 2]
    assert len(set.union(*groups)) == 15
    assert sorted(sum((part.ids for part in parts), ())) == sorted(frame["stay_id"].unique())
    assert sum(part.n_steps for part in parts) == table.report.episodes.steps
    whole = from_dataframe(frame)[0]
    for part in parts:
        same = whole.take(np.array([whole.ids.index(name) for name in part.ids]))
        assert np.array_equal(part.obs[..., 1], same.obs[:, : part.horizon + 1, 1])  # y has no gap
        assert np.array_equal(part.lengths, same.lengths)
        assert part.horizon == part.lengths.max()
    test = prepare(frame).test
    row = frame[(frame["stay_id"] == test.ids[0]) & (frame["action"] != "")].index[0]
    table = prepare(put(frame, row, "action", "9"))
    assert table.train.action_names == table.test.action_names == ("0", "1", "9")
    assert "action '9' is never taken in the training episodes" in table.report.warnings


def test_changing_test_patients_changes_nothing_in_training() -> None:
    frame = cohort()
    table = prepare(frame, missing_indicator=True)
    held_out = frame["stay_id"].isin(table.test.ids + table.validation.ids)
    other = frame.copy()
    other.loc[held_out, "x"] = "12345"
    other.loc[held_out, "y"] = ""
    longer = pd.concat([other, longer_stay(table.test.ids[0], table.test.groups[0])])
    changed = prepare(longer, missing_indicator=True)
    assert changed.train == table.train
    assert changed.medians == table.medians
    assert changed.indicators == table.indicators == ("x_missing",)
    assert changed.test != table.test
    filled = changed.test.obs[0, 0, 1]
    assert filled == np.float32(table.medians["y"])


def longer_stay(stay: str, subject: str) -> pd.DataFrame:
    """Rows before those that a stay has."""
    rows = stays(40).iloc[:40].assign(stay_id=stay, subject_id=subject, terminated="0", truncated="0")
    rows["bin"] = [str(t) for t in range(-40, 0)]
    return rows.assign(x="", y="")


def test_a_split_has_its_sizes_and_depends_on_the_generator_alone() -> None:
    for n, want in ((3, (1, 1, 1)), (4, (2, 1, 1)), (20, (14, 3, 3)), (100, (70, 15, 15))):
        parts = split_groups([str(i) for i in range(n)], np.random.default_rng(0), 0.15, 0.15)
        assert tuple(int(p.sum()) for p in parts) == want
        assert (np.stack(parts).sum(axis=0) == 1).all()
    parts = split_groups(list("abc"), np.random.default_rng(0), 0.49, 0.5)
    assert tuple(int(p.sum()) for p in parts) == (1, 1, 1)
    frame = cohort()
    assert prepare(frame).test == prepare(frame).test
    assert prepare(frame).test.ids != prepare(frame, seed=1).test.ids
    assert set(prepare(frame.iloc[::-1]).test.ids) == set(prepare(frame).test.ids)


def noisy(n: int = 60, seed: int = 0) -> pd.DataFrame:
    """Stays of four actions whose features say nothing about them."""
    rng = np.random.default_rng(seed)
    frame = stays(*[4] * n)
    acted = frame["action"] != ""
    frame.loc[acted, "action"] = rng.integers(0, 3, acted.sum()).astype(str)
    frame["x"] = rng.normal(size=len(frame)).round(3).astype(str)
    frame["y"] = rng.integers(0, 5, len(frame)).astype(str)
    return frame


def dosed(frame: pd.DataFrame, dose) -> pd.DataFrame:
    """Y becomes what ``dose`` makes of the action's number, 0 on the last row."""
    code = frame["action"].replace("", "0").astype(int)
    return frame.assign(y=[str(dose(int(c), i)) for i, c in enumerate(code)])


@pytest.mark.parametrize(
    ("dose", "word"),
    [
        (lambda a, i: a, "equals the action of its own row"),
        (lambda a, i: 2 - a, "tells the action of its own row in 100.0%"),
        (lambda a, i: round(10 * a + 3 * np.sin(i), 4), "tells the action of its own row in 99."),
        (lambda a, i: "" if a else 7, None),  # that it is missing tells 0 from the others, but not 1 from 2
        (lambda a, i: a if i % 150 else 2 - a, "tells the action of its own row in 99."),
        (lambda a, i: a if i % 20 else 2 - a, None),  # right in 95 %
    ],
)
def test_a_feature_that_gives_the_action_away_is_named(dose, word: str | None) -> None:
    _, report = from_dataframe(dosed(noisy(), dose))
    if word is None:
        assert report.warnings == ()
    else:
        (warning,) = report.warnings
        assert warning.startswith(f"feature 'y' {word}")
        assert "Lag it by one row (--lag)" in warning
        assert from_dataframe(dosed(noisy(), dose), options=TableOptions(lag=("y",)))[1].warnings == ()


def test_missing_readings_can_give_the_action_away_but_fingerprints_and_rare_actions_do_not() -> None:
    frame = noisy().replace({"action": {"2": "1"}})
    _, report = from_dataframe(dosed(frame, lambda a, i: "" if a else round(np.sin(i), 3)))
    assert "feature 'y' tells the action of its own row" in report.warnings[0]
    # Each patient has a level of its own and always the same treatment: right within a patient, not across patients.
    frame = stays(*[4] * 80)
    acted = frame["action"] != ""
    number = frame["stay_id"].astype(int)
    frame.loc[acted, "action"] = (number[acted] * 7919 % 2).astype(str)
    frame["x"] = (number * 1.5).astype(str)
    frame["y"] = np.random.default_rng(0).normal(size=len(frame)).astype(str)
    assert from_dataframe(frame)[1].warnings == ()
    # An action taken once in 320 steps is "told" in more than 99 % of rows by telling the other one.
    frame = stays(*[4] * 80)
    frame.loc[frame["action"] != "", "action"] = "0"
    assert from_dataframe(put(frame, 2, "action", "1"))[1].warnings == ()
    half = np.array([False] * 4 + [True] * 4)
    actions = np.array([0, 0, 1, 1] * 2)
    assert told_by(np.array([1.0, 1, 2, 2] * 2), actions, half) == 1
    assert told_by(np.array([1.0, 1, 2, 2, 2, 2, 1, 1]), actions, half) == 0


def test_fahrenheit_among_celsius_is_flagged_and_not_averaged() -> None:
    frame = stays(2, 1).rename(columns={"x": "temperature"})
    frame["temperature"] = ["37.0", "98.6", "36.5", "38.1", "37.2"]
    (warning,) = from_dataframe(frame)[1].warnings
    assert warning == (
        "column 'temperature' mixes units: 4 readings can only be degrees Celsius (25 to 45), "
        "1 only degrees Fahrenheit (77 to 113)"
    )
    assert from_dataframe(frame.rename(columns={"temperature": "glucose"}))[1].warnings == ()
    frame["temperature"] = ["97.0", "98.6", "99.5", "100.1", "101.2"]
    assert from_dataframe(frame)[1].warnings == ()

    frame["temperature"] = ["37.0", "37.2", "36.5", "38.1", "37.2"]
    both = pd.concat([frame, put(frame, 3, "temperature", "98.6").loc[[3]]])
    columns = TableColumns("stay_id", "bin", "action", ("temperature", "y"), None, "terminated", "truncated")
    with pytest.raises(ValueError, match="column 'temperature', id '000', line 3: readings in mixed units are not"):
        from_dataframe(both, columns, TableOptions(duplicates="mean"))


def drifting(n: int, oldest: float) -> Batch:
    """Two features that move, and two that never do: an age that many share, and 0 or 1."""
    rng = np.random.default_rng(7)
    steps = 8
    actions = rng.integers(3, size=(n, steps))
    age = np.minimum(rng.integers(20, 90, size=n) + 0.1, oldest)
    sex = rng.integers(2, size=n)
    x = np.cumsum(rng.normal(size=(n, steps + 1)), axis=1) + 0.02 * age[:, None]
    z = np.cumsum(np.pad(actions - 1.0, ((0, 0), (1, 0))), axis=1) * np.sin(age)[:, None] ** 2
    fixed = [np.repeat(column[:, None], steps + 1, axis=1) for column in (age, sex)]
    ended = np.arange(n) % 2 == 0
    obs, lengths = np.stack([x, fixed[0], z, fixed[1]], axis=-1), rng.integers(3, steps + 1, size=n)
    batch = cut_off(obs, actions, ("x", "age", "z", "sex"), ("0", "1", "2"), lengths)
    return replace(batch, terminated=ended, truncated=~ended)


@pytest.mark.parametrize(
    ("kind", "base"), [("ar", True), ("crn", True), ("crn", False), ("mb_h", True), ("mb_h", False)]
)
def test_every_model_keeps_what_never_changes_to_the_last_bit(kind, base) -> None:
    train, held_out = drifting(120, 80.0).split(0.25, np.random.default_rng(0))
    config = replace(OutcomeModelConfig.quick(), base=base)
    model = fit_outcome_model(kind, train, held_out, config, np.random.default_rng(1)).model
    fixed = [1, 3]
    for batch in (train, held_out):
        predicted = model.predict(model.encode(batch)[:, :-1])[batch.mask]
        assert (predicted[..., fixed] == batch.obs[:, :-1][batch.mask][:, None, fixed]).all()
    assert (np.asarray(model.noise_scale)[fixed] == 0).all()
    # Nor does it change in courses that are imagined, drawn noise included.
    world = CounterfactualWorld(model, held_out.start, 6, outcome="sampled")
    rng = np.random.default_rng(2)
    state, obs = world.reset(len(held_out), rng)
    for _ in range(6):
        state, obs, _, _ = world.step(state, rng.integers(3, size=len(obs)), rng)
        np.testing.assert_array_equal(obs[:, fixed], held_out.start[:, fixed])
    if kind == "ar":  # the law of what never changes is exactly nothing
        np.testing.assert_array_equal(model.law.coefficients[:, fixed], np.eye(model.law.window.size)[:, fixed])
        assert not model.law.intercept[fixed].any()
        assert not model.law.effects[:, fixed].any()
