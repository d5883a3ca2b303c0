"""``DIR/unfinished``: the stages that a run of ``cirl demo`` or ``cirl explain`` stores until it is whole.

The same command goes on from them: same settings, same data, same versions, same code. Anything else begins anew, in a
folder of its own, so that a mistyped command takes nothing away. All of it is removed when a run ends whole. What is
read is what was computed, to the last bit; each stage draws from a random stream of its own, so that one that is read
instead of computed changes no other stage's numbers.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from agents.expert import Expert, simulated_habit, simulator_model
from agents.successor.agent import SuccessorAgent
from cirl_gym.data.batch import Batch
from cirl_gym.data.habits import Contexts
from cirl_gym.files import StoredParts, loading, read_arrays, read_json, say, write_arrays, write_json
from cirl_gym.outcome_models.fitting import FittedOutcomeModel
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.outcome_models.store import load_model, save_model
from cirl_gym.types import FloatArray
from irl.preferences.posterior import PosteriorResult, SamplerReport
from irl.settings import DemoConfig
from irl.stages import Stages

UNFINISHED = "unfinished"
"""Folder of a run for what it stores."""
_ABOUT, _SECONDS = "identity.json", "seconds.json"
_PACKAGES = ("cirl_gym", "agents", "irl")
_SAMPLER = "sampler."
_NAMED = 3
"""At most so many differences to another run are named."""


# --- how each stage is stored -----------------------------------------------------------------------------------------


def stored_expert(stored: StoredParts, config: DemoConfig, compute: Callable[[], Expert]) -> Expert:
    """Step 2: the expert in the simulator."""

    def load(path: Path) -> Expert:
        agent = SuccessorAgent.load(path, simulator_model(config.parameters, config.fit.forbid))
        return Expert.of(agent, np.array(config.weights), config.kappa, simulated_habit(config.expert_habit))

    return stored.stage("expert.npz", compute, lambda expert, path: expert.agent.save(path), load)


def stored_outcome_model(
    stored: StoredParts, compute: Callable[[], FittedOutcomeModel], name: str = "outcome_model.npz"
) -> FittedOutcomeModel:
    """Step 4: the outcome model and the report of its fit."""

    def save(fitted: FittedOutcomeModel, path: Path) -> None:
        # The model comes last: where it is, the report is.
        write_json(path.with_suffix(".json"), {"report": fitted.report, "seconds": fitted.seconds})
        save_model(fitted.model, path)

    def load(path: Path) -> FittedOutcomeModel:
        model, about = load_model(path), read_json(path.with_suffix(".json"))
        with loading(path, "a fitted outcome model"):
            if isinstance(model, OracleModel):
                raise ValueError("it is the simulator")
            return FittedOutcomeModel(model, about["report"], about["seconds"])

    return stored.stage(name, compute, save, load)


@dataclass(frozen=True)
class MemberPosterior:
    """What one member of the ensemble says."""

    mu_expert: FloatArray
    """``[d]`` feature expectation of the experts, whose outcomes it predicts."""
    mu_recovered: FloatArray
    """``[d]`` that of the policy which is optimal for its weights, in its own world."""
    posterior: PosteriorResult
    """Of the weights in its world."""

    def save(self, path: Path) -> None:
        """Write an npz file, every number as it is."""
        write_arrays(
            path,
            {
                "theta": self.posterior.theta,
                "logits": self.posterior.logits,
                "signs": self.posterior.signs,
                **{f"{_SAMPLER}{name}": np.asarray(value) for name, value in vars(self.posterior.sampler).items()},
                "mu_expert": self.mu_expert,
                "mu_recovered": self.mu_recovered,
            },
        )

    @classmethod
    def load(cls, path: Path, contexts: Contexts) -> MemberPosterior:
        """Read what :meth:`save` wrote, of habits that depend on ``contexts``.

        Raises:
            ValueError: the file is not a whole one; the message names it.
        """
        values: dict[str, Any] = {name: a if a.ndim else a.item() for name, a in read_arrays(path).items()}
        own = {name.removeprefix(_SAMPLER): values.pop(name) for name in list(values) if name.startswith(_SAMPLER)}
        with loading(path, "a whole posterior of a member"):
            mus = values.pop("mu_expert"), values.pop("mu_recovered")
            posterior = PosteriorResult(**values, contexts=contexts, sampler=SamplerReport(**own))
            vectors = [*mus, posterior.theta[0]]
            if len({np.shape(vector) for vector in vectors}) > 1 or not np.isfinite(mus).all():
                raise ValueError("its weights and its mus differ in length, or are not finite")
            return cls(*mus, posterior)


# --- what decides whether a run may go on -----------------------------------------------------------------------------


def identity_of(
    config: Mapping[str, Any], versions: Mapping[str, str], batches: Sequence[Batch] = ()
) -> dict[str, Any]:
    """What decides every number of a run, for JSON: all settings, in JSON's own types, the versions of the installed
    packages and of the code, and the data, where the settings do not make them.
    """
    return {
        **config,
        "data": [data_digest(batch) for batch in batches],
        "versions": {**versions, "code": code_digest()},
    }


def data_digest(batch: Batch) -> str:
    """A number for the content of a batch: episodes, names and order."""
    digest = hashlib.sha256()
    for field in fields(batch):
        value = getattr(batch, field.name)
        if value is None or (isinstance(value, tuple) and not value):
            continue  # no masks, no contexts: the number is that of the same episodes without the field
        array = value if isinstance(value, np.ndarray) else None
        head = [field.name, list(value) if array is None else [str(array.dtype), array.shape]]
        digest.update(json.dumps(head).encode())
        if array is not None:
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def code_digest() -> str:
    """A number for the source of the three packages: between releases it changes without its version."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    for path in sorted(path for package in _PACKAGES for path in (root / package).rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@contextmanager
def unfinished(out: Path, identity: Mapping[str, Any], run: Stages) -> Iterator[StoredParts]:
    """The parts that a run keeps, and those that an earlier one of the same identity left.

    Says in one line whether there are such parts, and, when the run is interrupted, that it can go on. To begin anew
    all the same, call :func:`remove` before.

    Args:
        out: the run's folder.
        identity: from :func:`identity_of`.
        run: told how long a stopped command had worked on what is stored.
    """
    text, place = json.dumps(identity, sort_keys=True), out / UNFINISHED
    folder = place / hashlib.sha256(text.encode()).hexdigest()[:16]
    if _parts(folder):
        say(f"going on with the run that was stopped (kept in {place}; --fresh begins anew)")
    elif others := [path for path in _runs(place) if _parts(path)]:
        latest = max(others, key=lambda path: path.stat().st_mtime)
        differing = differences(_read(latest / _ABOUT) or {}, json.loads(text))
        say(f"{place} is of a run with other {differing}; this one begins anew")
    stored = StoredParts(folder)
    stored.write(_ABOUT, lambda path: write_json(path, identity))
    spent = _read(folder / _SECONDS) if (folder / _SECONDS).exists() else {}
    if spent is None or not all(isinstance(x, float) and 0 <= x < np.inf for x in spent.values()):
        say(f"{folder / _SECONDS} cannot be used; the seconds of what is kept are not counted")
        spent = {}
    run.seconds.update(spent)

    def record() -> None:
        spent.update(run.under_way())
        write_json(folder / _SECONDS, spent)

    stored.after_write = record
    try:
        yield stored
    except KeyboardInterrupt:
        if _parts(folder):
            say("the same command, given again, goes on from here.")
        raise
    finally:
        if folder.is_dir() and not _parts(folder):
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):
                place.rmdir()


def remove(out: Path) -> None:
    """Remove all that runs in a folder have stored, and nothing that somebody else put there."""
    for folder in _runs(out / UNFINISHED):
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            say(f"{folder} is not needed any more and could not be removed")
    with suppress(OSError):
        (out / UNFINISHED).rmdir()


def _read(path: Path) -> dict[str, Any] | None:
    """A JSON object; None where it cannot be read."""
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _parts(folder: Path) -> list[Path]:
    """Parts that are whole: a file under a temporary name was being written when the run was killed."""
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if path.name not in (_ABOUT, _SECONDS) and path.name[0] != "."]


def _runs(place: Path) -> list[Path]:
    """Folders that runs made, by the form of their names."""
    if not place.is_dir():
        return []
    return [path for path in place.iterdir() if path.is_dir() and re.fullmatch(r"[0-9a-f]{16}", path.name)]


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Names of what differs in nested settings, the inmost ones."""
    old, new = _flat(before), _flat(now)
    names = [name for name in {**new, **old} if old.get(name) != new.get(name)]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more if before else "settings"


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in content.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat
