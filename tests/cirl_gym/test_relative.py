"""Features that change by shares of their size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from brief_fits import NETWORKS, brief
from outcome_batches import linear_system

from cirl_gym.data.batch import Batch
from cirl_gym.outcome_models.errors import factual_error
from cirl_gym.outcome_models.fitting import fit_outcome_model
from cirl_gym.outcome_models.inputs import Scaler
from cirl_gym.outcome_models.store import load_model, save_model


def shares(episodes: int, seed: int) -> Batch:
    """A size that grows by a fifth, or shrinks by two fifths when treated; and a coordinate that drifts."""
    rng = np.random.default_rng(seed)
    obs, actions = np.zeros((episodes, 11, 2)), rng.integers(2, size=(episodes, 10))
    obs[:, 0] = np.stack([np.exp(rng.normal(2, 1.5, size=episodes)), rng.normal(size=episodes)], axis=1)
    for t in range(10):
        rate = np.where(actions[:, t] == 1, 0.6, 1.2) * (1 + 0.01 * rng.normal(size=episodes))
        obs[:, t + 1, 0] = obs[:, t, 0] * rate
        obs[:, t + 1, 1] = obs[:, t, 1] + 0.5 * actions[:, t] + 0.1 * rng.normal(size=episodes)
    none = np.zeros(episodes, dtype=np.bool_)
    ids = tuple(f"e{i}" for i in range(episodes))
    return Batch(obs, actions, np.full(episodes, 10), none, ~none, ("size", "place"), ("no", "yes"), ids)


@pytest.mark.parametrize("kind", NETWORKS)
def test_shares_are_learnt_where_no_line_can(kind, tmp_path):
    train, validation, test = shares(300, 0), shares(60, 1), shares(200, 2)
    line = fit_outcome_model("ar", train, validation, brief(1), np.random.default_rng(0)).model
    config = replace(brief(15), relative=("size",))
    model = fit_outcome_model(kind, train, validation, config, np.random.default_rng(0)).model
    assert model.spec.relative == ("size",)
    error, of_line = (factual_error(one, test).raw for one in (model, line))
    assert error[0] < 0.3 * of_line[0]
    assert error[1] < 1.1 * of_line[1]
    save_model(model, tmp_path / "model.npz")
    loaded, states = load_model(tmp_path / "model.npz"), model.encode(test)
    assert np.array_equal(loaded.predict(states), model.predict(states))
    assert np.array_equal(loaded.encode(test), states)


def test_twice_the_unit_twice_the_prediction():
    train, validation = shares(200, 0), shares(50, 1)
    scaled = [replace(one, obs=one.obs * np.array([1000, 1], dtype=np.float32)) for one in (train, validation)]
    config = replace(brief(4), relative=("size",))
    predicted = []
    for one, other in ((train, validation), scaled):
        model = fit_outcome_model("mb_h", one, other, config, np.random.default_rng(0)).model
        predicted.append(model.predict(model.encode(other)[:, :-1]))
    np.testing.assert_allclose(predicted[1][..., 0], 1000 * predicted[0][..., 0], rtol=2e-3)


def test_nothing_stays_nothing():
    train, validation = shares(100, 0), shares(40, 1)
    config = replace(brief(2), relative=("size",), base=False)
    model = fit_outcome_model("mb_h", train, validation, config, np.random.default_rng(0)).model
    empty = np.array([[0.0, 1.0]], dtype=np.float32)
    assert (model.predict(model.start(empty))[..., 0] == 0).all()


def test_logarithms_by_hand():
    batch = shares(10, 0)
    scaler = Scaler.from_batch(batch).with_logarithms(batch, np.array([True, False]))
    middle = np.median(batch.obs[batch.seen][:, 0].astype(np.float64))
    logs = np.log(batch.obs[batch.seen][:, 0].astype(np.float64) + 0.01 * middle)
    assert scaler.mean[0] == pytest.approx(logs.mean())
    value = scaler(np.array([[3.0, 0.0], [0.0, 0.0]]))
    assert value[0, 0] == pytest.approx((np.log(3 + 0.01 * middle) - logs.mean()) / logs.std(), rel=1e-5)
    assert np.isfinite(value).all()
    assert scaler(batch.obs)[batch.seen].mean(axis=0) == pytest.approx([0, 0], abs=1e-5)


def test_bad_requests_are_refused():
    batch = linear_system(30, 0, noise=1.0)
    for kind, names, message in (
        ("crn", ("z",), "'z' is not a feature"),
        ("crn", ("x",), "'x' is negative in some rows"),
        ("ar", ("x",), "need a network"),
    ):
        config = replace(brief(1), relative=names)
        with pytest.raises(ValueError, match=message):
            fit_outcome_model(kind, batch, batch, config, np.random.default_rng(0))
    with pytest.raises(ValueError, match="offset"):
        Scaler(np.zeros(2), np.ones(2), np.array([-1.0, 0.0]))
