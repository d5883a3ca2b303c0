"""Cross-fitting: parts of patients, worlds of the others, and chances that nothing of a decision was learnt for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from posteriors import drawn_pool
from small_batches import batch_of

from agents.policies.cloning import CloningConfig
from cirl_gym.data.batch import Batch
from cirl_gym.files import read_arrays
from irl.checks.metrics import ACCOUNTS
from irl.cross_fitting import CrossFit, ForeseenDecisions, cross_fit, foresee_others, patient_folds
from irl.preferences.likelihood import PlanPool

HABITS = np.array([[0.5, -0.5], [1.2, -1.2], [-0.8, 0.8]])


class World:
    """In place of an agent: psi tell which world and which episode they are of."""

    def __init__(self, number: int) -> None:
        self.number = number

    def psi(self, batch, w, width=None):
        episode = np.array([int(name[1:]) for name in batch.ids])
        found = np.zeros((*np.shape(w)[:-1], *batch.actions.shape, batch.n_actions, np.shape(w)[-1]), dtype=np.float32)
        found[..., 0] = 100 * self.number + episode[:, None, None]
        found[..., 1] = 0 if width is None else width
        return found


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1000), patients=st.integers(6, 40), folds=st.integers(2, 8))
def test_parts_are_of_whole_patients_of_one_size_whatever_the_order(seed, patients, folds):
    rng = np.random.default_rng(seed)
    groups = [f"p{i:02d}" for i in [*range(patients), *rng.integers(patients, size=20)]]
    if patients < 3 * folds:
        with pytest.raises(ValueError, match=f"{patients} patients cannot be divided into {folds} parts"):
            patient_folds(groups, folds, rng)
        return
    part = patient_folds(groups, folds, np.random.default_rng(seed))
    of = dict(zip(groups, part, strict=True))
    assert [of[name] for name in groups] == part.tolist()
    sizes = np.bincount(list(of.values()), minlength=folds)
    assert len(sizes) == folds
    assert np.ptp(sizes) <= 1
    order = rng.permutation(len(groups))
    moved = patient_folds([groups[i] for i in order], folds, np.random.default_rng(seed))
    np.testing.assert_array_equal(moved, part[order])


def test_one_part_is_none():
    with pytest.raises(ValueError, match="cannot be divided into 1 parts"):
        patient_folds(["a", "b", "c", "d"], 1, np.random.default_rng(0))


@pytest.fixture(scope="module")
def everyone() -> Batch:
    """Twelve patients of two stays each."""
    rng = np.random.default_rng(0)
    stays = (rng.integers(2, size=n).tolist() for n in [5, *rng.integers(1, 6, size=23)])
    return batch_of(*stays, groups=tuple(f"p{i // 2}" for i in range(24)))


def test_no_decision_is_judged_in_a_world_that_was_fitted_to_its_patient(everyone):
    judged, seen = everyone.take(np.arange(3, 20)), []

    def solve(number, train, validation):
        seen.append((number, train, validation))
        return World(number)

    cross = cross_fit(everyone, judged, 3, np.random.default_rng(1), solve)
    assert [number for number, *_ in seen] == [0, 1, 2]
    assert len(cross.agents) == 3
    for number, train, validation in seen:
        others, own = {*train.groups, *validation.groups}, set(np.array(judged.groups)[cross.fold == number])
        assert own
        assert not own & others
        assert not set(train.groups) & set(validation.groups)
        assert len(others) == 8, "all others are learnt from"
        assert (cross.train[number], cross.validation[number]) == (train, validation)
    # Of every episode psi in its own world, in the order of the judged.
    w = np.array([0.3, -0.7])
    found = cross.psi(w, 5)
    assert found.shape == (*judged.actions.shape, 2, 2)
    np.testing.assert_array_equal(found[:, 0, 0, 0], 100 * cross.fold + np.arange(3, 20))
    assert (found[..., 1] == 5).all()
    several = cross.psi(np.stack([w, -w]), 5)
    np.testing.assert_array_equal(several, np.stack([found, found]))
    again = cross_fit(everyone, judged, 3, np.random.default_rng(1), solve)
    np.testing.assert_array_equal(again.fold, cross.fold)


def test_every_episode_has_a_fold(everyone):
    with pytest.raises(ValueError, match="one fold for each of 24 episodes"):
        CrossFit(everyone, np.zeros(3, dtype=int), (), (), ())


@pytest.fixture(scope="module")
def pool() -> PlanPool:
    return drawn_pool([-40.0, 30.0], habit=HABITS, patients=12, steps=5, seed=2)


def foreseen_by_others(pool: PlanPool, told: list[tuple[int, int]] | None = None) -> tuple[CrossFit, ForeseenDecisions]:
    cross = cross_fit(pool.batch, pool.batch, 2, np.random.default_rng(0), lambda number, *_: World(number))
    brief = replace(CloningConfig().training, epochs=1)
    cloning = replace(CloningConfig(hidden=4), training=brief)
    how = (np.array([-1.0, 1.0]), cloning, np.random.default_rng(3), None)
    return cross, foresee_others([cross], [pool], *how, None if told is None else lambda *done: told.append(done))


@pytest.fixture(scope="module")
def found(pool) -> tuple[CrossFit, ForeseenDecisions]:
    return foreseen_by_others(pool)


class TestForeseen:
    def test_chances_sum_to_one_and_none_is_of_its_own_decision(self, pool, found):
        cross, foreseen = found
        assert set(foreseen.chances) == set(ACCOUNTS)
        assert foreseen.folds == 2
        for name, logs in foreseen.chances.items():
            np.testing.assert_allclose(np.exp(logs).sum(axis=2), 1.0, atol=1e-5, err_msg=name)
        # Another last action of the patients that are foreseen first changes no chance of theirs; what was learnt from
        # them for the others does change.
        first = np.flatnonzero(cross.fold == 0)
        actions = pool.batch.actions.copy()
        actions[first, -1] = 1 - actions[first, -1]
        told: list[tuple[int, int]] = []
        _, other = foreseen_by_others(replace(pool, batch=replace(pool.batch, actions=actions), levels=None), told)
        for name, logs in foreseen.chances.items():
            np.testing.assert_array_equal(other.chances[name][first], logs[first], err_msg=name)
            if name != "chance":
                assert not np.array_equal(other.chances[name], logs), name
        assert told == [(1, 2), (2, 2)]

    def test_some_episodes_by_their_ids(self, pool, found, tmp_path):
        foreseen = found[1]
        part = foreseen.of(pool.batch.take(np.array([7, 2])))
        np.testing.assert_array_equal(part["cirl"], foreseen.chances["cirl"][[7, 2]])
        stranger = replace(pool.batch.take(np.array([1])), ids=("nobody",))
        assert foreseen.of(stranger) is None
        foreseen.save(tmp_path / "foreseen.npz")
        arrays = read_arrays(tmp_path / "foreseen.npz")
        assert arrays["ids"].tolist() == list(pool.batch.ids)
        assert int(arrays["folds"]) == 2
        np.testing.assert_allclose(arrays["boosting"], foreseen.chances["boosting"], rtol=1e-6)

    def test_every_account_is_needed_for_every_decision(self, pool, found):
        chances = dict(found[1].chances)
        for wrong in ({**chances, "cirl": chances["cirl"][:3]}, {"cirl": chances["cirl"]}):
            with pytest.raises(ValueError, match="ForeseenDecisions: log-probabilities"):
                ForeseenDecisions(pool.batch, wrong, 2)
