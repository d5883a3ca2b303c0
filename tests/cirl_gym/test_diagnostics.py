"""Diagnostics of outcome models, on models and data whose errors are known beforehand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from known_model import PHI, KnownModel
from outcome_batches import ConfoundedDoctor, confounded, cut_off, linear_system, random_model

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.rollout import rollout
from cirl_gym.diagnostics import (
    data_range,
    effective_sizes,
    end_calibration,
    fit_propensity,
    interval_coverage,
    judged,
    member_predictions,
    overlap,
    representations,
    support,
    treatment_probe,
)
from cirl_gym.outcome_models.errors import (
    SquaredErrors,
    course_gap,
    factual_ahead,
    factual_error,
    flipped_ahead,
    unchanged_ahead,
)
from cirl_gym.outcome_models.fitting import OutcomeModelConfig, fit_outcome_model
from cirl_gym.outcome_models.inputs import KINDS
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.worlds.exact import Patients, PatientsWorld, constant_futures
from cirl_gym.worlds.tumour import TumourParameters, TumourWorld

PARAMETERS = TumourParameters(horizon=10)
TUMOUR_PHI = PARAMETERS.feature_map


class Shifted(KnownModel):
    """Expects x to be higher by ``shift`` than the known model does, at every step."""

    def __init__(self, shift: float) -> None:
        super().__init__(ends=False)
        self.shift = shift

    def predict(self, states):
        return super().predict(states) + np.array([self.shift, 0.0], dtype=np.float32)


def follows(model: KnownModel, actions, lengths) -> Batch:
    """Episodes of exactly what a known model expects, from (2, 4)."""
    n, steps = actions.shape
    obs = [np.full((n, 2), (2.0, 4.0), dtype=np.float32)]
    state = model.start(obs[0])
    for t in range(steps):
        obs.append(model.predict(state)[np.arange(n), actions[:, t]])
        state = model.advance(state, actions[:, t], obs[-1])
    return cut_off(np.stack(obs, axis=1), actions, ("x", "y"), ("a", "b", "c"), lengths)


@pytest.fixture(scope="module")
def simulated():
    patients = Patients.draw(PARAMETERS, 300, np.random.default_rng(0))
    return patients, rollout(PatientsWorld(patients), ConfoundedDoctor(1), 300, np.random.default_rng(2))


def test_errors_k_steps_ahead_add_up_by_hand():
    rng = np.random.default_rng(0)
    batch = follows(KnownModel(ends=False), rng.integers(3, size=(5, 4)), np.array([4, 4, 3, 2, 1]))
    exact = factual_ahead(Shifted(0.0), batch, PHI)
    assert [error.pooled for error in exact] == [0, 0, 0, 0]
    # x is carried on: a model that is 0.5 too high at each step is 0.5 k too high after k of them; phi divides by 4.
    errors = factual_ahead(Shifted(0.5), batch, PHI)
    assert [error.raw for error in errors] == [(0.5 * k, 0.0) for k in (1, 2, 3, 4)]
    assert [error.scaled[0] for error in errors] == pytest.approx([0.125 * k for k in (1, 2, 3, 4)])
    assert [error.pooled for error in errors] == [error.scaled[0] for error in errors]
    # Lengths 4, 4, 3, 2, 1 hold 14 single steps, 9 pairs of consecutive ones, 5 triples, 2 quadruples.
    assert [error.n for error in errors] == [14, 9, 5, 2]
    assert [error.n for error in factual_ahead(Shifted(0.5), batch, PHI, 2)] == [14, 9]
    # Outcomes alone are scaled, all features are reported raw.
    only_y = FeatureMap(("y",), np.zeros(1), np.array([8.0]), of=("x", "y"))
    error = factual_ahead(Shifted(0.5), batch, only_y)[0]
    assert (error.raw, error.scaled, error.pooled) == ((0.5, 0.0), (0.0,), 0.0)


@pytest.mark.parametrize("kind", ["ar", "crn"])
def test_in_parts_or_whole_the_error_is_the_same_and_padding_does_not_matter(kind, monkeypatch):
    model, batch = random_model(kind), linear_system(23, seed=1, noise=0.5)
    phi = FeatureMap.from_batch(batch)
    whole = factual_ahead(model, batch, phi)
    for size in (1, 7):
        monkeypatch.setattr("cirl_gym.outcome_models.errors.EPISODES_AT_ONCE", size)
        part = factual_ahead(model, batch, phi)
        np.testing.assert_allclose([e.scaled for e in part], [e.scaled for e in whole], rtol=1e-5)
        assert [e.n for e in part] == [e.n for e in whole]
    padded = factual_ahead(model, batch.padded(batch.horizon + 3), phi)
    np.testing.assert_allclose([e.pooled for e in padded], [e.pooled for e in whole], rtol=1e-5)
    assert whole[0].pooled == pytest.approx(factual_error(model, batch, phi).pooled, rel=1e-5)


def test_nothing_changes_is_judged_on_the_same_rows_by_the_root_of_one_mean():
    batch = follows(KnownModel(ends=False), np.zeros((1, 3), dtype=np.int64), np.array([3]))
    # x: 2, 3, 4.5, 6 (the move is 1, then 1.5 with half of the previous one).
    np.testing.assert_array_equal(batch.obs[0, :, 0], [2, 3, 4.5, 6])
    errors = unchanged_ahead(batch, PHI)
    assert [error.raw[0] for error in errors] == pytest.approx(
        [np.sqrt((1 + 1.5**2 + 1.5**2) / 3), np.sqrt((2.5**2 + 3**2) / 2), 4.0]
    )
    assert [error.n for error in errors] == [e.n for e in factual_ahead(Shifted(0.0), batch, PHI)] == [3, 2, 1]
    squares = SquaredErrors(FeatureMap(("x",), np.zeros(1), np.array([2.0])))
    squares.add(np.array([[3.0]]), np.array([[0.0]]))
    squares.add(np.zeros((3, 1)), np.ones((3, 1)))
    # (9 + 1 + 1 + 1) / 4 = 3; the range is 2.
    assert squares.error().raw == pytest.approx((3**0.5,))
    assert squares.error().pooled == pytest.approx(3**0.5 / 2)
    with pytest.raises(ValueError, match="no prediction"):
        SquaredErrors(TUMOUR_PHI).error()


def test_the_oracle_errs_by_the_noise_on_actions_taken_and_not_taken(simulated):
    patients, batch = simulated
    oracle = OracleModel(PARAMETERS)
    for errors in (factual_ahead(oracle, batch, TUMOUR_PHI), flipped_ahead(oracle, batch, patients, TUMOUR_PHI)):
        assert errors[0].raw[0] == pytest.approx(0.1, abs=0.005)
        # Noise adds up along the average of the last five: after two steps 0.1 sqrt(1 + 1/25).
        assert errors[1].raw[0] == pytest.approx(0.1 * np.sqrt(1.04), abs=0.006)
    quiet = replace(PARAMETERS, tumour_noise=0.0, side_noise=0.0)
    patients = Patients.draw(quiet, 40, np.random.default_rng(0))
    batch = rollout(PatientsWorld(patients), ConfoundedDoctor(1), 40, np.random.default_rng(2))
    oracle = OracleModel(quiet)
    for errors in (factual_ahead(oracle, batch, TUMOUR_PHI), flipped_ahead(oracle, batch, patients, TUMOUR_PHI)):
        assert len(errors) == 10
        assert max(error.pooled for error in errors) < 1e-5


def test_a_wrong_effect_shows_on_other_actions_and_in_mean_courses(simulated):
    patients, batch = simulated
    # Knows everything but the effect of a treatment on the tumour: 1 off each, so one step ahead under flipped actions.
    wrong = OracleModel(replace(PARAMETERS, tumour_effect=-1.5))
    gap = course_gap(wrong, batch.start, constant_futures(patients, 1), TUMOUR_PHI)
    # After one treatment 1, after two 1/5 of that and 2 more.
    assert gap.largest[0] > 2.2 / 50
    right = course_gap(OracleModel(PARAMETERS), batch.start, constant_futures(patients, 1), TUMOUR_PHI)
    assert max(right.largest) < 0.005
    never = course_gap(wrong, batch.start, constant_futures(patients, 0), TUMOUR_PHI)
    assert max(never.largest) < 0.005


def test_a_probe_finds_what_is_there_and_nothing_where_there_is_nothing():
    train, test = confounded(400)
    rng = np.random.default_rng(0)

    def action(batch):
        return np.where(batch.actions == 1, 3.0, -3.0)[..., None].astype(np.float32)

    def noise(batch):
        return np.random.default_rng(len(batch)).normal(size=(*batch.actions.shape, 3)).astype(np.float32)

    told, silent = (treatment_probe(inputs, train, test, rng) for inputs in (action, noise))
    assert told.accuracy == 1
    assert told.log_loss < 0.05
    assert abs(silent.accuracy - silent.majority) < 4 * max(silent.standard_error, 0.01)
    assert silent.log_loss > silent.base_log_loss - 0.02
    counts = np.bincount(train.actions[train.mask])
    assert told.majority == (test.actions[test.mask] == counts.argmax()).mean()
    # A constant input and an action never taken are no trouble.
    few = linear_system(30, seed=0)
    few = replace(few, actions=np.minimum(few.actions, 1))
    constant = treatment_probe(lambda batch: np.ones((*batch.actions.shape, 1), np.float32), few, few, rng)
    assert np.isfinite(constant.log_loss)
    assert constant.accuracy >= constant.majority - 1e-9


def test_the_parts_of_a_recurrent_state_are_what_their_names_say():
    batch = linear_system(6, seed=2)
    crn, ar = random_model("crn"), random_model("ar")
    parts = representations(crn)
    assert list(parts) == ["window", "memory", "representation"]
    states = crn.encode(batch)[:, :-1]
    np.testing.assert_array_equal(parts["window"](batch)[batch.mask], states[batch.mask][:, : crn.law.window.size])
    assert parts["memory"](batch).shape == (6, 12, 7)
    assert parts["representation"](batch).shape == (6, 12, 5)
    assert list(representations(ar)) == ["state"]
    np.testing.assert_array_equal(representations(ar)["state"](batch), ar.encode(batch)[:, :-1])


def test_estimated_propensities_come_near_the_true_ones():
    train, test = confounded(1500)
    fitted = fit_propensity(train, np.random.default_rng(0))
    chances = fitted.probabilities(test)
    np.testing.assert_allclose(chances.sum(axis=-1), 1, atol=1e-6)
    # The doctor of these episodes: its own formula.
    doses = np.stack([np.pad(test.actions, ((0, 0), (lag, 0)))[:, : test.horizon] for lag in range(1, 6)]).sum(axis=0)
    logit = 0.25 * (test.obs[:, :-1, 0] - 10) - 0.35 * (test.obs[:, :-1, 1] - 3) + 0.6 * (doses - 2)
    true = 1 / (1 + np.exp(-logit))
    assert np.abs(chances[..., 1] - true)[test.mask].mean() < 0.05
    estimated, known = overlap(chances, test), overlap(np.stack([1 - true, true], axis=-1), test)
    assert estimated.any == pytest.approx(known.any, abs=0.08)
    assert judged(chances, train, test, 1).log_loss < judged(chances, train, test, 1).base_log_loss


def test_effective_sizes_of_comparisons_by_hand():
    # Half by a coin: every decision counts in full, by either weight.
    even = effective_sizes(np.full((8, 2), 0.5), np.array([0, 1] * 4))[0]
    assert (even.taken, even.compared, even.inverse, even.overlap) == (4, 8, pytest.approx(8), pytest.approx(8))
    # One in four, the same for all: 4 p (1 - p) n = 3, as in a trial with arms of that size.
    rare = effective_sizes(np.tile([0.75, 0.25], (4, 1)), np.array([0, 0, 0, 1]))[0]
    assert (rare.taken, rare.compared, rare.inverse, rare.overlap) == (1, 4, pytest.approx(3), pytest.approx(3))
    # Somebody who had next to no chance of what was done: 1 / e is 2, 2, 1000; 1 - e is .5, .5, .999.
    chances = np.array([[0.5, 0.5], [0.5, 0.5], [0.999, 0.001]])
    odd = effective_sizes(chances, np.array([0, 1, 1]))[0]
    assert odd.inverse == pytest.approx(1004**2 / (1000**2 + 8))
    assert odd.overlap == pytest.approx(1.999**2 / (0.5 + 0.999**2))
    # Of three actions, only what is said of the two that are compared counts.
    three = np.array([[0.3, 0.3, 0.4], [0.1, 0.1, 0.8], [0.2, 0.2, 0.6]])
    first, second = effective_sizes(three, np.array([0, 1, 1]))
    assert (first.taken, first.compared, first.inverse) == (2, 3, pytest.approx(3))
    assert (second.taken, second.compared, second.inverse, second.overlap) == (0, 1, None, None)
    with pytest.raises(ValueError, match="chances must be"):
        effective_sizes(three, np.array([0, 1]))


def test_overlap_members_and_support_by_hand():
    batch = follows(KnownModel(), np.array([[0, 1, 2]]), np.array([2]))
    chances = np.array([[[0.02, 0.03, 0.95], [0.5, 0.46, 0.04], [0.0, 0.0, 1.0]]])
    found = overlap(chances, batch)
    # Two steps count: the action taken was rare once, some action was rare in both.
    assert (found.taken, found.any, found.n) == (0.5, 1.0, 2)
    assert found.by_action == (0.5, 0.5, 0.5)
    assert [(one.taken, one.compared) for one in found.effective] == [(1, 2), (0, 1)]

    class Pair(Shifted):
        members = (Shifted(0.0), Shifted(1.0))

    found = member_predictions(Pair(0.5), batch)
    assert found.shape == (2, 2, 2)
    np.testing.assert_array_equal(found[1] - found[0], [[1, 0], [1, 0]])
    np.testing.assert_array_equal(member_predictions(Shifted(0.0), batch)[0], batch.obs[0, 1:3])
    inside = follows(KnownModel(), np.array([[0, 0, 0], [1, 1, 1], [2, 0, 1]]), np.array([3, 3, 3]))
    fitted = fit_propensity(inside, np.random.default_rng(0))
    span = data_range(inside)
    assert support(inside, span, fitted).outside == 0
    far = replace(inside, obs=inside.obs + np.float32([0, 0]) + 100 * (np.arange(4) == 2)[:, None].astype(np.float32))
    found = support(far, span, fitted)
    assert found.outside == pytest.approx(1 / 3)
    assert found.features == pytest.approx((1 / 3, 1 / 3))
    assert (found.n, found.steps) == (9, 3)


def test_intervals_of_a_single_model_and_of_an_ensemble_hold_what_they_promise():
    rng = np.random.default_rng(0)
    noise = np.array([0.5, 2.0])
    truth = rng.normal(size=(20_000, 2))
    outcomes = truth + noise * rng.normal(size=truth.shape)
    wide = (np.full(2, -100.0), np.full(2, 100.0))
    for entry in interval_coverage(truth[None], noise, outcomes, wide):
        assert entry.features == pytest.approx((entry.level,) * 2, abs=0.01)
        assert (entry.pooled, entry.n) == (entry.free, entry.n_free)
    # Members err independently by 1: their spread is in the interval of their mean; a single member's has none of it.
    members = truth + rng.normal(size=(20, *truth.shape))
    alone = interval_coverage(members[:1], noise, outcomes, wide, levels=[0.9])[0]
    assert alone.features[0] < 0.6
    together = interval_coverage(members[:2], noise, outcomes, wide, levels=[0.9])[0]
    assert together.features[0] > 0.8
    outcomes, expected = np.array([[0.0], [5.0], [9.0]]), np.array([[[0.1], [5.0], [5.0]]])
    entry = interval_coverage(expected, np.ones(1), outcomes, (np.zeros(1), np.full(1, 20.0)), levels=[0.9])[0]
    assert (entry.n, entry.n_free) == (3, 2)
    assert (entry.pooled, entry.free) == (pytest.approx(2 / 3), 0.5)
    with pytest.raises(ValueError, match="levels"):
        interval_coverage(expected, np.ones(1), outcomes, (np.zeros(1), np.ones(1)), levels=[1.0])
    with pytest.raises(ValueError, match="members"):
        interval_coverage(expected[0], np.ones(1), outcomes, (np.zeros(1), np.ones(1)))
    # Two episodes of three outcomes, one all inside and one all outside: as uncertain as two draws.
    outcomes = np.array([[0.0]] * 3 + [[9.0]] * 3)
    wide = (np.full(1, -100.0), np.full(1, 100.0))
    arguments = (np.zeros((1, 6, 1)), np.ones(1), outcomes, wide, [0.9])
    apart, together = (interval_coverage(*arguments, whose)[0] for whose in (None, np.array([0, 0, 0, 1, 1, 1])))
    assert apart.pooled == together.pooled == 0.5
    assert apart.standard_error == pytest.approx(0.5 / np.sqrt(6))
    assert together.standard_error == pytest.approx(0.5 / np.sqrt(2))


def test_expected_ends_are_counted_beside_those_observed_and_the_oracles_are_calibrated(simulated):
    # x stays positive: the chance of an end is 0, .25 and .5 by action.
    batch = follows(KnownModel(), np.array([[0, 1, 2], [2, 2, 0]]), np.array([3, 1]))
    ended = np.array([True, False])
    found = end_calibration(KnownModel(), replace(batch, terminated=ended, truncated=~ended))
    assert (found.expected, found.observed, found.n) == (0 + 0.25 + 0.5 + 0.5, 1, 4)
    assert found.deviation == pytest.approx(np.sqrt(0.25 * 0.75 + 2 * 0.25))
    assert [(b.n, b.predicted, b.observed) for b in found.bins] == [(1, 0.0, 0.0), (1, 0.25, 0.0), (2, 0.5, 0.5)]
    _, batch = simulated
    found = end_calibration(OracleModel(PARAMETERS), batch)
    assert abs(found.expected - found.observed) < 4 * max(found.deviation, 1)
    assert sum(b.n for b in found.bins) == batch.n_steps


SIMULATOR = TumourParameters()


class Coin:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return self.rng.integers(2, size=len(observation)), None


def ratios(kind, doctor, base, episodes=600):
    """Factual and flipped error of one model, divided by those of the simulator's own expectation."""
    rng = np.random.default_rng(0)
    seen = rollout(TumourWorld(), doctor(1), episodes, rng, deterministic=False)
    train, validation = seen.split(0.15, rng)
    patients = Patients.draw(SIMULATOR, 300, rng)
    test = rollout(PatientsWorld(patients), doctor(2), 300, rng, deterministic=False)
    model = fit_outcome_model(kind, train, validation, OutcomeModelConfig(base=base), rng).model
    phi = SIMULATOR.feature_map
    errors = [
        (factual_error(one, test, phi).pooled, flipped_ahead(one, test, patients, phi, 1)[0].pooled)
        for one in (model, OracleModel(SIMULATOR))
    ]
    return tuple(found / floor for found, floor in zip(*errors, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "mb_x"])
def test_with_the_law_actions_not_taken_are_predicted_as_well(kind):
    factual, flipped = ratios(kind, ConfoundedDoctor, True)
    assert factual < 1.2
    assert flipped < 1.4


@pytest.mark.slow
def test_a_network_alone_is_worse_on_what_it_did_not_see_and_without_confounding_adjusting_changes_little():
    factual, flipped = ratios("mb_h", ConfoundedDoctor, False)
    assert flipped > 1.05 * factual
    factual, flipped = ratios("mb_h", Coin, False)
    assert flipped == pytest.approx(factual, rel=0.05)
    assert ratios("rmsn", Coin, False) == pytest.approx((factual, flipped), rel=0.05)
