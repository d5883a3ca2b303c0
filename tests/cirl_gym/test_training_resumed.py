"""A training that is killed at any moment and run again ends in the same weights as one that was not."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from brief_fits import NETWORKS, fitted

from cirl_gym.outcome_models.training import Watch


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
    assert process.stdout is not None
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
