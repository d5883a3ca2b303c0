"""Judging of chances: figures by hand and by scikit-learn, and nothing that depends on order, names or padding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from sklearn.metrics import average_precision_score, roc_auc_score
from small_batches import batch_of, cut_off

from cirl_gym.data.batch import Batch
from irl.checks.chances import areas, brier, calibration_error, judged_chances
from irl.preferences.likelihood import per_decision, taken_log_probabilities
from irl.result.chances import ChanceScores
from irl.result.codec import restored


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def judged(chances, batch: Batch) -> ChanceScores:
    return judged_chances(np.log(np.asarray(chances, dtype=np.float64)), batch, rng())


def cohort(n: int = 40, n_actions: int = 3, seed: int = 0) -> tuple[np.ndarray, Batch]:
    """Chances with ties and actions drawn from them; two episodes to a patient."""
    draw = rng(seed)
    weights = draw.integers(1, 5, size=(n, 6, n_actions)).astype(np.float64)
    chances = weights / weights.sum(axis=2, keepdims=True)
    actions = (chances.cumsum(axis=2) < draw.random((n, 6, 1))).sum(axis=2).clip(max=n_actions - 1)
    names = tuple(f"a{i}" for i in range(n_actions))
    batch = cut_off(np.zeros((n, 7, 1)), actions, ("x",), names, lengths=draw.integers(1, 7, size=n))
    return chances, replace(batch, groups=tuple(f"p{i // 2}" for i in range(n)))


def values(scores: ChanceScores) -> dict[str, float]:
    named = structs.asdict(scores)
    return {name: one.value for name, one in named.items() if hasattr(one, "value")}


def errors(scores: ChanceScores) -> dict[str, float]:
    named = structs.asdict(scores)
    return {name: one.standard_error for name, one in named.items() if hasattr(one, "value")}


def test_by_hand():
    batch = batch_of([1, 0, 0], [0], groups=("p", "q"))
    chances = np.array([[[0.2, 0.8], [0.6, 0.4], [0.4, 0.6]], [[0.9, 0.1], [0.5, 0.5], [0.5, 0.5]]])
    found = judged(chances, batch)
    assert (found.decisions, found.patients) == (4, 2)
    assert found.log_likelihood.value == pytest.approx(np.log([0.8, 0.6, 0.4, 0.9]).mean())
    # Two of three decisions of the first episode and the only one of the second.
    assert found.accuracy.value == pytest.approx((2 / 3 + 1) / 2)
    # The one treated had the highest chance of it.
    assert (found.auroc.value, found.auprc.value) == (1, 1)
    assert found.brier.value == pytest.approx((0.2**2 + 0.4**2 + 0.6**2 + 0.1**2) / 4)


def test_areas_by_hand():
    # Chance of the rarer action .9 (taken), .5 (taken), .5 (not), .1 (not), .1 (not): of 6 pairs 5 are in order, and
    # one is equal. Precision is 1 at recall 1/2, and 2/3 at recall 1.
    score = np.array([0.9, 0.5, 0.5, 0.1, 0.1])
    auroc, auprc = areas(np.stack([1 - score, score], axis=1), np.array([1, 1, 0, 0, 0]), np.ones((1, 5)))
    assert auroc == pytest.approx(5.5 / 6)
    assert auprc == pytest.approx((1 + 2 / 3) / 2)


def test_calibration_by_hand():
    # Two groups, since there are two confidences: .6 of five decisions that are right twice, .9 of five always right.
    confidence = np.repeat([0.6, 0.9], 5)
    right = np.array([1, 1, 0, 0, 0, 1, 1, 1, 1, 1], dtype=np.bool_)
    error = calibration_error(confidence, right, np.array([np.ones(10), [1] * 5 + [0] * 5]))
    assert error == pytest.approx(np.array([(0.2 + 0.1) / 2, 0.2]))


def test_calibration_groups_are_of_one_size():
    # Twenty confidences make ten groups of two; in each, one of the two is right.
    confidence = np.linspace(0.5, 0.95, 20)
    right = np.arange(20) % 2 == 0
    expected = np.abs(confidence.reshape(10, 2).mean(axis=1) - 0.5).mean()
    assert calibration_error(confidence, right, np.ones((1, 20))) == pytest.approx(expected)


def test_brier_of_certainty():
    assert brier(np.array([[1.0, 0, 0], [1.0, 0, 0]]), np.array([0, 2])).tolist() == [0, 1]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.integers(2, 4))
def test_areas_are_those_of_scikit_learn(seed, n_actions):
    draw = rng(seed)
    score = draw.integers(1, 6, size=(30, n_actions)).astype(np.float64)
    chances = score / score.sum(axis=1, keepdims=True)
    taken, weights = draw.integers(n_actions, size=30), draw.integers(0, 3, size=(4, 30)).astype(np.float64)
    taken[:n_actions] = np.arange(n_actions)
    weights[:, :n_actions] = 1
    counts = np.bincount(taken)
    judged_actions = ([1] if counts[1] <= counts[0] else [0]) if n_actions == 2 else list(range(n_actions))
    auroc, auprc = areas(chances, taken, weights)
    for i, weight in enumerate(weights):
        ours = [(taken == a, chances[:, a]) for a in judged_actions]
        assert auroc[i] == pytest.approx(np.mean([roc_auc_score(*one, sample_weight=weight) for one in ours]))
        assert auprc[i] == pytest.approx(np.mean([average_precision_score(*one, sample_weight=weight) for one in ours]))


def test_order_padding_and_names_change_nothing():
    chances, batch = cohort()
    found = judged(chances, batch)
    order = rng(1).permutation(len(batch))
    shuffled = judged(
        np.pad(chances, ((0, 0), (0, 2), (0, 0)), constant_values=0.5)[order], batch.take(order).padded(8)
    )
    assert values(shuffled) == pytest.approx(values(found))
    assert errors(shuffled) == pytest.approx(errors(found))
    names = np.array([2, 0, 1])  # what was 0 is 2, ...
    renamed = replace(batch, actions=np.where(batch.mask, names[batch.actions], 0), action_names=("b", "c", "a"))
    distinct = chances + rng(2).random(chances.shape) * 1e-3  # of equal chances the first action counts
    distinct /= distinct.sum(axis=2, keepdims=True)
    assert values(judged(distinct[..., np.argsort(names)], renamed)) == pytest.approx(values(judged(distinct, batch)))


def test_names_of_two_actions_change_nothing():
    chances, batch = cohort(n_actions=2)
    chances[..., 0] += 0.01 * rng(3).random(chances.shape[:2])
    chances /= chances.sum(axis=2, keepdims=True)
    renamed = replace(batch, actions=np.where(batch.mask, 1 - batch.actions, 0), action_names=("b", "a"))
    assert values(judged(chances[..., ::-1], renamed)) == pytest.approx(values(judged(chances, batch)))


def test_errors_are_by_patient():
    chances, batch = cohort(200)
    once = judged(chances, batch)
    # Every patient twice, as the same patient: nothing is known that was not. As another: errors shrink by sqrt(2).
    again = batch.resampled(np.tile(np.arange(200), 2))
    twice = np.tile(chances, (2, 1, 1))
    assert errors(judged(twice, again)) == pytest.approx(errors(once), rel=1e-6)
    others = replace(again, groups=(*batch.groups, *(f"{name} again" for name in batch.groups)))
    shrunk = errors(judged(twice, others))
    for name in ("accuracy", "auroc", "auprc", "brier"):
        assert shrunk[name] == pytest.approx(errors(once)[name] / np.sqrt(2), rel=0.25)
    logs = per_decision(taken_log_probabilities(np.log(chances), batch), batch)
    assert (once.log_likelihood.value, once.log_likelihood.standard_error) == pytest.approx(logs)


def test_errors_are_the_spread_over_cohorts():
    found = [judged(*cohort(60, seed=seed)) for seed in range(60)]
    for name in ("accuracy", "auroc", "auprc", "brier"):
        spread = np.std([values(one)[name] for one in found])
        assert np.mean([errors(one)[name] for one in found]) == pytest.approx(spread, rel=0.3)


def test_constant_chances_and_one_patient_alone():
    batch = batch_of([1, 0, 0, 0])
    found = judged_chances(np.log([0.75, 0.25]), batch, rng())
    assert (found.auroc.value, found.auprc.value) == (0.5, 0.25)
    assert found.calibration_error.value == pytest.approx(0)
    assert set(errors(found).values()) == {0}


def test_one_action_alone_has_no_areas():
    found = judged([0.75, 0.25], batch_of([0, 0], [0]))
    assert (found.auroc, found.auprc) == (None, None)
    assert restored(ChanceScores, structs.asdict(found), "scores") == found


def test_bad_chances_are_refused():
    batch = batch_of([1, 0])
    with pytest.raises(ValueError, match="episode 'e0' was given no chance"):
        judged_chances(np.array([0, -np.inf]), batch, rng())
    with pytest.raises(ValueError, match="sum to 1"):
        judged([0.5, 0.4], batch)
    with pytest.raises(ValueError, match="must be"):
        judged([0.5, 0.25, 0.25], batch)
