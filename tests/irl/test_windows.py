"""Weights per window of time: a window is a mask over decisions, and what changes in time is found where it changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from exact_experts import NEGATIVE, ExactAgent, drawn
from msgspec import structs
from posteriors import posterior_like
from sample_result import sample_result
from shown import page_of, printed_result, rows_of
from small_batches import batch_of
from tiny_run import tiny_demo, tiny_fit
from tumour_experts import QUICK, Turning, expert_of, played, solved

from cirl_gym.data.batch import Batch
from cirl_gym.data.habits import Contexts
from irl.commands import explain as commands
from irl.commands.cli import main
from irl.preferences.choice import Decisions, Density
from irl.preferences.inference import PosteriorConfig, judged_preferences
from irl.preferences.likelihood import PlanPool
from irl.preferences.posterior import normal_posterior, prepared, sample_posterior
from irl.report.section import MINUS, signed
from irl.result.result import Result
from irl.result.sentences import window_sentences
from irl.result.windows import TimeWindow, WindowChange, WindowWeights, check_starts
from irl.settings import FitConfig
from irl.studies.windows import (
    FEWEST_DECISIONS,
    FEWEST_PATIENTS,
    change,
    gain,
    patient_influence,
    said_of,
    time_windows,
    window_pool,
)

EARLY, LATE = (-0.3, -0.7), (-0.7, -0.3)
GAMMA, KAPPA, STEPS, CHANGE = 0.8, 8.0, 8, 4
SMALL = PosteriorConfig(decisions=10_000, plans=6, near_plans=2, draws=60)
AGENT = ExactAgent(GAMMA, STEPS)


def plans(batch: Batch, weights) -> PlanPool:
    return PlanPool(batch, np.stack([AGENT.psi(batch, np.array(w)) for w in weights]))


def spread_plans(batch: Batch) -> PlanPool:
    share = np.linspace(0.05, 0.95, 10)
    return plans(batch, np.stack([-share, share - 1], axis=1))


def windows_of(pool: PlanPool, starts, seed: int = 0, config: PosteriorConfig = SMALL) -> tuple[TimeWindow, ...]:
    return time_windows(
        lambda w, width: AGENT.psi(pool.batch, w), pool, NEGATIVE, starts, config, np.random.default_rng(seed)
    )


@pytest.fixture(scope="module")
def changing() -> Batch:
    """Experts who turn from the one to the other at step 4."""
    return drawn([EARLY] * CHANGE + [LATE] * (STEPS - CHANGE), GAMMA, KAPPA, 100, 1)


@pytest.fixture(scope="module")
def changing_windows(changing):
    return windows_of(spread_plans(changing), (0, CHANGE))


@pytest.fixture(scope="module")
def pool() -> PlanPool:
    """Plans along decisions of few patients."""
    return spread_plans(drawn([EARLY] * CHANGE + [LATE] * (STEPS - CHANGE), GAMMA, KAPPA, 40, 3))


@pytest.fixture(scope="module")
def part() -> PlanPool:
    """Two stays of each patient, and of these the first steps."""
    batch = drawn([EARLY] * STEPS, GAMMA, KAPPA, 40, 7)
    return window_pool(spread_plans(replace(batch, groups=tuple(f"p{i // 2:02d}" for i in range(40)))), 0, CHANGE)


def test_each_window_finds_its_weights_and_a_change_beyond_chance(changing, changing_windows):
    early, late = (window.found for window in changing_windows)
    assert early.weights == pytest.approx(EARLY, abs=0.05)
    assert late.weights == pytest.approx(LATE, abs=0.05)
    for found, truth in ((early, EARLY), (late, LATE)):
        assert all(low <= value <= high for (low, high), value in zip(found.intervals, truth, strict=True))
        assert found.kappa == pytest.approx(KAPPA, rel=0.3)
    whole = normal_posterior(spread_plans(changing), NEGATIVE, 500, np.random.default_rng(0))
    assert late.weights[0] + 0.05 < whole.mean[0] < early.weights[0] - 0.05
    assert changing_windows[0].changes is None
    first, second = changing_windows[1].changes
    assert first.clear
    assert second.clear
    assert first.difference == pytest.approx(-0.4, abs=0.08)
    assert first.interval[0] < -0.4 < first.interval[1] < 0 < second.interval[0]
    assert second.difference == pytest.approx(-first.difference)
    early, late = changing_windows
    assert (early.from_, early.to, late.from_, late.to) == (0, CHANGE - 1, CHANGE, None)
    assert early.decisions == changing.mask[:, :CHANGE].sum()
    assert late.decisions == changing.mask[:, CHANGE:].sum()
    assert early.patients == late.patients == 100
    assert windows_of(spread_plans(changing), (0, CHANGE)) == changing_windows


def test_experts_who_do_not_change_show_no_change():
    same = drawn([EARLY] * STEPS, GAMMA, KAPPA, 100, 2)
    early, late = windows_of(spread_plans(same), (0, CHANGE))
    assert not any(one.clear for one in late.changes)
    for found in (early.found, late.found):
        assert found.weights == pytest.approx(EARLY, abs=0.06)


class TestInvariance:
    """Neither names of actions, nor the order of episodes, nor padding, nor other decisions matter to a window."""

    def same(self, one: PlanPool, other: PlanPool) -> None:
        for first, end in ((2, 6), (CHANGE, None)):
            parts = [window_pool(pool, first, end) for pool in (one, other)]
            # Draws follow other paths after a rounding error; what they are drawn around does not.
            peaks = [density.theta(peak) for density, peak, _ in (prepared(part, NEGATIVE) for part in parts)]
            np.testing.assert_allclose(peaks[0], peaks[1], rtol=1e-3)
            found = normal_posterior(parts[0], NEGATIVE, 50, np.random.default_rng(0))
            influence = [patient_influence(part, found) for part in parts]
            assert list(influence[0]) == list(influence[1])
            for patient, row in influence[0].items():
                np.testing.assert_allclose(influence[1][patient], row, atol=1e-9)

    def test_names_of_actions_order_of_episodes_and_padding(self, pool):
        renamed = replace(pool.batch, actions=np.where(pool.batch.mask, 1 - pool.batch.actions, 0))
        self.same(pool, PlanPool(renamed, pool.psi[:, :, :, ::-1]))
        order = np.random.default_rng(0).permutation(len(pool.batch))
        self.same(pool, PlanPool(pool.batch.take(order), pool.psi[:, order]))
        more = np.pad(pool.psi, ((0, 0), (0, 0), (0, 3), (0, 0), (0, 0)), constant_values=np.nan)
        more[:, ~pool.batch.padded(STEPS + 3).mask] = np.nan
        self.same(pool, PlanPool(pool.batch.padded(STEPS + 3), more))

    def test_decisions_outside(self, pool):
        part = window_pool(pool, 2, 6)
        other = pool.batch.actions.copy()
        other[:, :2], other[:, 6:] = 1, 1
        spoilt = pool.psi.copy()
        spoilt[:, :, :2] = spoilt[:, :, 6:] = 7.0
        again = window_pool(PlanPool(replace(pool.batch, actions=other), spoilt), 2, 6)
        np.testing.assert_array_equal(again.batch.actions, part.batch.actions)
        np.testing.assert_array_equal(again.psi, part.psi)


def test_a_window_by_hand():
    batch = batch_of([0, 1, 1, 0], [1], [1, 0], [1, 1, 1], groups=("p", "q", "p", "r"))
    batch = replace(batch, terminated=np.array([0, 1, 1, 0], bool), truncated=np.array([1, 0, 0, 1], bool))
    allowed = np.random.default_rng(1).random((4, 4, 2)) < 0.5
    np.put_along_axis(allowed, batch.actions[..., None], True, axis=2)
    batch = replace(batch, allowed=allowed)
    psi = np.random.default_rng(0).normal(size=(3, 4, 4, 2, 2))
    part = window_pool(PlanPool(batch, psi), 1, 3)
    np.testing.assert_array_equal(part.batch.actions, [[1, 1], [0, 0], [1, 1]])
    np.testing.assert_array_equal(part.batch.allowed, allowed[[0, 2, 3], 1:3])
    np.testing.assert_array_equal(part.batch.lengths, [2, 1, 2])
    np.testing.assert_array_equal(part.batch.terminated, [False, True, False])
    assert part.batch.ids == ("e0", "e2", "e3")
    assert part.batch.groups == ("p", "p", "r")
    np.testing.assert_array_equal(part.psi, psi[:, [0, 2, 3], 1:3])
    last = window_pool(PlanPool(batch, psi), 3, None)
    assert (last.batch.ids, last.batch.n_steps) == (("e0",), 1)
    assert window_pool(PlanPool(batch, psi), 4, None) is None
    assert window_pool(PlanPool(batch, psi), 9, 12) is None


def test_windows_together_hold_every_decision_once():
    pool = spread_plans(drawn([EARLY] * STEPS, GAMMA, KAPPA, 20, 4))
    contexts = Contexts.of(pool.batch, ("previous",))
    pool = replace(pool, contexts=contexts, levels=None)
    theta, logits = np.array([-3.6, -5.4]), np.array([[0.0, 0.3], [1.0, -1.0], [-0.5, 0.5]])
    parts = [window_pool(pool, first, end) for first, end in ((0, 2), (2, 3), (3, 7), (7, None))]
    # The action before a window's first is in none of its rows, and a habit knows it all the same.
    np.testing.assert_array_equal(parts[1].levels, pool.levels[pool.batch.lengths > 2, 2:3])
    total = sum(said_of(part, theta, logits).sum() for part in parts)
    assert total == pytest.approx(said_of(pool, theta, logits).sum())


def test_windows_with_too_few_decisions_or_patients_are_named_and_not_fitted():
    batch = drawn([EARLY] * STEPS, GAMMA, KAPPA, 30, 5)
    first, thin, last, beyond = windows_of(spread_plans(batch), (0, 7, 8, 50))
    assert first.found is not None
    assert 0 < thin.decisions < FEWEST_DECISIONS
    assert (thin.from_, thin.to, thin.found, thin.changes) == (7, 7, None, None)
    for empty in (last, beyond):
        assert (empty.decisions, empty.patients, empty.found, empty.changes) == (0, 0, None, None)
    batch = drawn([EARLY] * STEPS, GAMMA, KAPPA, 90, 6)
    few = replace(batch, groups=tuple(str(i % (FEWEST_PATIENTS - 1)) for i in range(90)))
    enough = replace(batch, groups=tuple(str(i % FEWEST_PATIENTS) for i in range(90)))
    assert windows_of(spread_plans(few), (0,))[0].found is None
    assert windows_of(spread_plans(enough), (0,))[0].found is not None


def test_a_pool_that_is_thin_near_a_window_gets_plans_there(changing, changing_windows):
    poor = plans(changing, [(-0.95, -0.05)])
    asked: list[tuple[tuple[float, ...], int | None]] = []

    def psi(w, width):
        asked.append((tuple(w), width))
        return AGENT.psi(changing, w)

    found = time_windows(psi, poor, NEGATIVE, (0, CHANGE), SMALL, np.random.default_rng(0))
    for window, rich in zip(found, changing_windows, strict=True):
        assert window.found.weights == pytest.approx(rich.found.weights, abs=0.03)
    assert {width for _, width in asked} == {SMALL.near_width}
    # Of a rich pool, only the plan of each window's own mean is asked for.
    asked.clear()
    time_windows(psi, spread_plans(changing), NEGATIVE, (0, CHANGE), SMALL, np.random.default_rng(0))
    assert len(asked) == 2


def test_gain_by_hand():
    # One decision, q = (0, 1) and kappa = ln 3: p = 3/4. With a plan of value 1 for the other action: p = 1/2.
    batch = batch_of([1])
    part = PlanPool(batch, np.array([[[[[0.0, 0.0], [1.0, 0.0]]]]]))
    exact = part.extended(np.array([[[[[1.0, 0.0], [0.0, 0.0]]]]]))
    posterior = posterior_like(np.array([1.0, 0.0]), kappa=np.log(3))
    assert gain(part, exact, posterior) == pytest.approx(np.log(3 / 2))
    assert gain(exact, exact, posterior) == 0


def test_influence_is_how_the_mean_moves_and_has_the_spread_of_the_bootstrap(part):
    posterior = sample_posterior(part, NEGATIVE, np.random.default_rng(0))
    influence = patient_influence(part, posterior)
    assert list(influence) == [f"p{i:02d}" for i in range(20)]
    rows = np.array(list(influence.values()))
    np.testing.assert_allclose(rows[:, 1], -rows[:, 0], atol=1e-12)
    most = int(np.abs(rows[:, 0]).argmax())

    def mean_with(episodes):
        """Of the weights, the likelihood to the power that it has now."""
        drawn = PlanPool(part.batch.resampled(episodes), part.psi[:, episodes])
        density = Density(Decisions.of(drawn), NEGATIVE, posterior.sampler.power)
        at = np.random.default_rng(0).multivariate_normal(*density.peak(), size=2000)
        theta = density.theta(at)
        return (theta / np.abs(theta).sum(axis=1, keepdims=True)).mean(axis=0)[0]

    patient = np.array([int(name[1:]) for name in part.batch.groups])
    every = np.arange(len(patient))
    moved = (mean_with([*every, *every[patient == most]]) - mean_with(every[patient != most])) / 2
    assert rows[most, 0] == pytest.approx(moved, rel=0.35)
    rng = np.random.default_rng(1)
    drawn = [np.concatenate([every[patient == p] for p in rng.integers(20, size=20)]) for _ in range(40)]
    spread = np.std([mean_with(episodes) for episodes in drawn])
    assert np.sqrt(20 * rows[:, 0].var(ddof=1)) == pytest.approx(spread, rel=0.35)
    # Copies of a patient's decisions are of one mind with the first: they pull no harder.
    copies = np.repeat(every, 4)
    copied = PlanPool(part.batch.resampled(copies), part.psi[:, copies])
    again = patient_influence(copied, normal_posterior(copied, NEGATIVE, 1000, np.random.default_rng(0)))
    assert np.sqrt(20 * np.var([row[0] for row in again.values()], ddof=1)) == pytest.approx(spread, rel=0.35)


class TestChange:
    A, B = np.array([-0.5, -0.5]), np.array([-0.4, -0.6])

    def test_the_chance_of_which_actions_were_drawn(self):
        before, after = posterior_like(self.A, 0.03), posterior_like(self.B, 0.04, seed=1)
        nobody = {"p": np.zeros(2), "q": np.zeros(2)}
        first, second = change(before, after, nobody, nobody)
        assert first.difference == pytest.approx(0.1)
        np.testing.assert_allclose(first.interval, 0.1 + 1.645 * 0.05 * np.array([-1, 1]), atol=0.005)
        np.testing.assert_allclose(second.interval, [-first.interval[1], -first.interval[0]])
        assert first.clear

    @pytest.mark.parametrize(("later", "spread"), [(1.0, 0.0), (-1.0, 0.4), (0.0, 0.2)])
    def test_the_chance_of_which_patients_were_seen_is_paired(self, later, spread):
        # Two patients pull by +.1 and -.1 in the first window; in the second alike, the other way round, or not at all.
        pull = {"p": np.array([0.1, -0.1]), "q": np.array([-0.1, 0.1])}
        again = {name: later * row for name, row in pull.items()}
        exact = posterior_like(self.A), posterior_like(self.B)
        first, _ = change(*exact, pull, again)
        # The standard error for two patients: sqrt(2 var) of +-x is 2 x.
        np.testing.assert_allclose(first.interval, 0.1 + 1.645 * spread * np.array([-1, 1]), atol=1e-3)

    def test_a_patient_may_be_in_one_window_only_and_no_two_weights_are_further_apart_than_two(self):
        exact = posterior_like(self.A), posterior_like(self.B)
        pull = {"p": np.array([0.1, -0.1]), "q": np.array([-0.1, 0.1])}
        assert change(*exact, pull, {})[0] == change(*exact, pull, {"p": np.zeros(2), "q": np.zeros(2)})[0]
        strong = {name: 90 * row for name, row in pull.items()}
        assert change(*exact, strong, {})[0].interval == (-2.0, 2.0)


def test_three_features_are_sampled_and_two_windows_told_apart():
    # Decisions that end with their own outcome: psi needs no plan.
    rng = np.random.default_rng(8)
    truths = np.array([[-0.2, 0.3, -0.5]] * 5 + [[0.5, 0.3, -0.2]] * 5)
    phi = rng.random((80, 10, 3, 3))
    logits = 30 * np.einsum("ntad,td->nta", phi, truths)
    batch = batch_of(*(logits + rng.gumbel(size=logits.shape)).argmax(axis=2), n_actions=3, d=3)
    config = PosteriorConfig(draws=200)
    found = time_windows(
        lambda w, width: phi, PlanPool(batch, phi[None]), np.zeros(3), (0, 5), config, np.random.default_rng(0)
    )
    for window, truth in zip(found, truths[[0, -1]], strict=True):
        np.testing.assert_allclose(window.found.weights, truth, atol=0.07)
    assert [one.clear for one in found[1].changes] == [True, False, True]
    assert found[1].changes[0].difference == pytest.approx(0.7, abs=0.1)


@pytest.mark.parametrize("starts", [(-1, 3), (-1,), (0, 0), (4, 2)])
def test_starts_must_rise_from_zero_on_and_are_refused_before_any_work(starts):
    for refuse in (check_starts, lambda starts: FitConfig(windows=starts)):
        with pytest.raises(ValueError, match=r"windows must be first steps from 0 on, each larger than the one before"):
            refuse(starts)


class TestSentences:
    FEATURES = ("x", "y", "z")

    @staticmethod
    def window(first, last, found=True, changes=None):
        weights = WindowWeights((-0.5, 0.3, 0.2), ((-0.6, -0.4), (0.2, 0.4), (0.1, 0.3)), 5.0, (4, 6))
        return TimeWindow(first, last, 70, 12, weights if found else None, changes)

    def test_sentences_list_clear_changes_largest_first_and_what_says_nothing(self):
        changes = (WindowChange(-0.1, (-0.2, -0.05)), WindowChange(0.05, (-0.1, 0.2)), WindowChange(0.4, (0.2, 0.6)))
        said = window_sentences(self.FEATURES, (self.window(0, 4), self.window(5, None, changes=changes)))
        assert said == ["From steps 0 to 4 to steps 5 on, these weights change beyond chance: z +0.40, x -0.10."]
        same = (WindowChange(0.0, (-0.1, 0.1)),) * 3
        windows = (self.window(2, 4), self.window(5, 9, changes=same), self.window(10, None, found=False))
        assert window_sentences(self.FEATURES, windows) == [
            "From steps 2 to 4 to steps 5 to 9, no weight changes beyond chance.",
            "Steps 10 on have too few decisions to say anything: 70 decisions of 12 patients.",
        ]
        assert window_sentences(self.FEATURES, ()) == []

    def test_of_a_weight_that_is_not_interpreted_nothing_is_said(self):
        changes = (WindowChange(-0.1, (-0.2, -0.05)), WindowChange(0.05, (-0.1, 0.2)), WindowChange(0.4, (0.2, 0.6)))
        windows = (self.window(0, 4), self.window(5, None, changes=changes))
        said = window_sentences(self.FEATURES, windows, {"z": "unknown"})
        assert said == ["From steps 0 to 4 to steps 5 on, these weights change beyond chance: x -0.10."]
        assert window_sentences(self.FEATURES, windows, dict.fromkeys(self.FEATURES, "unknown")) == []


def test_every_number_is_in_the_page_and_on_the_console():
    result = sample_result(2)
    page, shown = page_of(result), printed_result(result)
    first, second, _ = result.windows
    for number in (*first.found.weights, *second.found.weights, second.changes[0].difference):
        assert signed(number) in page
        assert f"{number:+.3f}" in shown
    for text in ("1200", "1130", "120.2", "too few"):
        assert text in page
        assert text in shown
    assert 'id="windows"' in page
    assert "per window of time" not in page_of(structs.replace(result, windows=()))
    clear = (WindowChange(0.1, (0.05, 0.15)), WindowChange(-0.1, (-0.15, 0.05)))
    marked = structs.replace(result, windows=(first, structs.replace(second, changes=clear)))
    assert [row[4] for row in rows_of(marked, "windows", "Weights")] == ["", "+0.100 *", "", f"{MINUS}0.100"]


def test_a_result_checks_its_windows():
    result = sample_result(2)
    one, two, _ = result.windows
    for windows, message in (((two, one), "each larger than the one before"), ((two,), "the first has none before it")):
        with pytest.raises(ValueError, match=message):
            structs.replace(result, windows=windows)
    with pytest.raises(ValueError, match=r"windows\[0\]\.found\.weights must be 3 numbers, one per feature, got 2"):
        structs.replace(sample_result(3), windows=result.windows)


def test_a_whole_run_with_windows(tmp_path):
    fit = tiny_fit(windows=(0, 3, 6))
    config = tiny_demo(fit=replace(fit, posterior=replace(fit.posterior, decisions=300)))
    result = commands.demo(config, tmp_path)
    assert Result.read(tmp_path / "result.json").windows == result.windows
    early, late, beyond = result.windows
    assert early.decisions + late.decisions + beyond.decisions >= 300
    assert beyond.found is None  # six steps are all that there are
    assert len(late.changes) == 2
    assert "time windows" in result.seconds
    assert any("From steps 0 to 2 to steps 3 to 5" in sentence for sentence in result.headline)


def test_the_command_line_takes_windows(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr("irl.commands.explain.demo", lambda config, out: seen.append(config.fit))
    assert main(["demo", "--windows", "0", "6", "12", "--out", str(tmp_path)]) == 0
    assert main(["demo", "--windows", "6", "0", "--out", str(tmp_path)]) == 2
    assert [fit.windows for fit in seen] == [(0, 6, 12)]


@pytest.mark.slow
def test_experts_of_the_simulator_who_turn_at_step_4():
    """One successor expert, then another; the outcome model is the simulator itself, to see the windows alone."""
    experts = [expert_of(w, 0.5, 100.0) for w in (EARLY, LATE)]
    batch = played(Turning(experts[0].policy(1), experts[1].policy(2), 4), 600, 3)
    agent = solved(batch, 0.5)
    config = replace(QUICK.fit.posterior, decisions=3000)
    whole, pool = judged_preferences(agent.psi, batch, NEGATIVE, config, np.random.default_rng(5))
    early, late = time_windows(
        lambda w, width: agent.psi(pool.batch, w, width), pool, NEGATIVE, (0, 4), config, np.random.default_rng(6)
    )
    # Three windows gave -.294, -.777 (-.94 to -.67) and -.663 for true -.3, -.7 and -.7.
    assert early.found.weights == pytest.approx(EARLY, abs=0.04)
    assert late.found.weights == pytest.approx(LATE, abs=0.08)
    assert all(one.clear for one in late.changes)
    assert late.found.weights[0] < whole.mean[0] < early.found.weights[0]
