"""Static covariates: ordinary numbers of the observation that never change, in the table and in every model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from small_tables import put, stays

from cirl_gym.data.batch import Batch
from cirl_gym.outcome_models.fitting import OutcomeModelConfig, fit_outcome_model
from cirl_gym.tables import TableColumns, TableOptions
from cirl_gym.tables.read import from_dataframe, prepare_table
from cirl_gym.worlds.world import CounterfactualWorld

COLUMNS = TableColumns("stay_id", "bin", "action", ("x", "age", "y"), None, "terminated", "truncated", ("age",))


def aged(*lengths: int) -> pd.DataFrame:
    """Stay i is 40 + i years old."""
    frame = stays(*lengths)
    return frame.assign(age=frame["stay_id"].map(lambda name: str(40 + int(name))))


def test_a_static_column_is_a_column_of_every_observation() -> None:
    batch, report = from_dataframe(aged(2, 1), COLUMNS)
    assert batch.features == ("x", "age", "y")
    assert batch.obs[..., 1].tolist() == [[40, 40, 40], [41, 41, 0]]
    assert "3 features: x, age, y (static: age)" in report.lines()[0]


def test_a_column_that_changes_is_named() -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        from_dataframe(put(aged(2, 1), 6, "age", "41.5"), COLUMNS)
    assert str(caught.value) == (
        "column 'age', id '001', line 6: 41.5 here, but 41 in line 5: "
        "a static feature must be constant within an episode (--static)"
    )
    # Without the user's word it is a feature like any other.
    plain = replace(COLUMNS, static=())
    assert from_dataframe(put(aged(2, 1), 6, "age", "41.5"), plain)[0].obs[1, 1, 1] == 41.5


def test_a_value_written_once_holds_for_the_whole_episode() -> None:
    frame = put(put(aged(2, 1), 2, "age", ""), 4, "age", "")  # known in line 3 alone
    batch, report = from_dataframe(frame, COLUMNS)
    assert batch.obs[0, :, 1].tolist() == [40, 40, 40]
    assert (report.features[1].empty, report.features[1].carried, report.features[1].filled) == (2, 2, 0)


def test_a_value_never_written_is_the_training_median_throughout() -> None:
    frame = put(put(aged(2, 1), 5, "age", ""), 6, "age", "")
    batch, report = from_dataframe(frame, COLUMNS)
    assert batch.obs[1, :2, 1].tolist() == [40, 40]
    assert (report.features[1].carried, report.features[1].filled) == (0, 2)


def test_a_missing_static_value_has_no_indicator() -> None:
    frame = put(put(aged(2, 1), 3, "age", ""), 3, "x", "")
    batch, _ = from_dataframe(frame, COLUMNS, TableOptions(missing_indicator=True))
    assert batch.features == ("x", "age", "y", "x_missing")


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
    return Batch(
        obs=np.stack([x, fixed[0], z, fixed[1]], axis=-1),
        actions=actions,
        lengths=rng.integers(3, steps + 1, size=n),
        terminated=ended,
        truncated=~ended,
        features=("x", "age", "z", "sex"),
        action_names=("0", "1", "2"),
        ids=tuple(map(str, range(n))),
    )


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


def test_the_linear_law_of_what_never_changes_is_exactly_nothing() -> None:
    train, held_out = drifting(120, 80.0).split(0.25, np.random.default_rng(0))
    law = fit_outcome_model("ar", train, held_out, OutcomeModelConfig.quick(), np.random.default_rng(1)).model.law
    for j in (1, 3):
        own = np.zeros(law.window.size)
        own[j] = 1.0
        np.testing.assert_array_equal(law.coefficients[:, j], own)
        assert law.intercept[j] == 0
        assert not law.effects[:, j].any()


def test_the_parts_of_a_prepared_table_keep_it_too() -> None:
    table = prepare_table(aged(3, 2, 3, 2, 3, 3), COLUMNS, rng=np.random.default_rng(0))
    for batch in (table.train, table.validation, table.test):
        for obs, _ in batch.episodes():
            assert len(set(obs[:, 1].tolist())) == 1
