"""How likely held-out decisions are: by hand, by an exact expert, and in the records that a result keeps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs
from posteriors import known_posterior
from small_batches import batch_of

from irl.checks.held_out import (
    HeldOutConfig,
    averaged_log_likelihood,
    held_out_likelihood,
    held_out_plans,
)
from irl.preferences.inference import judged_episodes
from irl.preferences.likelihood import PlanPool, action_log_likelihood

BATCH = batch_of([0, 1], [1], [1, 1, 0])


def pool_of(batch, seed: int = 0, plans: int = 1) -> PlanPool:
    shape = (plans, *batch.actions.shape, batch.n_actions, 2)
    return PlanPool(batch, np.random.default_rng(seed).random(shape))


class TestHeldOut:
    def test_draws_average_chances_not_logarithms(self):
        batch = batch_of([0])
        pool = PlanPool(batch, np.array([[[[[1.0, 0.0], [0.0, 1.0]]]]]))
        # Under one draw the action is sure, under the other it is a coin.
        w, kappas = np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([1000.0, 5.0])
        assert averaged_log_likelihood(pool, w, kappas)[0] == pytest.approx(np.log(0.75))

    def test_every_number_of_the_record(self):
        pool, found = pool_of(BATCH), known_posterior([[-0.4, -0.6], [-0.2, -0.8]], [10.0, 30.0])
        train = batch_of([0, 0, 1], [0])  # counted with one more of each: 4 of 6
        chances = np.full((3, 3, 2), [0.25, 0.75])
        cloned = np.full((3, 3, 2), np.log(0.5))
        record = held_out_likelihood(pool, found, train, cloned, chances)
        q = pool.q(np.array([-0.3, -0.7]))
        by_draw = [
            np.exp(action_log_likelihood(pool.q(w), BATCH, [k])[0]) for w, k in zip(found.draws, (10, 30), strict=True)
        ]
        assert (record.decisions, record.patients) == (6, 3)
        assert record.cirl.mean == pytest.approx(action_log_likelihood(q, BATCH, [20.0]).sum() / 6)
        for even in (record.chance, record.cloning):
            assert even.mean == pytest.approx(-np.log(2))
            assert even.standard_error == pytest.approx(0.0, abs=1e-12)
        assert record.frequencies.mean == pytest.approx((2 * np.log(4 / 6) + 4 * np.log(2 / 6)) / 6)
        assert record.expert.mean == pytest.approx((2 * np.log(0.25) + 4 * np.log(0.75)) / 6)
        # Of the episode with a single decision, the averaged chance is the mean of both draws' chances.
        alone = averaged_log_likelihood(pool, found.draws, found.kappa_draws)[1]
        assert np.exp(alone) == pytest.approx((by_draw[0][1] + by_draw[1][1]) / 2)
        assert held_out_likelihood(pool, found, train, cloned, None).expert is None

    def test_an_experts_own_chances_are_the_likeliest(self):
        rng = np.random.default_rng(0)
        empty = batch_of(*[[0] * 6] * 300)
        pool = pool_of(empty)
        value = 20.0 * pool.q(np.array([-0.3, -0.7]))
        chances = np.exp(value) / np.exp(value).sum(axis=2, keepdims=True)
        drawn = (rng.random(empty.actions.shape) < chances[..., 1]).astype(np.int64)
        batch = replace(empty, actions=drawn)
        pool = PlanPool(batch, pool.psi)
        cloned = np.log(np.full((300, 6, 2), 0.5))
        right = held_out_likelihood(pool, known_posterior([[-0.3, -0.7]], [20.0]), batch, cloned, chances)
        for own in (right.cirl, right.averaged):  # the same chances, summed in other orders
            assert structs.asdict(own) == pytest.approx(structs.asdict(right.expert), rel=1e-12)
        assert right.chance.mean < right.expert.mean
        for w, kappa in (([-0.7, -0.3], 20.0), ([-0.3, -0.7], 60.0), ([-0.3, -0.7], 3.0)):
            wrong = held_out_likelihood(pool, known_posterior([w], [kappa]), batch, cloned, chances)
            assert wrong.cirl.mean < right.cirl.mean - right.cirl.standard_error

    def test_plans_are_those_of_the_mean_and_of_draws_from_one_end_to_the_other(self):
        asked = []

        def psi(w, width):
            asked.append((w.tolist(), width))
            return np.zeros((3, 3, 2, 2))

        draws = np.stack([-np.arange(10) / 9, np.arange(10) / 9 - 1], axis=1)
        pool = held_out_plans(psi, known_posterior(draws, np.ones(10)), BATCH, HeldOutConfig(plans=3, width=5))
        assert len(pool.psi) == 4
        assert [w for w, _ in asked] == [[-0.5, -0.5], *draws[[0, 4, 9]].tolist()]
        assert {width for _, width in asked} == {5}

    def test_whole_episodes_until_there_are_enough(self):
        assert [len(judged_episodes(BATCH, n)) for n in (1, 2, 3, 4, 6, 999)] == [1, 1, 2, 3, 3, 3]

    def test_impossible_settings(self):
        for changes in ({"decisions": 0}, {"plans": 0}, {"draws": 0}, {"width": 0}):
            with pytest.raises(ValueError, match="every number must be at least 1"):
                HeldOutConfig(**changes)
