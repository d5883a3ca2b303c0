"""The one training loop, on small networks; killed at any moment and run again, it ends in the same weights."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from brief_fits import NETWORKS, fitted
from outcome_batches import confounded
from torch import nn

from agents.policies.cloning import CloningConfig, fit_cloning
from cirl_gym.outcome_models.ends import EndHeadConfig
from cirl_gym.outcome_models.fitting import OutcomeModelConfig, fit_outcome_model
from cirl_gym.outcome_models.networks import CRNConfig, MLPConfig, PropensityConfig, RMSNConfig
from cirl_gym.outcome_models.training import TrainingConfig, Watch, seeded, train_network


def line_problem(n=64, seed=0):
    """Y = 3 x - 1 without noise, one "episode" per row."""
    x = torch.linspace(-1, 1, n)[:, None]
    y = 3 * x - 1
    with seeded(seed):
        network = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 1))

    def loss(rows, _share):
        return ((network(x[rows]) - y[rows]) ** 2).mean()

    return network, loss, lambda: ((network(x) - y) ** 2).mean().item()


def weights_of(network):
    return {name: value.clone() for name, value in network.state_dict().items()}


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def test_it_learns_keeps_the_best_epoch_and_stays_in_eval_mode():
    network, loss, validation = line_problem()
    history = train_network(network, loss, validation, 64, TrainingConfig(epochs=40, learning_rate=0.02), seed=0)
    assert history.validation[0] > 1.0
    assert history.validation[history.best_epoch] < 0.1
    assert history.best_epoch == int(np.argmin(history.validation))
    assert validation() == history.validation[history.best_epoch]
    assert len(history.validation) == history.epochs + 1
    assert not network.training
    network, loss, validation = line_problem()
    before = weights_of(network)
    train_network(network, loss, validation, 64, TrainingConfig(epochs=1, batch_size=64, fewest_steps=1), seed=0)
    after = weights_of(network)
    assert all(not torch.equal(before[name], after[name]) for name in before)
    network(torch.ones(5, 1))
    assert same(after, weights_of(network))


def test_same_seed_same_bytes_and_the_global_generator_is_left_alone():
    results = []
    for disturbance in (1, 2):
        torch.manual_seed(disturbance)
        state = torch.get_rng_state()
        network, loss, validation = line_problem()
        history = train_network(network, loss, validation, 64, TrainingConfig(epochs=3), seed=5)
        assert torch.equal(torch.get_rng_state(), state)
        results.append((weights_of(network), history))
    assert same(results[0][0], results[1][0])
    assert results[0][1] == results[1][1]
    network, loss, validation = line_problem()
    train_network(network, loss, validation, 64, TrainingConfig(epochs=3), seed=6)
    assert not same(results[0][0], weights_of(network))


def test_it_stops_early_and_restores():
    network, loss, _ = line_problem()
    start = weights_of(network)
    losses = iter(float(i) for i in range(100))  # every epoch is worse than the start
    ticks = []
    config = TrainingConfig(epochs=50, patience=4)
    history = train_network(network, loss, lambda: next(losses), 64, config, 0, lambda *tick: ticks.append(tick))
    assert history.epochs == 4
    assert history.best_epoch == 0
    assert same(start, weights_of(network))
    assert ticks == [(1, 50), (2, 50), (3, 50), (4, 50), (50, 50)]


def test_small_tables_take_smaller_batches_and_every_episode_once_and_the_share_done_is_of_the_planned_steps():
    network, loss, validation = line_problem()
    seen, shares = [], []

    def spy(rows, share):
        seen.append(rows.tolist())
        shares.append(share)
        return loss(rows, share)

    train_network(network, spy, validation, 64, TrainingConfig(epochs=2, batch_size=16, fewest_steps=1), seed=0)
    assert shares == [i / 8 for i in range(8)]
    seen.clear()
    train_network(network, spy, validation, 20, TrainingConfig(epochs=1, batch_size=256, fewest_steps=8), seed=0)
    assert len(seen) == 10
    assert sorted(row for rows in seen for row in rows) == list(range(20))
    seen.clear()
    train_network(network, spy, validation, 3, TrainingConfig(epochs=1), seed=0)
    assert sorted(row for rows in seen for row in rows) == [0, 1, 2]


def test_an_epoch_sees_other_episodes_each_time_where_there_are_more_than_it_takes(monkeypatch):
    monkeypatch.setattr("cirl_gym.outcome_models.training.MOST", 16)
    network, loss, validation = line_problem()
    seen = []

    def one(rows, share):
        seen.append(rows.tolist())
        return loss(rows, share) * 0 + 2

    found = train_network(network, one, validation, 64, TrainingConfig(epochs=2, batch_size=8), seed=0)
    assert [len(rows) for rows in seen] == [8, 8, 8, 8]
    first, second = ({*seen[i], *seen[i + 1]} for i in (0, 2))
    assert len(first) == len(second) == 16
    assert first != second
    assert found.training == (2.0, 2.0)


def test_a_loss_gradient_or_validation_loss_that_is_not_finite_stops_and_names_the_step():
    network, loss, validation = line_problem()
    steps = []

    def breaks(rows, share):
        steps.append(share)
        return loss(rows, share) * (math.inf if len(steps) == 6 else 1.0)

    with pytest.raises(ValueError, match=r"step 6 \(epoch 2\).*weights of epoch 1 are kept"):
        train_network(network, breaks, validation, 64, TrainingConfig(epochs=5, batch_size=16, fewest_steps=4), seed=0)
    assert all(torch.isfinite(value).all() for value in network.state_dict().values())
    assert not network.training
    network, _, validation = line_problem()

    def root(rows, share):  # of 0 is 0; its slope is not a number
        return (network(torch.ones(1, 1)) * 0).abs().sqrt().sum()

    with pytest.raises(ValueError, match="step 1 "):
        train_network(network, root, validation, 4, TrainingConfig(), 0)
    network, loss, _ = line_problem()
    start = weights_of(network)
    values = iter([1.0, math.nan])
    with pytest.raises(ValueError, match="after epoch 1: the validation loss is nan"):
        train_network(network, loss, lambda: next(values), 64, TrainingConfig(), seed=0)
    assert same(start, weights_of(network))


def test_bad_settings_are_refused_and_the_rate_falls_as_half_a_cosine():
    wrong = {"epochs": 0, "batch_size": 0, "patience": 0, "learning_rate": math.nan, "weight_decay": -1.0}
    for name, value in {**wrong, "schedule": "linear"}.items():
        with pytest.raises(ValueError, match=name):
            TrainingConfig(**{name: value})
    config = TrainingConfig(epochs=4, learning_rate=1.0, schedule="cosine")
    assert [config.rate(epoch) for epoch in (1, 3)] == pytest.approx([1.0, 0.5])
    assert TrainingConfig(learning_rate=0.5).rate(7) == 0.5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
@pytest.mark.parametrize("kind", ["crn", "rmsn", "mb_x"])
def test_a_model_trained_on_an_accelerator_answers_on_the_cpu(kind):
    train, validation = confounded(200)
    training = TrainingConfig(epochs=2, device="cuda")
    config = OutcomeModelConfig(
        crn=CRNConfig(training=training),
        rmsn=RMSNConfig(training=training, propensity=PropensityConfig(training=training)),
        mb_x=MLPConfig(training=training),
        end=EndHeadConfig(training=training),
        base=False,
    )
    model = fit_outcome_model(kind, train, validation, config, np.random.default_rng(0)).model
    assert np.isfinite(model.predict(model.encode(validation))).all()
    cloned = fit_cloning(train, validation, CloningConfig(training=training), np.random.default_rng(0))
    assert np.isfinite(cloned.policy.log_probabilities(validation)).all()


class Killed(Exception):
    """In place of a signal."""


def killer(at):
    """Raises at the so-manieth epoch of whatever network."""
    seen = []

    def on_epoch(name, epoch, loss):
        seen.append((name, epoch))
        if len(seen) == at:
            raise Killed

    return on_epoch, seen


@pytest.mark.parametrize("kind", NETWORKS)
def test_killed_at_any_epoch_it_ends_the_same(kind, tmp_path):
    on_epoch, epochs = killer(-1)
    whole = fitted(kind, tmp_path / "whole.npz", Watch(on_epoch))
    folder = tmp_path / "checkpoints"
    for at in (1, 2):
        with pytest.raises(Killed):
            fitted(kind, tmp_path / "killed.npz", Watch(killer(at)[0], folder))
    on_epoch, later = killer(-1)
    assert fitted(kind, tmp_path / "resumed.npz", Watch(on_epoch, folder)) == whole
    assert 0 < len(later) < len(epochs)
    on_epoch, none = killer(-1)
    assert fitted(kind, tmp_path / "again.npz", Watch(on_epoch, folder)) == whole
    assert not none


def test_an_ensemble_goes_on_member_by_member(tmp_path):
    whole = fitted("mb_h", tmp_path / "whole.npz", members=2)
    with pytest.raises(Killed):
        fitted("mb_h", tmp_path / "killed.npz", Watch(killer(6)[0], tmp_path / "kept"), members=2)
    assert {path.parent.name for path in (tmp_path / "kept").rglob("*.npz")} == {"member0", "member1"}
    assert fitted("mb_h", tmp_path / "resumed.npz", Watch(None, tmp_path / "kept"), members=2) == whole


def test_a_checkpoint_of_other_work_is_refused(tmp_path):
    fitted("mb_h", tmp_path / "model.npz", Watch(None, tmp_path / "kept"))
    with pytest.raises(ValueError, match="other data, settings or seed"):
        fitted("mb_h", tmp_path / "model.npz", Watch(None, tmp_path / "kept"), seed=1)
    path = tmp_path / "kept" / "correction.npz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"correction\.npz"):
        fitted("mb_h", tmp_path / "model.npz", Watch(None, tmp_path / "kept"))


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from brief_fits import fitted
from cirl_gym.outcome_models.training import Watch
fitted("crn", Path(sys.argv[1]), Watch(lambda *_: print(".", flush=True), Path(sys.argv[2])))
"""


def test_killed_by_a_signal(tmp_path):
    code = SCRIPT.format(tests=str(Path(__file__).resolve().parents[1] / "helpers"))
    command = [sys.executable, "-c", code, str(tmp_path / "model.npz"), str(tmp_path / "kept")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for _ in range(2):
        process.stdout.readline()
    time.sleep(0.02)
    process.kill()
    process.wait()
    process.stdout.close()
    assert (tmp_path / "kept" / "correction.npz").is_file()
    assert not (tmp_path / "model.npz").exists()
    resumed = fitted("crn", tmp_path / "resumed.npz", Watch(None, tmp_path / "kept"))
    assert resumed == fitted("crn", tmp_path / "whole.npz")


def test_a_log_for_tensorboard(tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    _, report = fitted("mb_h", tmp_path / "model.npz", Watch(None, None, tmp_path / "log"))
    log = events.EventAccumulator(str(tmp_path / "log" / "correction")).Reload()
    assert sorted(log.Tags()["scalars"]) == ["loss/training", "loss/validation"]
    assert len(log.Scalars("loss/training")) == report["correction"]["epochs"]
