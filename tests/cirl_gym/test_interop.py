"""The exchange with other libraries: what is shown, what is earned, what is refused, and what needs to be installed."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from interop_batches import VIEWS, assert_same_steps, batches, ladder, steps_of, uneven, unit_map

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.interop import (
    KeepLastObservation,
    from_episodes,
    from_long_table,
    from_minari,
    shown_observations,
    step_rewards,
    to_d3rlpy,
    to_imitation,
    to_long_table,
    to_minari,
    transitions,
)
from cirl_gym.tables import read_table
from cirl_gym.tables.columns import TableColumns
from cirl_gym.worlds.tumour import TumourParameters

WEIGHTS = [-0.3, -0.7]


@pytest.mark.parametrize("previous_action", [True, False])
def test_exported_observations_and_rewards_are_those_of_the_environment(previous_action: bool) -> None:
    env = gymnasium.make("cirl_gym:CIRLTumour-v0", weights=WEIGHTS, previous_action=previous_action)
    seen, taken, earned, ended = [], [], [], []
    rng = np.random.default_rng(0)
    for seed in range(3):
        obs, _ = env.reset(seed=seed)
        seen.append([obs])
        taken.append([])
        done = False
        while not done:
            taken[-1].append(int(rng.integers(2)))
            obs, reward, terminated, truncated, _ = env.step(taken[-1][-1])
            seen[-1].append(obs)
            earned.append(reward)
            done = terminated or truncated
        ended.append(terminated)
    batch = from_episodes(
        [np.array(x)[:, :2] for x in seen],
        [np.array(a) for a in taken],
        np.array(ended),
        features=("tumour", "side_effects"),
        action_names=("none", "treat"),
        ids=("0", "1", "2"),
    )
    feature_map = TumourParameters().feature_map
    steps = list(transitions(batch, feature_map, WEIGHTS, previous_action=previous_action))
    assert [s.action for s in steps] == [a for episode in taken for a in episode]
    before = np.array([x for episode in seen for x in episode[:-1]])
    after = np.array([x for episode in seen for x in episode[1:]])
    assert np.array([s.obs for s in steps]).tobytes() == before.tobytes()
    assert np.array([s.next_obs for s in steps]).tobytes() == after.tobytes()
    np.testing.assert_allclose([s.reward for s in steps], earned, rtol=1e-6)


@settings(max_examples=15, deadline=None)
@given(batch=batches())
@pytest.mark.parametrize("name", ["iterator", "imitation", "d3rlpy", "table"])
def test_any_batch_reaches_the_other_side_step_by_step(name: str, batch: Batch) -> None:
    weights = [0.0] * len(batch.features)
    if set(batch.features) & {"id", "step", "action", "patient", "terminated", "truncated"}:
        return
    for shown in (False, True):
        assert_same_steps(VIEWS[name](batch, weights, shown), steps_of(batch, weights, shown))


def test_transitions_say_where_they_stand_and_padding_earns_and_shows_nothing() -> None:
    steps = list(transitions(uneven(2, 1), unit_map(uneven(2, 1)), [0.5, 0.5]))
    found = [(s.id, s.step, s.terminated, s.truncated) for s in steps]
    assert found == [("000", 0, False, False), ("000", 1, True, False), ("001", 0, False, True)]
    steps[0].obs[:] = 9
    assert uneven(2, 1).obs[0, 0].tolist() == [0, 1000]
    assert steps[1].obs.tolist() == [1, 1001, 1, 0, 0]
    batch = uneven(1, 3)
    earned = step_rewards(batch, unit_map(batch), [1.0, 0.0])
    assert earned.tolist() == [[1, 0, 0], [101, 102, 103]]
    longer = batch.padded(5)
    assert np.array_equal(shown_observations(longer)[1, :4], shown_observations(batch)[1])
    assert np.array_equal(step_rewards(longer, unit_map(batch), [1.0, 0.0])[:, :3], earned)


def test_rewards_of_other_features_or_weights_are_refused() -> None:
    batch = uneven(1, 2)
    swapped = FeatureMap(("z", "x"), np.zeros(2), np.ones(2))
    for exporter in (transitions, to_imitation, to_d3rlpy, lambda *a: to_minari(a[0], "a-v0", *a[1:])):
        with pytest.raises(ValueError, match=r"the feature map is for \('z', 'x'\), the batch has \('x', 'z'\)"):
            exporter(batch, swapped, [0.5, 0.5])
        with pytest.raises(ValueError, match="weights must be 2 numbers"):
            exporter(batch, unit_map(batch), [0.5])
        with pytest.raises(ValueError, match="L1 norm of at most 1"):
            exporter(batch, unit_map(batch), [0.5, 0.6])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": ("a",)}, "1 ids, but 2 arrays of observations and 2 of actions"),
        ({"ids": (), "obs": [], "actions": []}, "0 ids, but 0 arrays"),
        (
            {"actions": [np.array([0.0]), np.array([1])]},
            r"episode 'a': actions must be whole numbers \[k\], got float64",
        ),
        (
            {"actions": [np.array([0]), np.array([[1]])]},
            r"episode 'b': actions must be whole numbers .*got int64 \[1, 1\]",
        ),
        ({"obs": [np.zeros((2, 1)), np.zeros((2, 2))]}, r"episode 'b': observations must be numbers \[k\+1, 1\]"),
        ({"obs": [np.zeros((2, 1)), np.full((2, 1), "7")]}, r"episode 'b': observations must be numbers .* <U1"),
        ({"actions": [np.array([0]), np.array([2])]}, r"action of episode 'b', step 0 is 2, not within 0\.\.1"),
        ({"terminated": np.array([True])}, r"terminated and truncated must be bool \[2\]"),
        ({"ids": ("a", "a")}, "the id 'a' stands for two episodes"),
    ],
)
def test_episodes_that_make_no_batch_are_refused_by_name(change: dict[str, Any], message: str) -> None:
    fields: dict[str, Any] = {
        "obs": [np.zeros((2, 1)), np.ones((2, 1))],
        "actions": [np.array([0]), np.array([1])],
        "terminated": np.array([True, False]),
        "features": ("x",),
        "action_names": ("0", "1"),
        "ids": ("a", "b"),
    }
    assert from_episodes(**fields).groups == ("a", "b")
    assert from_episodes(**fields, groups=("g", "g")).groups == ("g", "g")
    with pytest.raises(ValueError, match=message):
        from_episodes(**(fields | change))


@pytest.mark.parametrize(
    ("missing", "call", "install"),
    [
        ("minari", lambda b: to_minari(b, "a-v0", unit_map(b), [0.1]), r'pip install "minari'),
        ("minari", lambda b: from_minari("a-v0"), r'pip install "minari'),
        (
            "imitation",
            lambda b: to_imitation(b, unit_map(b), [0.1]),
            "pip install cirl-gym imitation .*--no-deps imitation",
        ),
        ("d3rlpy", lambda b: to_d3rlpy(b, unit_map(b), [0.1]), "pip install --no-deps d3rlpy==2.8.1 gym"),
    ],
)
def test_a_missing_library_is_named_with_how_to_install_it(
    missing: str, call: Callable[[Batch], Any], install: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [m for m in sys.modules if m.partition(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setitem(sys.modules, "h5py", sys.modules.get("h5py") or pickle)
    with pytest.raises(ImportError, match=rf"{missing}[.\w]* cannot be imported .*{install}"):
        call(ladder())


def test_importing_the_exchange_loads_none_of_the_libraries() -> None:
    code = (
        "import sys, cirl_gym.interop;"
        "print({'pandas', 'torch', 'minari', 'imitation', 'd3rlpy', 'h5py', 'gym'} & set(sys.modules))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (told.stdout, told.stderr) == ("set()\n", "")


def test_imitation_gets_arrays_of_its_own_types() -> None:
    types = pytest.importorskip("imitation.data.types")
    batch = uneven(1, 3)
    found = to_imitation(batch, unit_map(batch), [0.5, -0.5])
    assert [type(t) for t in found] == [types.TrajectoryWithRew] * 2
    assert [(t.obs.dtype, t.acts.dtype, t.rews.dtype) for t in found] == [(np.float32, np.int64, np.float64)] * 2
    assert [t.obs.shape for t in found] == [(2, 5), (4, 5)]
    found[0].obs[:] = 9
    assert batch.obs[0, 0, 0] == 0
    for all_ends in (False, True):  # a cut may be told to be terminal
        found = to_imitation(uneven(2, 2, 1), unit_map(batch), [0.5, 0.5], cut_is_terminal=all_ends)
        assert [t.terminal for t in found] == [True, all_ends, all_ends]


def test_d3rlpy_gets_every_step_and_all_actions_and_learns_from_them(tmp_path: Any) -> None:
    d3rlpy = pytest.importorskip("d3rlpy")
    batch = uneven(1, 1, 20)
    data = to_d3rlpy(batch, unit_map(batch), [0.5, -0.5])
    assert isinstance(data, d3rlpy.dataset.MDPDataset)
    assert (data.transition_count, data.size(), data.dataset_info.action_size) == (22, 3, 3)
    assert data.dataset_info.action_space == d3rlpy.ActionSpace.DISCRETE
    returns = [float(e.rewards.sum()) for e in data.episodes]
    np.testing.assert_allclose(returns, step_rewards(batch, unit_map(batch), [0.5, -0.5]).sum(axis=1), rtol=1e-6)
    assert [e.terminated for e in data.episodes] == [True, False, False]
    assert [e.size() for e in data.episodes] == [1, 2, 21]
    assert [e.actions[-1].tolist() for e in data.episodes] == [[0], [0], [0]]
    path = tmp_path / "data.h5"
    with path.open("w+b") as file:
        data.dump(file)
    picker = pickle.loads(pickle.dumps(KeepLastObservation()))
    with path.open("rb") as file:
        again = d3rlpy.dataset.ReplayBuffer.load(file, d3rlpy.dataset.InfiniteBuffer(), transition_picker=picker)
    assert again.transition_count == 22
    for one, other in zip(data.episodes, again.episodes, strict=True):
        for t in range(one.transition_count):
            a, b = data.transition_picker(one, t), again.transition_picker(other, t)
            assert a.next_observation.tolist() == b.next_observation.tolist()
            assert (a.terminal, a.next_action.tolist()) == (b.terminal, b.next_action.tolist())
    with pytest.raises(IndexError, match="transition 20 of an episode with 20"):
        picker(data.episodes[2], 20)
    data = to_d3rlpy(batch, unit_map(batch), [0.001, 0.0])
    learner = d3rlpy.algos.DQNConfig(batch_size=8).create(device="cpu")
    learner.build_with_dataset(data)
    assert learner.action_size == 3
    assert np.isfinite(learner.update(data.sample_transition_batch(8))["loss"])


def test_a_small_batch_becomes_the_table_one_would_write_by_hand() -> None:
    frame = to_long_table(uneven(2, 1))
    assert list(frame.columns) == ["id", "patient", "step", "x", "z", "action", "terminated", "truncated"]
    assert frame.astype(object).where(frame.notna(), None).to_numpy().tolist() == [
        ["000", "g0", 0, 0, 1000, "none", 0, 0],
        ["000", "g0", 1, 1, 1001, "low", 0, 0],
        ["000", "g0", 2, 2, 1002, None, 1, 0],
        ["001", "g0", 0, 100, 1100, "low", 0, 0],
        ["001", "g0", 1, 101, 1101, None, 0, 1],
    ]
    assert frame["action"].cat.categories.tolist() == ["none", "low", "high"]
    assert frame["x"].dtype == np.float32


@settings(max_examples=40, deadline=None)
@given(batch=batches())
def test_any_batch_with_a_choice_comes_back_equal(batch: Batch) -> None:
    assume(len(set(batch.actions[batch.mask].tolist())) > 1)
    parts = ("the id", "the time", "the action", "the group", "ended", "cut")
    assume(not set(parts) & set(batch.features))
    columns = TableColumns(*parts[:3], batch.features, *parts[3:])
    frame = to_long_table(batch, columns)
    assert len(frame) == batch.n_steps + len(batch)
    back, report = from_long_table(frame, columns)
    assert back == batch
    assert (report.rows.used, report.episodes.used, report.episodes.steps) == (len(frame), len(batch), batch.n_steps)
    shuffled = frame.sample(frac=1, random_state=0)
    there = from_long_table(shuffled, columns)[0]
    assert there.take(np.array([there.ids.index(name) for name in batch.ids])) == batch


def test_names_ids_and_order_come_back_and_padding_is_no_data() -> None:
    batch = replace(uneven(2, 3), action_names=("NA", "2.0", " "))
    frame = to_long_table(batch)
    back, _ = from_long_table(frame)
    assert back == batch
    never = replace(batch, actions=np.minimum(batch.actions, 1))
    assert from_long_table(to_long_table(never))[0] == never
    batch = uneven(2, 3)
    assert to_long_table(batch.padded(9)).equals(to_long_table(batch))
    assert from_long_table(to_long_table(batch.padded(9)))[0] == batch
    ids = ("007", "7", "12.0", "9007199254740993", "NA")
    batch = replace(uneven(1, 2, 1, 2, 1), ids=ids, groups=("1", "01", "1.0", "nan", "x"))
    back, _ = from_long_table(to_long_table(batch))
    assert (back.ids, back.groups) == (ids, batch.groups)


def test_contexts_of_habits_and_what_is_said_of_them_come_back(tmp_path: Path) -> None:
    batch = uneven(2, 3, 1)
    levels = np.array([[[0, 1], [1, 1], [0, 0]], [[2, 1], [0, 2], [2, 1]], [[1, 2], [0, 0], [0, 0]]])
    contexts = (("ward", ("west", "missing", "10.0")), ("shift", ("never", "1", " ")))
    batch = replace(batch, contexts=contexts, context_levels=levels)
    frame = to_long_table(batch)
    assert frame["ward"].astype(object).where(frame["ward"].notna(), None).tolist() == [
        *("west", "missing", None),
        *("10.0", "west", "10.0", None),
        *("missing", None),
    ]
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    for table in (frame, pd.read_parquet(tmp_path / "t.parquet")):
        back, report = from_long_table(table)
        assert back == batch
        assert report.columns.contexts == ("ward", "shift")
        assert [c.decisions for c in report.contexts] == [
            {"west": 2, "missing": 2, "10.0": 2},
            {"never": 0, "1": 4, " ": 2},
        ]
        assert [(t.action, t.times, t.groups) for t in report.taken] == [("none", 2, 1), ("low", 2, 1), ("high", 2, 2)]
        assert report.actions == ({"action": "none"}, {"action": "low"}, {"action": "high"})
    # A decision without a level is a level of its own, behind those that are known.
    frame.loc[0, "shift"] = None
    assert from_long_table(frame)[0].contexts[1] == ("shift", ("never", "1", " ", "missing"))
    frame["shift"] = frame["shift"].astype(object)
    columns = TableColumns("id", "step", "action", ("x", "z"), "patient", "terminated", "truncated", (), ("shift",))
    assert from_long_table(frame, columns)[0].contexts == (("shift", ("1", "missing")),)


def test_through_files(tmp_path: Path) -> None:
    batch = replace(uneven(2, 3), obs=uneven(2, 3).obs / np.float32(7))
    frame = to_long_table(batch)
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    assert from_long_table(pd.read_parquet(tmp_path / "t.parquet"))[0] == batch
    assert from_long_table(read_table(tmp_path / "t.parquet"))[0] == batch
    frame.to_csv(tmp_path / "t.csv", index=False)
    back, _ = from_long_table(read_table(tmp_path / "t.csv"))
    assert back.action_names == ("high", "low", "none")  # a CSV file knows no order of names, so they are sorted
    named = [[back.action_names[a] for a in episode] for _, episode in back.episodes()]
    assert named == [[batch.action_names[a] for a in episode] for _, episode in batch.episodes()]
    assert replace(back, actions=batch.actions, action_names=batch.action_names) == batch
    assert Batch.from_dataframe(read_table(tmp_path / "t.csv"))[0] == back


def test_a_table_that_would_lose_something_or_lacks_columns_is_refused() -> None:
    batch = uneven(1, 2)
    with pytest.raises(ValueError, match="columns must name group, terminated and truncated"):
        to_long_table(batch, TableColumns("id", "step", "action", ("x", "z")))
    with pytest.raises(ValueError, match=r"columns has the features \('x', 'y'\), the batch \('x', 'z'\)"):
        to_long_table(batch, TableColumns("id", "step", "action", ("x", "y"), "g", "terminated", "truncated"))
    with pytest.raises(ValueError, match="a column cannot play two parts: 'step'"):
        to_long_table(replace(batch, features=("x", "step")))
    levels = np.zeros((2, 2, 1), dtype=np.int64)
    told = replace(batch, contexts=(("x", ("a", "b")),), context_levels=levels)
    with pytest.raises(ValueError, match="'x' is a feature and a context: two columns would have one name"):
        to_long_table(told)
    with pytest.raises(ValueError, match=r"columns has the contexts \(\), the batch \('x',\)"):
        to_long_table(told, TableColumns("id", "step", "action", ("x", "z"), "patient", "terminated", "truncated"))
    with pytest.raises(ValueError, match="the id ' ' is blank"):
        to_long_table(replace(batch, ids=("0", " ")))
    with pytest.raises(ValueError, match="the group '' is blank"):
        to_long_table(replace(batch, groups=("", "0")))
    with pytest.raises(ValueError, match="column 1 has no name"):
        to_long_table(batch, TableColumns("", "step", "action", ("x", "z"), "g", "terminated", "truncated"))
    with pytest.raises(ValueError, match="the table has no column 'step'"):
        from_long_table(to_long_table(ladder()).drop(columns="step"))
    always = replace(uneven(2, 2), actions=np.zeros((2, 2), dtype=np.int64))
    with pytest.raises(ValueError, match="only one action, '0', is ever taken"):
        from_long_table(to_long_table(always))
