"""Minari data sets: written and read on this machine, whole or not at all, with nothing guessed."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from interop_batches import batches, ladder, uneven, unit_map

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.interop import MinariReport, from_minari, shown_observations, to_minari
from cirl_gym.worlds.tumour import TumourParameters

minari = pytest.importorskip("minari")
WEIGHTS = [0.5, -0.5]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"


def write(batch: Batch, name: str = "cirl/test-v0", **options: Any) -> Any:
    return to_minari(batch, name, unit_map(batch), [0.0] * len(batch.features), **options)


def treated() -> Batch:
    """As the simulator's: two features, two actions."""
    batch = uneven(2, 3)
    names = {"features": ("tumour", "side_effects"), "action_names": ("none", "treat"), "groups": ()}
    return replace(batch, obs=batch.obs / 1000, actions=batch.actions % 2, **names)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batch=batches())
def test_any_batch_comes_back_equal(batch: Batch, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(tmp_path_factory.mktemp("minari")))
        for number, shown in enumerate((True, False)):
            write(batch, f"cirl/any-v{number}", previous_action=shown)
            back, report = from_minari(f"cirl/any-v{number}")
            assert back == batch
            assert (report.used, report.steps, report.unmarked, report.both) == (len(batch), batch.n_steps, 0, 0)


def test_what_stands_in_the_files(folder: Path) -> None:
    batch = uneven(1, 2)
    data = to_minari(batch, "group/name-v3", FeatureMap(("x", "z"), np.array([0, 1]), np.array([2, 3])), WEIGHTS)
    assert sorted(p.name for p in (folder / "group/name-v3/data").iterdir()) == ["main_data.hdf5", "metadata.json"]
    content = json.loads((folder / "group/name-v3/data/metadata.json").read_text())
    assert (content["total_episodes"], content["total_steps"]) == (2, 3)
    assert content["cirl_gym"] == {
        "schema": 1,
        "previous_action": True,
        "features": ["x", "z"],
        "outcomes": ["x", "z"],
        "action_names": ["none", "low", "high"],
        "ids": ["000", "001"],
        "groups": ["g0", "g0"],
        "weights": WEIGHTS,
        "low": [0, 1],
        "high": [2, 3],
    }
    assert data.action_space == spaces.Discrete(3)
    assert data.observation_space.high.tolist() == [np.inf, np.inf, 1, 1, 1]
    first = next(iter(data))
    assert (first.observations.dtype, first.actions.dtype, first.rewards.dtype) == (np.float32, np.int64, np.float64)
    assert first.rewards.tolist() == [0.25 * 1 - 0.25 * 1000]


def test_the_environment_can_be_recovered_and_must_fit() -> None:
    batch = treated()
    feature_map = TumourParameters().feature_map
    env = gymnasium.make("cirl_gym:CIRLTumour-v0")
    data = to_minari(batch, "cirl/env-v0", feature_map, WEIGHTS, env=env)
    assert data.observation_space == env.observation_space
    again = data.recover_environment()
    assert type(again.unwrapped) is type(env.unwrapped)
    assert from_minari("cirl/env-v0")[0] == batch
    with pytest.raises(ValueError, match=r"the environment shows Box.* but the data's observations have 2 numbers"):
        to_minari(batch, "cirl/no-v0", feature_map, WEIGHTS, env=env, previous_action=False)
    narrow = gymnasium.make("cirl_gym:CIRLTumour-v0", previous_action=False)
    with pytest.raises(ValueError, match=r"the environment takes Discrete\(2\), but the data have 3 actions"):
        write(uneven(1, 2), "cirl/no-v0", env=narrow, previous_action=False)


def test_a_name_that_is_malformed_or_taken_is_refused(folder: Path) -> None:
    for name in ("name", "group/name", "../name-v0", "/name-v0", "a b-v0", "name-v0/"):
        with pytest.raises(ValueError, match="must look like 'group/name-v0'"):
            write(ladder(), name)
    write(ladder())
    before = (folder / "cirl/test-v0/data/metadata.json").read_bytes()
    with pytest.raises(ValueError, match="there is a Minari data set 'cirl/test-v0' already"):
        write(uneven(1, 2))
    assert (folder / "cirl/test-v0/data/metadata.json").read_bytes() == before
    with pytest.raises(FileNotFoundError, match="nobody/wrote-v0"):
        from_minari("nobody/wrote-v0")


def test_a_failure_leaves_no_part_of_a_data_set(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    storage = "minari.dataset._storages.hdf5_storage.HDF5Storage.update_episodes"
    with monkeypatch.context() as patch:
        patch.setattr(storage, full)
        with pytest.raises(OSError, match="no space left"):
            write(ladder())
    assert not (folder / "cirl/test-v0").exists()
    write(ladder())


def test_what_is_said_about_the_data_is_kept() -> None:
    about = {"author": "A", "author_email": "a@example.org", "description": "D"}
    metadata = write(ladder(), about=about).storage.metadata
    assert (metadata["author"], metadata["description"]) == ({"A"}, "D")
    with pytest.raises(ValueError, match="about has no 'autor'; it can hold author, author_email"):
        write(ladder(), "cirl/other-v0", about={"autor": "A"})


def test_a_part_of_a_data_set_keeps_its_names_and_a_changed_one_is_refused() -> None:
    batch = uneven(1, 2, 3)
    data = write(batch)
    part, report = from_minari(data.filter_episodes(lambda e: len(e) != 2))
    assert part.ids == ("000", "002")
    assert part == batch.take(np.array([0, 2]))
    assert (report.episodes, report.used) == (2, 2)
    for said, message in (
        ({"features": ("x", "y")}, "itself has features"),
        ({"action_names": ("0", "1", "2")}, "itself has action_names"),
        ({"previous_action": False}, "itself says previous_action=True"),
    ):
        with pytest.raises(ValueError, match=message):
            from_minari(data, **said)
    assert from_minari(data, features=("x", "z"), previous_action=True)[0] == batch
    first = next(iter(data))
    fields = ("observations", "actions", "rewards", "terminations", "truncations")
    data.update_dataset_from_buffer([minari.data_collector.EpisodeBuffer(**{f: getattr(first, f) for f in fields})])
    with pytest.raises(ValueError, match="holds 4 episodes, but was written with 3"):
        from_minari(data)
    data = write(ladder(), "cirl/schema-v0")
    data.storage.update_metadata({"cirl_gym": {"schema": 2}})
    with pytest.raises(ValueError, match="was written with schema 2, not 1"):
        from_minari(data)


@pytest.mark.parametrize("step", [0, 1, 2])
def test_wrong_previous_actions_are_named(step: int) -> None:
    import h5py

    data = write(uneven(1, 2))
    with h5py.File(data.storage.data_path / "main_data.hdf5", "a") as file:
        file["episode_1"]["observations"][step, 2:] = [0, 1, 1]
    told = "no action came before" if step == 0 else f"the action before was '{('low', 'high')[step - 1]}'"
    with pytest.raises(ValueError, match=rf"episode '001', step {step}: .* are \[0.0, 1.0, 1.0\], but {told}"):
        from_minari(data)


def theirs(batch: Batch, *, shown: bool = False, start: int = 0) -> Any:
    """The same episodes as another program would write them, through Minari's own files."""
    seen = shown_observations(batch, previous_action=shown).astype(np.float64)
    buffers = []
    for i, k in enumerate(batch.lengths.tolist()):
        ends = np.arange(k) == k - 1
        buffers.append(
            minari.data_collector.EpisodeBuffer(
                observations=seen[i, : k + 1],
                actions=batch.actions[i, :k] + start,
                rewards=[0.0] * k,
                terminations=ends & batch.terminated[i],
                truncations=ends & batch.truncated[i],
            )
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`\w+` is set to None|env_spec is None", UserWarning)
        return minari.create_dataset_from_buffers(
            "theirs/data-v0",
            buffers,
            observation_space=spaces.Box(-np.inf, np.inf, seen.shape[2:], dtype=np.float64),
            action_space=spaces.Discrete(batch.n_actions, start=start),
        )


def test_a_data_set_of_others_is_read_with_plain_names() -> None:
    batch = uneven(1, 2, 3)
    data = theirs(batch, start=5)
    back, report = from_minari(data)
    assert (back.features, back.action_names) == (("x0", "x1"), ("5", "6", "7"))
    assert back.ids == back.groups == ("0", "1", "2")
    for name in ("obs", "actions", "terminated"):
        assert np.array_equal(getattr(back, name), getattr(batch, name))
    assert report == MinariReport("theirs/data-v0", 3, 3, 0, 6, 1, 2, 0, 0, None, 6)
    named, _ = from_minari(data, features=(name for name in ("x", "z")), action_names=iter(batch.action_names))
    assert (named.features, named.action_names) == (batch.features, batch.action_names)
    with pytest.raises(ValueError, match="has 2 features, 3 are named"):
        from_minari(data, features=("x", "y", "z"))
    with pytest.raises(ValueError, match="has 3 actions, action_names names 2"):
        from_minari(data, action_names=("0", "1"))
    with pytest.raises(ValueError, match="observations of 2 numbers hold no feature"):
        from_minari(data, previous_action=True)


def test_previous_actions_in_a_data_set_of_others_are_not_taken_for_features_unasked() -> None:
    batch = uneven(1, 2, 3)
    data = theirs(batch, shown=True)
    with pytest.raises(ValueError, match="the last 3 numbers of every observation are the one-hot previous action"):
        from_minari(data)
    dropped, _ = from_minari(data, previous_action=True)
    assert np.array_equal(dropped.obs, batch.obs)
    kept, _ = from_minari(data, previous_action=False)
    assert np.array_equal(kept.obs[0, :2], shown_observations(batch)[0, :2])


@pytest.mark.parametrize(
    ("observation_space", "action_space"),
    [
        (spaces.Box(0, 1, (2, 2)), spaces.Discrete(2)),
        (spaces.Dict({"x": spaces.Box(0, 1, (2,))}), spaces.Discrete(2)),
        (spaces.Box(0, 1, (2,)), spaces.Box(0, 1, (1,))),
    ],
)
def test_a_data_set_of_another_kind_is_refused(observation_space: Any, action_space: Any) -> None:
    data = SimpleNamespace(id="theirs/data-v0", observation_space=observation_space, action_space=action_space)
    with pytest.raises(ValueError, match=r"only flat observations .* and discrete actions make a batch"):
        from_minari(data)


def test_flags_of_another_length_are_named() -> None:
    data = theirs(uneven(1, 2))
    import h5py

    with h5py.File(data.storage.data_path / "main_data.hdf5", "a") as file:
        file["episode_1"]["truncations"].resize(1, axis=0)
    with pytest.raises(ValueError, match=r"episode '1': truncations has shape \(1,\) for 2 actions"):
        from_minari(data)


def test_infos_are_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    data = theirs(uneven(1, 2), start=0)
    whole = data.iterate_episodes

    def told(*arguments: Any) -> Any:
        for episode in whole(*arguments):
            yield replace(episode, infos={"dose": np.zeros(2), "arm": np.zeros(2)})

    monkeypatch.setattr(data, "iterate_episodes", told)
    _, report = from_minari(data)
    assert report.infos_left_out == ("arm", "dose")


def test_what_is_no_data_set_is_refused() -> None:
    with pytest.raises(ValueError, match="a Minari data set, or the name of one, is needed, got a generator"):
        from_minari(episode for episode in ())
