"""Files of a run that were damaged: whatever is wrong is one ValueError that names the file, never a wrong number."""

from __future__ import annotations

import json
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outcome_batches import random_model
from small_batches import batch_of

from agents.policies.cloning import CloningPolicy
from agents.successor.agent import SuccessorAgent
from cirl_gym.data.batch import Batch
from cirl_gym.files import read_arrays, read_json, write_arrays, write_json
from cirl_gym.outcome_models.store import load_model, save_model
from irl.run import Run

ODD: tuple[Any, ...] = (-1, 10**19, 10**200, 0.5, True, None, "x", [], [[1]], {"a": 1}, ["x", "x"])
"""What may stand in JSON where something else belongs."""
RUN_FILES = ("batch.npz", "outcome_model.npz", "agent.npz", "cloning.npz", "posterior.npz", "expert.npz")
LIMITS = ("low", "high", "floor", "ceiling")
READ = ("reward", "forbid", "train", "test", "model", "rules", "agent", "policy", "predicted_experts", "parameters")
READ += ("expert", "result", "chosen_gamma", "preferences")


@pytest.fixture
def run(demo_run, tmp_path) -> Path:
    """A copy of a whole run, to be damaged."""
    return Path(shutil.copytree(demo_run, tmp_path / "run"))


def load(path: Path) -> object:
    """What a run reads of one of its files."""
    run = Run(path.parent)
    loaders: dict[str, Callable[[], object]] = {
        "batch.npz": lambda: run.train,
        "outcome_model.npz": lambda: run.model,
        "agent.npz": lambda: SuccessorAgent.load(path, run.model),
        "cloning.npz": lambda: CloningPolicy.load(path, np.random.default_rng(0)),
        "posterior.npz": lambda: run.predicted_experts,
        "expert.npz": lambda: run.expert,
    }
    return loaders[path.name]()


def fault(ask: Callable[[], object]) -> str:
    """The message of the ValueError that asking for something ends with; nothing where it does not."""
    try:
        ask()
    except ValueError as error:
        return str(error)
    return ""


def refused(path: Path, loader: Callable[[Path], object]) -> None:
    with pytest.raises(ValueError, match=path.name):
        loader(path)


def damaged_arrays(arrays: dict[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    """Copies in each of which one array is missing or wrong in a way that cannot be meant."""
    for name, array in arrays.items():
        yield {other: value for other, value in arrays.items() if other != name}
        yield arrays | {name: array[None]}
        yield arrays | {name: np.zeros((0,))}
        if array.dtype.kind == "f":
            bad = [np.nan] if name.rpartition(".")[2] in LIMITS else [np.nan, np.inf]
            for value in bad:
                whole = array.copy()
                whole.flat[-1] = value
                yield arrays | {name: whole}
            yield arrays | {name: array.astype(str)}


def leaves(content: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where every value of a JSON document stands, objects and lists too."""
    if place:
        yield place
    pairs = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in pairs:
        yield from leaves(value, (*place, key))


def replaced(content: Any, place: tuple[Any, ...], value: Any) -> Any:
    if not place:
        return value
    copy = content.copy()
    copy[place[0]] = replaced(content[place[0]], place[1:], value)
    return copy


@pytest.mark.parametrize("name", RUN_FILES)
def test_an_array_that_is_missing_or_wrong_is_refused(name: str, run: Path) -> None:
    whole = read_arrays(run / name)
    # A fit without habits needs no logits of them.
    for arrays in damaged_arrays(
        {key: array for key, array in whole.items() if (name, key) != ("posterior.npz", "logits")}
    ):
        write_arrays(run / name, arrays)
        refused(run / name, load)


@pytest.mark.parametrize("kind", ["ar", "rmsn"])
def test_every_kind_of_outcome_model_is_checked(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    save_model(random_model(kind), path)
    for arrays in damaged_arrays(read_arrays(path)):
        write_arrays(path, arrays)
        refused(path, load_model)


@pytest.mark.parametrize("name", ["outcome_model.npz", "agent.npz", "cloning.npz"])
def test_settings_that_are_no_settings_are_a_value_error_or_do_no_harm(name: str, run: Path) -> None:
    arrays = read_arrays(run / name)
    config = json.loads(str(arrays["config"]))
    for place in leaves(config):
        for value in ODD:
            write_arrays(run / name, arrays | {"config": np.array(json.dumps(replaced(config, place, value)))})
            began = time.monotonic()
            told = fault(lambda: load(run / name))
            assert not told or name in told, (place, value)
            assert time.monotonic() - began < 5, (place, value)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("agent.npz", "gamma", 1e19),
        ("agent.npz", "gamma", -0.1),
        ("agent.npz", "hidden", [-1]),
        ("agent.npz", "ahead", 10**9),
        ("agent.npz", "hidden", [10**12]),
        ("agent.npz", "n_actions", 10**9),
        ("cloning.npz", "n_features", 10**9),
        ("outcome_model.npz", "features", [1, 2]),
    ],
)
def test_sizes_that_cannot_be_are_refused_before_anything_is_made(name: str, key: str, value: Any, run: Path) -> None:
    arrays = read_arrays(run / name)
    config = json.loads(str(arrays["config"])) | {key: value}
    write_arrays(run / name, arrays | {"config": np.array(json.dumps(config))})
    began = time.monotonic()
    refused(run / name, load)
    assert time.monotonic() - began < 2


def every_property(folder: Path, names: tuple[str, ...]) -> None:
    """Whatever a run can be asked for is there, or is one error that names the folder."""
    for name in names:
        told = fault(partial(getattr, Run(folder), name))
        assert not told or str(folder) in told, name


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_json_of_a_run_may_say_anything(data: st.DataObject, demo_run: Path, tmp_path_factory: Any) -> None:
    name = data.draw(st.sampled_from(["config.json", "result.json"]))
    content = json.loads((demo_run / name).read_text())
    place = data.draw(st.sampled_from(list(leaves(content))))
    folder = tmp_path_factory.mktemp("odd")
    for path in demo_run.iterdir():
        if path.is_file() and path.name != name:
            (folder / path.name).symlink_to(path)
    write_json(folder / name, replaced(content, place, data.draw(st.sampled_from(ODD))))
    every_property(folder, READ)


@pytest.mark.parametrize(
    ("name", "place", "value", "asked"),
    [
        ("config.json", ("fit",), "text", "forbid"),
        ("result.json", ("gammas",), {}, "chosen_gamma"),
        ("result.json", ("gammas",), {}, "preferences"),
        ("config.json", ("parameters",), ["x", 1], "parameters"),
        ("result.json", ("features",), [[1], [2]], "reward"),
    ],
)
def test_what_is_wrong_names_the_file(name: str, place: tuple[str, ...], value: Any, asked: str, run: Path) -> None:
    write_json(run / name, replaced(json.loads((run / name).read_text()), place, value))
    with pytest.raises(ValueError, match=name):
        getattr(Run(run), asked)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "9" * 5_000, '{"a": 1e999}', '{"a": NaN}', "-Infinity", '{"a": ' * 50_000]
)
def test_json_that_no_writer_wrote_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text(text)
    with pytest.raises(ValueError, match=r"odd\.json is not JSON"):
        read_json(tmp_path / "odd.json")


def test_sizes_come_from_the_heads_of_arrays(tmp_path: Path) -> None:
    path = tmp_path / "large.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("draws.npy", "w", force_zip64=True) as member,
    ):
        np.lib.format.write_array_header_1_0(
            member, {"shape": (2**25,), "fortran_order": False, "descr": np.lib.format.dtype_to_descr(np.dtype("f8"))}
        )
        for _ in range(16):
            member.write(bytes(2**24))
    assert path.stat().st_size < 3e5
    began = time.monotonic()
    with pytest.raises(ValueError, match=r"large\.npz cannot be read as arrays: \d+ bytes would become 268435456"):
        read_arrays(path)
    assert time.monotonic() - began < 0.5


@pytest.mark.parametrize(
    ("member", "content", "message"),
    [
        ("a.npy", b"no array", "magic"),
        ("a.txt", b"no array", r"'a\.txt' in it is no array"),
        ("a.npy", np.array([1.0]).tobytes(), "magic"),
    ],
)
def test_members_that_are_no_arrays_are_named(member: str, content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content)
    with pytest.raises(ValueError, match=message):
        read_arrays(path)


def test_a_head_that_says_more_than_the_member_holds_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "odd.npz"
    write_arrays(path, {"a": np.zeros(4)})
    with zipfile.ZipFile(path) as archive:
        content = archive.read("a.npy")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", content.replace(b"(4,)", b"(9,)"))
    with pytest.raises(ValueError, match="has 160 bytes, its head says 200"):
        read_arrays(path)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": np.array([1, 1])},
        {"features": np.array([1, 2])},
        {"features": np.array([["x", "y"]])},
        {"obs": np.zeros((1, 2, 3), dtype=np.float32)},
        {"fields": np.array(["obs"])},
    ],
)
def test_a_batch_whose_arrays_do_not_go_together_is_refused(change: dict[str, np.ndarray], tmp_path: Path) -> None:
    batch_of([0, 1], [1]).save(tmp_path / "batch.npz")
    write_arrays(tmp_path / "batch.npz", read_arrays(tmp_path / "batch.npz") | change)
    refused(tmp_path / "batch.npz", Batch.load)
