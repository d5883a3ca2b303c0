"""Static covariates: ordinary numbers of the observation that never change, in every model of outcomes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from outcome_batches import cut_off

from cirl_gym.data.batch import Batch
from cirl_gym.data.outcome_model import CounterfactualWorld
from cirl_gym.outcome_models.fitting import OutcomeModelConfig, fit_outcome_model


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
