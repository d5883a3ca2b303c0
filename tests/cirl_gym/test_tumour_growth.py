"""The tumour-growth benchmark: its equations by hand, its patients' laws, its confounding and its counterfactuals."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from tumour_growth_world import (
    ACTION_NAMES,
    FEATURES,
    Chances,
    CounterfactualOutcomes,
    Patients,
    Stage,
    TumourGrowthParameters,
    draw_chances,
    draw_patients,
    drug_concentration,
    follow_patients,
    next_volumes,
    percent_error,
    simulate,
    simulate_counterfactuals,
    sphere_diameter,
    sphere_volume,
    treatment_probability,
)

P = TumourGrowthParameters()


def someone(n: int = 1, *, volume: float = 100.0, growth: float = 0.01, radio: float = 0.1) -> Patients:
    """N equal patients of type 2."""
    same = {"volume": volume, "growth": growth, "radio": radio, "chemo": 0.03}
    columns = {name: np.full(n, value) for name, value in same.items()}
    return Patients(**columns, patient_type=np.full(n, 2), stage=np.zeros(n, dtype=np.int64))


def fixed(action: int, days: int, n: int = 1, *, recovery: float = 0.5) -> Chances:
    """No noise, and always the same action: a treatment is given where its number is below its chance."""
    given = np.array([action in (1, 3), action in (2, 3)])
    treatment = np.broadcast_to(np.where(given, 0.0, 1.0), (n, days, 2))
    return Chances(np.zeros((n, days)), treatment, np.full((n, days), recovery))


def live_rates(made: CounterfactualOutcomes) -> tuple[float, float]:
    """Share of live days with chemotherapy, and with radiotherapy."""
    taken = made.batch.actions[made.batch.mask]
    return float(np.isin(taken, (1, 3)).mean()), float(np.isin(taken, (2, 3)).mean())


@pytest.fixture(scope="module")
def cohorts() -> dict[int, CounterfactualOutcomes]:
    """The same 2,000 patients without, with some and with strong confounding."""
    return {gamma: simulate_counterfactuals(P, 2000, gamma, np.random.default_rng(7)) for gamma in (0, 4, 10)}


class TestEquations:
    def test_spheres(self) -> None:
        assert sphere_volume(2.0) == pytest.approx(4.18879, abs=1e-5)  # 4/3 pi
        assert sphere_volume(13.0) == pytest.approx(1150.347, abs=1e-3)
        assert P.death_volume == sphere_volume(13.0)
        assert P.capacity == pytest.approx(14137.167, abs=1e-3)
        np.testing.assert_allclose(sphere_diameter(sphere_volume([0.3, 5.0, 13.0])), [0.3, 5.0, 13.0], rtol=1e-14)

    def test_one_step_by_hand(self) -> None:
        # K / V = 14137.167 / 100; its logarithm is 4.951392, so growth is .04951392 of the volume.
        # Chemotherapy on top of 2 mg/m^3 left: .03 * 7 = .21 against .03 * 2 = .06.
        # 2 Gy: .1 * 2 + .01 * 4 = .24.
        drug = np.array([[2.0, 7.0, 2.0, 7.0]])
        free = next_volumes(P, someone(), np.array([100.0]), drug, np.zeros(1))
        np.testing.assert_allclose(free, [[98.951392, 83.951392, 74.951392, 59.951392]], atol=1e-5)
        noisy = next_volumes(P, someone(), np.array([100.0]), drug, np.array([0.02]))
        np.testing.assert_allclose(noisy - free, 2.0, atol=1e-12)
        # A tumour of the capacity neither grows nor shrinks.
        free = next_volumes(P, someone(), np.array([P.capacity]), np.zeros((1, 4)), np.zeros(1))
        assert free[0, 0] == pytest.approx(P.capacity, rel=1e-14)

    def test_half_of_the_drug_is_gone_after_a_day_along_a_course(self) -> None:
        drug, seen = np.zeros(1), []
        for action in (1, 0, 3, 0, 2):
            drug = drug_concentration(P, drug)[:, action]
            seen.append(float(drug[0]))
        assert seen == [5.0, 2.5, 6.25, 3.125, 1.5625]
        slow = replace(P, half_life=2.0)
        twice = drug_concentration(slow, drug_concentration(slow, np.array([8.0]))[:, 0])
        np.testing.assert_allclose(twice[:, 0], 4.0)
        # A course follows the equations.
        made = follow_patients(P, someone(), fixed(1, 3), 0.0)
        volume, drug = 100.0, 0.0
        for shown in made.batch.obs[0, 1:, 0]:
            drug = drug / 2 + 5.0
            volume *= 1 + 0.01 * np.log(P.capacity / volume) - 0.03 * drug
            assert shown == pytest.approx(volume, rel=1e-6)
        # The dose of radiation counts squared.
        none, both = replace(P, radio_dose=0.0), replace(P, radio_dose=4.0)
        free = (next_volumes(p, someone(), np.array([100.0]), np.zeros((1, 4)), np.zeros(1)) for p in (none, both))
        assert -np.diff([volumes[0, 2] for volumes in free]) == pytest.approx(100 * (0.1 * 4 + 0.01 * 16))


class TestPatients:
    drawn = draw_patients(P, 40_000, np.random.default_rng(0))

    def test_stages_come_in_their_published_shares(self) -> None:
        share = np.bincount(self.drawn.stage, minlength=5) / 40_000
        np.testing.assert_allclose(share, np.array([1432, 128, 1306, 7248, 12840]) / 22954, atol=0.01)

    @pytest.mark.parametrize(("stage", "largest"), [(0, 5.0), (1, 13.0), (4, 13.0)])
    def test_diameters_are_log_normal_between_their_bounds(self, stage: int, largest: float) -> None:
        diameter = sphere_diameter(self.drawn.volume[self.drawn.stage == stage])
        assert diameter.min() >= 0.3 * (1 - 1e-12)
        assert diameter.max() <= largest * (1 + 1e-12)
        # Redrawing until a diameter is inside gives the same law.
        law, rng = P.stages[stage], np.random.default_rng(1)
        plain = np.exp(law.log_mean + law.log_sd * rng.standard_normal(200_000))
        plain = plain[(plain >= 0.3) & (plain <= largest)]
        error = np.hypot(np.log(diameter).std() / np.sqrt(len(diameter)), np.log(plain).std() / np.sqrt(len(plain)))
        assert abs(np.log(diameter).mean() - np.log(plain).mean()) < 4 * error

    def test_answers_to_treatment_are_positive_and_correlated(self) -> None:
        for name in ("growth", "radio", "chemo"):
            assert getattr(self.drawn, name).min() > 0
        plain = self.drawn.patient_type == 2
        radio, growth = self.drawn.radio[plain], self.drawn.growth[plain]
        # The truncated law by brute force.
        pairs = np.random.default_rng(1).multivariate_normal(
            [0.0398, 7e-5], [[0.168**2, 0.87 * 0.168 * 7.23e-3], [0.87 * 0.168 * 7.23e-3, 7.23e-3**2]], size=200_000
        )
        pairs = pairs[(pairs > 0).all(axis=1)]
        np.testing.assert_allclose([radio.mean(), growth.mean()], pairs.mean(axis=0), rtol=0.03)
        assert np.corrcoef(radio, growth)[0, 1] == pytest.approx(np.corrcoef(pairs.T)[0, 1], abs=0.03)
        assert np.corrcoef(radio, growth)[0, 1] > 0.6
        # A negative correlation is drawn too.
        other = draw_patients(replace(P, correlation=-0.9), 4000, np.random.default_rng(0))
        assert np.corrcoef(other.radio, other.growth)[0, 1] < -0.2

    def test_types_are_equally_common_and_each_answers_better_to_one_treatment(self) -> None:
        np.testing.assert_allclose(np.bincount(self.drawn.patient_type)[1:] / 40_000, 1 / 3, atol=0.01)
        chemo = [self.drawn.chemo[self.drawn.patient_type == kind].mean() for kind in (1, 2, 3)]
        np.testing.assert_allclose(chemo, [0.028, 0.028, 0.0308], atol=3e-5)
        # The same draw without the effect of the type.
        equal = draw_patients(replace(P, type_effect=0.0), 40_000, np.random.default_rng(0))
        more = self.drawn.radio - equal.radio
        np.testing.assert_allclose(more, np.where(self.drawn.patient_type == 1, 0.00398, 0.0), atol=1e-12)

    def test_constants_without_spread_are_the_means(self) -> None:
        same = replace(P, growth_sd=0.0, radio_sd=0.0, chemo_sd=0.0, type_effect=0.0)
        drawn = draw_patients(same, 5, np.random.default_rng(0))
        for name, mean in (("growth", 7e-5), ("radio", 0.0398), ("chemo", 0.028)):
            np.testing.assert_array_equal(getattr(drawn, name), np.full(5, mean))


class TestPolicy:
    def test_chances_by_hand(self) -> None:
        np.testing.assert_allclose(treatment_probability(P, [0.0, 6.5, 13.0], 0.0), 0.5)
        # gamma / 13 * (13 - 6.5) = 2 for gamma 4; sigmoid(2) = .880797.
        strong = treatment_probability(P, [0.0, 6.5, 13.0], 4.0)
        np.testing.assert_allclose(strong, [0.119203, 0.5, 0.880797], atol=1e-6)

    def test_without_confounding_half_of_all_days_are_treated_whatever_the_volume(self, cohorts) -> None:
        made = cohorts[0]
        np.testing.assert_allclose(live_rates(made), 0.5, atol=0.01)
        mask = made.batch.mask
        taken, volume = made.batch.actions[mask], made.batch.obs[:, :-1, 0][mask]
        for size in (volume < 1, volume > 50):
            np.testing.assert_allclose(np.bincount(taken[size], minlength=4) / size.sum(), 0.25, atol=0.02)

    def test_strong_confounding_treats_the_larger_tumours(self, cohorts) -> None:
        rates = {gamma: live_rates(made) for gamma, made in cohorts.items()}
        assert rates[0][0] > rates[4][0] > rates[10][0]
        batch = cohorts[10].batch
        first, action = sphere_diameter(batch.obs[:, 0, 0]), batch.actions[:, 0]
        for treated in (np.isin(action, (1, 3)), np.isin(action, (2, 3))):
            assert first[treated].mean() > first[~treated].mean() + 3.0

    def test_before_the_first_decision_nobody_is_treated(self) -> None:
        later = simulate_counterfactuals(replace(P, first_decision=2), 300, 0.0, np.random.default_rng(0))
        assert (later.batch.actions[:, :2] == 0).all()
        assert (later.batch.actions[:, 2] > 0).mean() == pytest.approx(0.75, abs=0.1)
        # What a treatment would have done is known all the same.
        assert (later.outcomes[:, 0, 0] > later.outcomes[:, 0, 1]).all()

    def test_the_mean_of_the_last_days_decides(self) -> None:
        # Noise halves the volume on day 0 and nothing happens afterwards: the window forgets day 0 after three days.
        p = replace(P, policy_window=3, horizon=5, noise=1.0)
        patients = someone(growth=1e-300)
        growth = np.array([[-0.5, 0.0, 0.0, 0.0, 0.0]])
        large, small = sphere_diameter(100.0), sphere_diameter(50.0)
        means = [large, (large + small) / 2, (large + 2 * small) / 3, small, small]
        for side, action in ((-1e-9, 1), (1e-9, 0)):
            # A treatment would move the volume; days are looked at one by one, with no treatment before.
            for day, mean in enumerate(means):
                treatment = np.ones((1, 5, 2))
                treatment[0, day, 0] = treatment_probability(p, mean, 4.0) + side
                made = follow_patients(p, patients, Chances(growth, treatment, np.full((1, 5), 0.5)), 4.0)
                assert made.batch.actions[0, day] == action
                assert (made.batch.actions[0, :day] == 0).all()


class TestEnds:
    def test_death_is_shown_at_exactly_thirteen_centimetres(self) -> None:
        p = replace(P, noise=1.0)
        patients = someone(2, volume=1000.0)
        growth = np.array([[0.05, 0.2, 0.0], [0.05, 0.05, 0.05]])
        made = follow_patients(p, patients, replace(fixed(0, 3, 2), growth=growth), 0.0)
        # Both are at 1,076 after a day; 20 % more is beyond 1,150, and so is the other's 5 % with its growth.
        assert made.batch.obs[0, 2, 0] == np.float32(sphere_volume(13.0))
        assert made.batch.lengths.tolist() == [2, 2]
        assert made.batch.terminated.all()
        assert (made.batch.obs[:, 3] == 0).all()

    def test_recovery_is_certain_when_no_cell_is_left(self) -> None:
        # 1 - (.5 * 2 + .05 * 4) < 0: one radiotherapy kills every cell.
        made = follow_patients(P, someone(radio=0.5), fixed(2, 4, recovery=1 - 1e-12), 0.0)
        assert made.batch.lengths.tolist() == [1]
        assert made.batch.terminated.all()
        assert made.batch.obs[0, 1, 0] == 0
        np.testing.assert_array_equal(made.outcomes[0, 0, [2, 3]], 0.0)
        assert (made.outcomes[0, 0, :2] > 0).all()

    def test_the_last_cell_survives_with_its_chance(self) -> None:
        # After a day 1e-9 cm^3 have become 1e-9 (1 + .01 log(K / 1e-9)) cm^3 of 5.8e8 cells each.
        volume = 1e-9 * (1 + 0.01 * np.log(P.capacity / 1e-9))
        chance = np.exp(-volume * 5.8e8)
        for recovery, length in ((chance * 0.999, 1), (chance * 1.001, 2)):
            course = np.array([[recovery, 0.0]])
            made = follow_patients(P, someone(volume=1e-9), replace(fixed(0, 2), recovery=course), 0.0)
            assert made.batch.lengths[0] == length
            assert made.batch.obs[0, length, 0] == 0

    def test_watching_ends_at_the_horizon(self, cohorts) -> None:
        short = simulate(replace(P, horizon=7), 200, 2.0, np.random.default_rng(0))
        assert short.obs.shape == (200, 8, 3)
        assert (short.lengths[short.truncated] == 7).all()
        assert short.truncated.any()
        for made in cohorts.values():
            batch = made.batch
            last = batch.obs[np.arange(len(batch)), batch.lengths, 0]
            ended = (last == 0) | (last == np.float32(P.death_volume))
            np.testing.assert_array_equal(ended, batch.terminated)
            earlier = batch.obs[:, :-1, 0][batch.mask]
            assert (earlier > 0).all()
            assert (earlier <= P.death_volume * (1 + 1e-6)).all()


class TestCounterfactuals:
    def test_the_action_taken_leads_to_what_is_shown(self, cohorts) -> None:
        for made in cohorts.values():
            batch = made.batch
            taken = np.take_along_axis(made.outcomes, batch.actions[..., None], axis=2)[..., 0]
            np.testing.assert_array_equal(taken, batch.next_obs[..., 0])
            assert (made.outcomes[~batch.mask] == 0).all()
            assert made.outcomes.dtype == np.float32

    def test_more_treatment_never_leaves_more_tumour(self, cohorts) -> None:
        outcomes = cohorts[4].outcomes[cohorts[4].batch.mask]
        for less, more in ((0, 1), (0, 2), (1, 3), (2, 3)):
            assert (outcomes[:, less] >= outcomes[:, more]).all()

    def test_every_column_is_the_course_under_that_action_with_the_same_noise(self) -> None:
        patients = draw_patients(P, 50, np.random.default_rng(0))
        chances = draw_chances(50, 6, np.random.default_rng(1))
        made = follow_patients(P, patients, chances, 0.0)
        for action in range(4):
            changed = chances.treatment.copy()
            changed[:, 5] = fixed(action, 1).treatment[:, 0]
            other = follow_patients(P, patients, replace(chances, treatment=changed), 0.0)
            np.testing.assert_array_equal(other.batch.obs[:, :6], made.batch.obs[:, :6])
            np.testing.assert_array_equal(other.batch.obs[:, 6, 0], made.outcomes[:, 5, action])

    def test_without_bounds_only_what_was_not_done_changes(self, cohorts) -> None:
        made = cohorts[0]
        free = simulate_counterfactuals(P, 2000, 0, np.random.default_rng(7), bounded=False)
        assert free.batch == made.batch
        assert free.outcomes.min() < 0 == made.outcomes.min()
        taken = np.take_along_axis(free.outcomes, free.batch.actions[..., None], axis=2)[..., 0]
        np.testing.assert_array_equal(taken, free.batch.next_obs[..., 0])
        inside = (free.outcomes > 1e-6) & (free.outcomes <= P.death_volume)
        np.testing.assert_array_equal(free.outcomes[inside], made.outcomes[inside])


class TestRandomness:
    def test_the_same_seed_gives_the_same_bytes_and_every_confounding_the_same_patients(self, cohorts) -> None:
        again = simulate_counterfactuals(P, 2000, 4, np.random.default_rng(7))
        assert again.batch == cohorts[4].batch
        assert again.outcomes.tobytes() == cohorts[4].outcomes.tobytes()
        assert simulate(P, 2000, 4, np.random.default_rng(7)) == again.batch
        assert simulate(P, 2000, 4, np.random.default_rng(8)) != again.batch
        np.testing.assert_array_equal(cohorts[0].batch.start, cohorts[10].batch.start)

    @pytest.mark.parametrize("rows", [np.arange(30)[::-1], np.array([4]), np.array([7, 7, 2])])
    def test_a_patient_does_not_depend_on_the_others(self, rows: np.ndarray) -> None:
        patients = draw_patients(P, 30, np.random.default_rng(0))
        chances = draw_chances(30, 20, np.random.default_rng(1))
        whole = follow_patients(P, patients, chances, 3.0)
        some = follow_patients(P, chosen(patients, rows), chosen(chances, rows), 3.0)
        np.testing.assert_array_equal(some.outcomes, whole.outcomes[rows])
        np.testing.assert_array_equal(some.batch.obs, whole.batch.obs[rows])
        np.testing.assert_array_equal(some.batch.lengths, whole.batch.lengths[rows])

    def test_the_batch_says_what_it_shows(self, cohorts) -> None:
        batch = cohorts[0].batch
        assert (batch.features, batch.action_names) == (FEATURES, ACTION_NAMES)
        assert batch.horizon == 60
        kinds = draw_patients(P, 2000, np.random.default_rng(7)).patient_type
        shown = np.stack([kinds == 1, kinds == 3], axis=1)
        np.testing.assert_array_equal(batch.obs[..., 1:], shown[:, None] * batch.seen[..., None])


def chosen(of, rows):
    return type(of)(**{field.name: getattr(of, field.name)[rows] for field in fields(of)})


def test_percent_error_by_hand_and_its_bad_input() -> None:
    predicted, outcomes = np.zeros((2, 2, 2, 4))
    predicted[0, 0] = [23.0, 0.0, 0.0, 0.0]  # 2 % of 1,150 in one of eight live numbers
    predicted[1, 1] = 1e6  # padding
    mask = np.array([[True, False], [True, False]])
    assert percent_error(predicted, outcomes, mask) == pytest.approx(2 / np.sqrt(8))
    assert percent_error(outcomes, outcomes, mask) == 0.0
    bad = outcomes.copy()
    bad[0, 1, 1] = np.nan
    percent_error(bad, outcomes, mask)
    for predicted, seen, live, message in (
        (outcomes[:, :, :1], outcomes, mask, r"must be \[N, T, A\]"),
        (outcomes, outcomes, mask[:, :1], r"mask bool \[N, T\]"),
        (outcomes, outcomes, mask.astype(np.int64), "int64"),
        (outcomes, outcomes, mask & False, "no step is live"),
        (bad, outcomes, ~mask, "predicted holds numbers that are not finite"),
        (outcomes, bad, ~mask, "outcomes holds"),
    ):
        with pytest.raises(ValueError, match=message):
            percent_error(predicted, seen, live)


class TestBadArguments:
    @pytest.mark.parametrize(
        ("n", "gamma", "message"),
        [
            *((n, 0.0, "n_patients must be a whole number") for n in (0, -1, 2.0, True, "3")),
            *((1, gamma, "confounding must be a finite number") for gamma in (-0.1, np.nan, np.inf, "2", None)),
        ],
    )
    def test_patients_and_confounding(self, n: object, gamma: object, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            simulate(P, n, gamma, np.random.default_rng(0))  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            *((name, 0) for name in ("growth_mean", "radio_mean", "chemo_mean", "alpha_beta_ratio", "cell_density")),
            *((name, -1e-9) for name in ("growth_sd", "radio_sd", "chemo_sd", "noise", "type_effect", "radio_dose")),
            *(("horizon", value) for value in (0, 1.5, True)),
            *(("first_decision", value) for value in (-1, 1.0)),
            *(("death_diameter", value) for value in (np.inf, 31.0)),
            *(("correlation", value) for value in (1.0, -0.995)),
            *(("stages", value) for value in ((), ("I",), (Stage("V", 1, 0.0, 1.0, 1.0, 14.0),))),
            *(("policy_window", 0), ("half_life", 0.0), ("chemo_dose", np.nan), ("capacity_diameter", "30")),
        ],
    )
    def test_constants(self, name: str, value: object) -> None:
        with pytest.raises(ValueError, match=rf"TumourGrowthParameters\..*{name}"):
            TumourGrowthParameters(**{name: value})  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("numbers", "said"),
        [
            ((0, 1.0, 1.0, 0.3, 5.0), "cases"),
            ((1, np.nan, 1.0, 0.3, 5.0), "log_mean"),
            ((1, 1.0, 0.0, 0.3, 5.0), "log_sd"),
            ((1, 1.0, 1.0, -0.3, 5.0), "smallest"),
            ((1, 1.0, 1.0, 5.0, 5.0), "smallest"),
        ],
    )
    def test_stages(self, numbers: tuple[float, ...], said: str) -> None:
        with pytest.raises(ValueError, match=rf"Stage 'II': {said}"):
            Stage("II", *numbers)
