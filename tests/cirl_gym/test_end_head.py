"""The end-of-episode head: lines found in the data, calibrated, and no more than the ends support."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from outcome_batches import confounded, linear_system, random_model
from scripted import Scripted

from cirl_gym.data.batch import Batch
from cirl_gym.data.outcome_model import CounterfactualWorld
from cirl_gym.data.rollout import rollout
from cirl_gym.outcome_models import ends
from cirl_gym.outcome_models.ends import EndHead, EndHeadConfig, EndLines, fit_end_head
from cirl_gym.outcome_models.fitting import OutcomeModelConfig, fit_outcome_model
from cirl_gym.outcome_models.inputs import Scaler, end_labels
from cirl_gym.outcome_models.model import LearnedModel
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.outcome_models.training import TrainingConfig
from cirl_gym.worlds.tumour import TumourWorld

SCALER = Scaler(np.zeros(1), np.ones(1))


def one_feature(ends: list[float], stays: list[float]) -> Batch:
    """Episodes of one action: those that ended at the values given, then those that were cut off."""
    values, n = np.array([*ends, *stays]), len(ends) + len(stays)
    obs = np.stack([np.zeros(n), values], axis=1)[..., None]
    ended = np.arange(n) < len(ends)
    ids = tuple(str(i) for i in range(n))
    return Batch(obs, np.zeros((n, 1), dtype=np.int64), np.ones(n, np.int64), ended, ~ended, ("x",), ("0", "1"), ids)


def fit(train, validation, **config):
    """A head on predictions that are what was seen, under either action."""
    splits = tuple((b, np.repeat(b.next_obs[:, :, None].astype(np.float64), 2, axis=2)) for b in (train, validation))
    return fit_end_head(splits, Scaler.from_batch(train), np.full(1, 0.1), EndHeadConfig(**config), seed=0)


def test_lines_lie_half_way_between_the_last_stay_and_the_nearest_end_that_no_other_explains():
    lines = EndLines.from_batch(one_feature([-3.0, -2.0, -1.0, 7.0, 0.5], [0.0, 1.0, 5.0]), SCALER, np.ones(1))
    assert lines.low.tolist() == [-0.5]
    assert lines.high.tolist() == [np.inf]  # one end beyond every stay is no line
    assert lines.count == 1
    # Whoever ended beyond x = 0 had also, by chance, the largest y.
    x = np.concatenate([np.full(6, -1.0), np.linspace(1, 5, 40)])
    y = np.concatenate([np.linspace(8, 9, 6), np.linspace(0, 5, 40)])
    base = one_feature(list(x[:6]), list(x[6:]))
    obs = np.concatenate([base.obs, np.stack([np.zeros(46), y], axis=1)[..., None]], axis=2)
    both = replace(base, obs=obs, features=("x", "y"))
    lines = EndLines.from_batch(both, Scaler(np.zeros(2), np.ones(2)), np.ones(2))
    assert lines.low.tolist() == [-1.0, -np.inf]
    assert lines.high.tolist() == [np.inf, np.inf]


def test_head_inputs_and_the_formula_by_hand():
    lines = EndLines(np.array([-1.0]), np.array([np.inf]), np.array([0.5]), Scaler(np.array([1.0]), np.array([2.0])))
    now = np.full((1, 2, 1), 3.0, dtype=np.float32)
    inputs = lines.inputs(np.array([[[0.0], [99.0]]]), now, np.eye(2, dtype=np.float32)[None])
    # Scaled outcome (at most 5), scaled observation, one-hot action, tanh(distance / 2), tanh(distance / 8).
    assert inputs[0, 0] == pytest.approx([-0.5, 1, 1, 0, np.tanh(1), np.tanh(0.25)])
    assert inputs[0, 1] == pytest.approx([5, 1, 0, 1, 1, 1])
    assert inputs.shape[-1] == lines.width + 2
    low, high = np.array([-1.0, -np.inf]), np.array([np.inf, 4.0])
    lines = EndLines(low, high, np.array([0.5, 2.0]), Scaler(np.zeros(2), np.ones(2)))
    head = EndHead("lines", lines, 0.1)
    # One deviation above the first line, half a one below the second; and the tenth that ends anyway.
    inside = 0.8413447 * 0.6914625
    assert lines.crossed(np.array([-0.5, 3.0])) == pytest.approx(1 - inside, abs=1e-6)
    raw, newest = np.array([[[-0.5, 3.0], [50.0, -50.0]]]), np.zeros((1, 2), dtype=np.float32)
    np.testing.assert_allclose(head(raw, newest), [[1 - 0.9 * inside, 0.1]], atol=1e-6)
    alone = head.of_action(raw[:, 0], newest, np.eye(2, dtype=np.float32)[:1])
    np.testing.assert_array_equal(alone, head(raw, newest)[:, 0])


def test_no_end_no_probability():
    batch = linear_system(30, 0)
    for kind in ("ar", "crn"):
        config = replace(OutcomeModelConfig.quick(), end=EndHeadConfig())
        fitted = fit_outcome_model(kind, batch, batch, config, np.random.default_rng(0))
        assert fitted.report["end"]["kind"] == "never"
        assert "p_end is 0" in fitted.report["end"]["note"]
        assert fitted.report["end"]["at_ends"] == {"train": None, "validation": None}
        assert not fitted.model.end_probability(fitted.model.encode(batch)).any()


def test_ends_that_nothing_announces_get_their_rate():
    rng = np.random.default_rng(0)
    train, validation = (one_feature(list(rng.normal(size=n)), list(rng.normal(size=9 * n))) for n in (12, 12))
    head, report = fit(train, validation)
    assert report["kind"] == "constant"
    assert head(np.zeros((4, 2, 1)), np.zeros((4, 1), np.float32)) == pytest.approx(np.full((4, 2), 0.1))
    assert report["log_loss"]["train"] == pytest.approx(-(0.1 * np.log(0.1) + 0.9 * np.log(0.9)))
    assert report["at_ends"]["validation"] == pytest.approx(0.1)


def test_few_ends_are_constant_without_a_witness_and_evidence_beyond_a_line():
    train, validation = one_feature([5.0, 6.0], list(np.linspace(0, 4, 50))), one_feature([], [0.0, 1.0])
    assert fit(train, validation)[1]["kind"] == "constant"
    batch = one_feature([1.0, 2.0, 3.0], [])
    head, report = fit(batch, batch)
    assert report["kind"] == "constant"
    assert head(np.zeros((1, 2, 1)), np.zeros((1, 1), np.float32)).tolist() == [[1, 1]]
    stays = list(np.linspace(0, 4, 300))
    train, validation = one_feature([-0.5, -0.7, -1.0, -1.5, -2.0, -2.5, -3.0, -3.5], stays), one_feature([], stays)
    head, report = fit(train, validation)
    assert report["kind"] == "lines"
    p = head(np.array([[[-2.0], [-2.0]], [[3.0], [3.0]]]), np.zeros((2, 1), np.float32))
    assert p[0].min() > 0.8
    assert p[1].max() < 0.02


def test_ends_are_not_reweighted():
    """A coin decides beyond 0: the head says one half there, not one."""
    rng = np.random.default_rng(0)

    def coin(n):
        x = rng.normal(size=n)
        ended = (x < 0) & (rng.random(n) < 0.5)
        return one_feature(list(x[ended]), list(x[~ended]))

    head, report = fit(coin(4000), coin(1000))
    assert report["kind"] == "logistic" or report["kind"] == "network"
    p = head(np.array([[[-1.0]] * 2, [[1.0]] * 2]), np.zeros((2, 1), np.float32))
    assert p[0, 0] == pytest.approx(0.5, abs=0.12)
    assert p[1, 0] < 0.1


def test_the_simulators_cures_are_seen_coming():
    train, validation = confounded(3000)
    fitted = fit_outcome_model("ar", train, validation, OutcomeModelConfig(), np.random.default_rng(0))
    report, oracle = fitted.report["end"], OracleModel()
    every = oracle.end_probability(oracle.encode(validation)[:, :-1])
    true = np.take_along_axis(every, validation.actions[..., None], axis=2)[..., 0][validation.mask]
    ended = end_labels(validation)[validation.mask] > 0
    assert report["at_ends"]["validation"] > 0.9 * true[ended].mean() > 0.8
    assert report["elsewhere"]["validation"] < 0.005
    assert report["log_loss"]["validation"] < 0.1 * report["constant_log_loss"]["validation"]

    # Hardly anybody in the data is treated without pause, and still the cure comes when it must.
    world, starts = TumourWorld(noise=False), validation.start
    imagined = rollout(CounterfactualWorld(fitted.model, starts, 20), Scripted(1.0), 300, np.random.default_rng(0))
    real = rollout(world, Scripted(1.0), 300, np.random.default_rng(0), start=world.start(starts.astype(np.float64)))
    assert real.terminated.all()
    assert imagined.terminated.all()
    assert (np.abs(imagined.lengths - real.lengths) <= 1).mean() > 0.95
    assert imagined.lengths.mean() == pytest.approx(real.lengths.mean(), abs=0.1)


@pytest.mark.parametrize("kind", ["ar", "crn", "mb_h"])
def test_the_head_sees_outcomes_before_they_are_clipped(kind):
    model = random_model(kind)
    spec = replace(model.spec, low=np.full(2, 0.0), high=np.full(2, 0.1))
    states = model.encode(linear_system(5, 0))
    narrow = LearnedModel(model.law, spec, model.end, model.correction)
    assert not np.array_equal(narrow.predict(states), model.predict(states))
    assert np.array_equal(narrow.end_probability(states), model.end_probability(states))


def test_heads_that_contradict_themselves_are_refused():
    lines = EndLines.from_batch(one_feature([], [0.0, 1.0]), SCALER, np.ones(1))
    with pytest.raises(ValueError, match="network"):
        EndHead("logistic", lines, 0.1)
    with pytest.raises(ValueError, match="probability"):
        EndHead("never", lines, 0.1)
    with pytest.raises(ValueError, match="EndHeadConfig"):
        EndHeadConfig(prior=0.0)
    assert EndHeadConfig(training=TrainingConfig(epochs=3)).training.epochs == 3


def test_where_a_line_alone_ends_the_process_the_formula_is_taken_and_right():
    """Most ends are seen under treatment only: what is learnt there would say little of what ends without."""
    train, validation = confounded(600)
    fitted = fit_outcome_model("ar", train, validation, OutcomeModelConfig.quick(), np.random.default_rng(0))
    assert fitted.report["end"]["kind"] == "lines"
    model, oracle = fitted.model, OracleModel()
    ours = model.end_probability(model.encode(validation))[validation.seen]
    exact = oracle.end_probability(oracle.encode(validation))[validation.seen]
    assert np.sqrt(((ours - exact) ** 2).mean()) < 0.005


def test_ends_beyond_no_line_keep_a_rate_beside_the_lines():
    rng = np.random.default_rng(0)
    values = rng.uniform(-2, 10, size=2000)
    chance = np.where(values < 0, 1.0, 0.05)
    ends = rng.random(2000) < chance
    head, report = fit(
        one_feature(list(values[:1500][ends[:1500]]), list(values[:1500][~ends[:1500]])),
        one_feature(list(values[1500:][ends[1500:]]), list(values[1500:][~ends[1500:]])),
    )
    assert report["kind"] == "lines"
    assert head.rate == pytest.approx(0.05 * 10 / 12, abs=0.012)


def test_a_head_is_trained_only_where_lines_leave_something_to_explain(monkeypatch):
    """All ends lie beyond 0; then a tenth of what stays ends as well."""
    asked: list[str] = []
    monkeypatch.setattr(ends, "train_network", lambda *_, name, **__: asked.append(name))
    went, stopped = list(np.linspace(2, 10, 800)), list(np.linspace(-4, -2, 200))
    _, report = fit(one_feature(stopped, went), one_feature(stopped, went))
    assert (report["kind"], asked) == ("lines", [])
    others = [value for number, value in enumerate(went) if number % 10]
    fit(*[one_feature(stopped + went[::10], others)] * 2)
    assert asked == ["end.logistic", "end.network"]
