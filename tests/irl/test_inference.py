"""From exact successor features to weights: where no decision bears on a later one, everything is known."""

from __future__ import annotations

import numpy as np
import pytest
from small_batches import batch_of

from cirl_gym.data.batch import Batch
from cirl_gym.types import FloatArray
from irl.preferences.inference import PosteriorConfig, infer_preferences, judged_episodes
from irl.preferences.posterior import PosteriorResult

SMALL = PosteriorConfig(decisions=100, plans=4, near_plans=2, bootstraps=20, budget=2000)


class OneStep:
    """Decisions that end with their own outcome: action a brings phi_a, and that is all; psi needs no plan.

    Ten decisions stand together as one patient's, each of them with an outcome of its own.
    """

    def __init__(self, truth: FloatArray, kappa: float, n: int, n_actions: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.phi = rng.random((n // 10, 10, n_actions, len(truth)))
        logits = kappa * self.phi @ truth
        taken = (logits + rng.gumbel(size=logits.shape)).argmax(axis=2)
        self.batch: Batch = batch_of(*taken, n_actions=n_actions, d=len(truth))
        self.asked: list[FloatArray] = []
        self.widths: list[int | None] = []

    def psi(self, w: FloatArray, width: int | None) -> FloatArray:
        self.asked.append(w)
        self.widths.append(width)
        return self.phi


def inferred(world: OneStep, signs: list[int], config: PosteriorConfig, seed: int = 0) -> PosteriorResult:
    return infer_preferences(world.psi, world.batch, np.array(signs, float), config, np.random.default_rng(seed))[0]


@pytest.mark.parametrize("truth", [(-0.3, -0.7), (0.5, -0.5)])
def test_two_weights_are_recovered(truth):
    world = OneStep(np.array(truth), 30.0, n=1000, n_actions=2, seed=1)
    found = inferred(world, [0, 0], PosteriorConfig(decisions=1000, plans=1, near_plans=1, bootstraps=20))
    # The standard deviation of the posterior is about .015 here.
    np.testing.assert_allclose(found.mean, truth, atol=0.05)
    assert found.kappa_mean == pytest.approx(30, rel=0.25)
    assert found.sampler is None
    assert (found.low <= found.mean).all()
    assert (found.mean <= found.high).all()


def test_three_weights_are_recovered_by_sampling():
    truth = np.array([-0.2, 0.3, -0.5])
    world = OneStep(truth, 30.0, n=1000, n_actions=3, seed=2)
    found = inferred(world, [0, 0, 0], PosteriorConfig(plans=1, near_plans=1, budget=6000))
    np.testing.assert_allclose(found.mean, truth, atol=0.06)
    assert found.kappa_mean == pytest.approx(30, rel=0.2)
    assert found.sampler is not None
    assert found.sampler.evaluations <= 6000


@pytest.mark.parametrize("signs", [[-1, -1], [1, 0], [-1, 0, 1], [0, 0, -1, 1]])
def test_signs_are_kept_by_plans_draws_and_intervals(signs):
    # The truth has the opposite signs, where one is fixed: even then none is crossed.
    truth = np.where(np.array(signs) == 0, 1.0, -np.array(signs, float)) / len(signs)
    world = OneStep(truth, 10.0, n=200, n_actions=2, seed=3)
    found = inferred(world, signs, SMALL)
    for rows in (found.mean, found.low, found.high, found.draws, np.stack(world.asked)):
        assert (rows * np.array(signs) >= -1e-12).all()
    np.testing.assert_allclose(np.abs(np.stack(world.asked)).sum(axis=1), 1.0)


@pytest.mark.parametrize(("signs", "spread"), [([-1, -1], 4), ([0, 0], 16), ([-1, 0], 8), ([-1, 0, 1], 5)])
def test_plans_are_solved_for_once_and_reported(signs, spread):
    world = OneStep(np.full(len(signs), 1 / len(signs)), 10.0, n=50, n_actions=2, seed=4)
    told: list[tuple[int, int]] = []
    rng = np.random.default_rng(0)
    _, pool = infer_preferences(
        world.psi, world.batch, np.array(signs, float), SMALL, rng, lambda *done: told.append(done)
    )
    # Two rounds of two plans each near the mean, searched more widely than the others.
    assert len(world.asked) == len(pool.psi) == spread + 4
    assert told == [(i + 1, spread + 4) for i in range(spread + 4)]
    assert world.widths == [None] * spread + [SMALL.near_width] * 4


def test_near_plans_surround_the_mean():
    world = OneStep(np.array([-0.3, -0.7]), 30.0, n=1000, n_actions=2, seed=5)
    found = inferred(world, [-1, -1], SMALL)
    first, last = (np.abs(w - found.mean).max() for w in world.asked[-2:])
    assert first < 0.03
    assert last < 0.33


def test_same_seed_same_posterior_and_another_seed_another_one():
    world = OneStep(np.array([-0.3, -0.2, -0.5]), 10.0, n=100, n_actions=2, seed=6)
    one, again, other = (inferred(world, [-1, -1, -1], SMALL, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.draws, again.draws)
    assert not np.array_equal(one.draws, other.draws)


def test_judged_episodes_are_whole_and_reach_the_number():
    batch = batch_of(*([0, 1, 0, 1, 1][:k] for k in (5, 3, 1, 4, 2, 5)))
    by_id = dict(zip(batch.ids, batch.episodes(), strict=True))
    for wanted in (1, 5, 11, 19, 20):
        judged = judged_episodes(batch, wanted, np.random.default_rng(wanted))
        assert judged.n_steps >= wanted
        assert len(set(judged.ids)) == len(judged)
        for name, (obs, actions) in zip(judged.ids, judged.episodes(), strict=True):
            np.testing.assert_array_equal(obs, by_id[name][0])
            np.testing.assert_array_equal(actions, by_id[name][1])
        if len(judged) > 1:
            without_last = judged.take(np.arange(len(judged) - 1))
            assert without_last.n_steps < wanted, "no more episodes than are needed"
    few = judged_episodes(batch_of([0, 1], [1]), 1000, np.random.default_rng(0))
    assert sorted(few.ids) == ["e0", "e1"], "all where there are too few"
    batch = batch_of(*([0] for _ in range(50)))
    first = [judged_episodes(batch, 10, np.random.default_rng(seed)).ids for seed in (0, 0, 1)]
    assert first[0] == first[1] != first[2], "in a random order"


@pytest.mark.parametrize("name", ["decisions", "plans", "near_plans", "near_width", "bootstraps"])
def test_every_number_must_be_at_least_one(name):
    with pytest.raises(ValueError, match="every number must be at least 1"):
        PosteriorConfig(**{name: 0})
