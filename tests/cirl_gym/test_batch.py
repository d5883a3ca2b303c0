"""A batch keeps its promises: shapes, padding, splits by group, and what is saved is what is loaded."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from small_batches import batch_of
from small_tables import stays

from cirl_gym.data.batch import Batch, seldom_taken, warn_of_actions_never_taken
from cirl_gym.files import read_arrays, write_arrays


def small(**changes: Any) -> Batch:
    """Episodes "007" with two actions and "7" with one; the rest is padding."""
    fields: dict[str, Any] = {
        "obs": np.array([[[0.0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9], [0, 0]]]),
        "actions": np.array([[0, 1], [1, 0]]),
        "lengths": np.array([2, 1]),
        "terminated": np.array([True, False]),
        "truncated": np.array([False, True]),
        "features": ("x", "z"),
        "action_names": ("none", "treat"),
        "ids": ("007", "7"),
    }
    return Batch(**(fields | changes))


def in_wards(**changes: Any) -> Batch:
    """The same; habits may depend on the ward (east, west) and on the shift (0, 1, 2)."""
    contexts = (("ward", ("east", "west")), ("shift", ("0", "1", "2")))
    levels = np.array([[[0, 2], [1, 0]], [[1, 1], [0, 0]]])
    return small(**({"contexts": contexts, "context_levels": levels} | changes))


def test_what_a_batch_says_about_itself_and_what_it_equals() -> None:
    batch = small()
    assert (len(batch), batch.horizon, batch.n_steps, batch.n_actions) == (2, 2, 3, 2)
    assert batch.mask.tolist() == [[True, True], [True, False]]
    assert batch.start.tolist() == [[0, 1], [6, 7]]
    assert batch.next_obs.tolist() == [[[2, 3], [4, 5]], [[8, 9], [0, 0]]]
    assert batch.groups == ("007", "7")
    assert (batch.obs.dtype, batch.actions.dtype, batch.lengths.dtype) == (np.float32, np.int64, np.int64)
    assert small() == small()
    assert small() != small(ids=("007", "8"))
    assert small() != small(obs=np.ones((2, 3, 2)))
    assert small() != "batch"


def test_padding_is_zeroed_whatever_it_was_and_more_of_it_changes_no_episode() -> None:
    obs, actions = small().obs.astype(np.float64), small().actions.copy()
    for filler in (np.nan, 1e30, np.inf, -7):
        obs[1, 2] = filler
        actions[1, 1] = -99
        assert small(obs=obs, actions=actions) == small()
    longer = small().padded(5)
    assert longer.horizon == 5
    for (x, a), (y, b) in zip(small().episodes(), longer.episodes(), strict=True):
        assert np.array_equal(x, y)
        assert np.array_equal(a, b)
    with pytest.raises(ValueError, match="horizon 1 is shorter than the data's 2"):
        small().padded(1)
    assert longer.trimmed() == small()
    allowed = np.array([[[True, False], [True, True]], [[False, True], [False, False]]])
    whole = in_wards(allowed=allowed)
    assert whole.padded(5).trimmed() == whole
    assert whole.take(np.array([1])).trimmed().context_levels.tolist() == [[[1, 1]]]


def test_levels_of_contexts_go_with_their_episodes() -> None:
    batch = in_wards()
    assert in_wards() == batch != in_wards(contexts=(("ward", ("east", "north")), batch.contexts[1])) != small()
    assert batch.levels_of("shift").tolist() == [[2, 0], [1, 0]]
    assert batch.levels_of("shift").dtype == np.int64
    levels = np.array([[[0, 2], [1, 0]], [[1, 1], [-5, 99]]])
    assert in_wards(context_levels=levels) == batch  # what stands on padding is nothing
    assert batch.take(np.array([1, 0])).levels_of("ward").tolist() == [[1, 0], [0, 1]]
    assert batch.resampled(np.array([1, 1])).levels_of("ward").tolist() == [[1, 0], [1, 0]]
    first, second = batch.split(0.5, np.random.default_rng(0))
    assert {part.ids[0]: part.levels_of("ward")[0].tolist() for part in (first, second)} == {"007": [0, 1], "7": [1, 0]}
    with pytest.raises(ValueError, match="there is no context 'bed'; there are ward, shift"):
        batch.levels_of("bed")
    with pytest.raises(ValueError, match="there is no context 'bed'; there are none"):
        small().levels_of("bed")


def test_arrays_are_copies_and_cannot_be_written() -> None:
    obs = np.zeros((2, 3, 2))
    batch = small(obs=obs)
    obs[:] = 9
    assert (batch.obs == 0).all()
    for name in ("obs", "actions", "lengths", "terminated", "truncated"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(batch, name)[:] = 1
    batch.start[:] = 9
    batch.next_obs[:] = 9
    for x, a in batch.episodes():
        x[:], a[:] = 9, 9
    assert (batch.obs == 0).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"obs": np.zeros((2, 2, 2))},
            r"obs must be \[N, T\+1, d\] and actions \[N, T\], got \(2, 2, 2\) and \(2, 2\)",
        ),
        ({"obs": np.zeros((2, 3))}, r"obs must be \[N, T\+1, d\]"),
        ({"obs": np.zeros((0, 3, 2)), "actions": np.zeros((0, 2), int)}, "at least one episode with one action"),
        ({"obs": np.full((2, 3, 2), "1")}, "obs must be numbers"),
        ({"obs": np.full((2, 3, 2), np.nan)}, "obs of episode '007', step 0, feature 'x' is not finite"),
        ({"obs": np.full((2, 3, 2), 1e39)}, "obs of episode '007', step 0, feature 'x' is not finite as float32"),
        ({"obs": np.full((2, 3, 2), -1e30)}, r"obs of episode '007', step 0, feature 'x' is -1e\+30, beyond 1e\+15"),
        ({"actions": np.zeros((2, 2))}, "actions must be whole numbers, got float64"),
        ({"actions": np.array([[0, 2], [0, 0]])}, r"action of episode '007', step 1 is 2, not within 0\.\.1"),
        ({"actions": np.array([[0, 0], [-1, 0]])}, r"action of episode '7', step 0 is -1, not within 0\.\.1"),
        ({"lengths": np.array([2, 0])}, r"episode '7' has length 0, not within 1\.\.2"),
        ({"lengths": np.array([3, 1])}, r"episode '007' has length 3, not within 1\.\.2"),
        ({"lengths": np.array([2.0, 1.0])}, "lengths must be whole numbers"),
        ({"lengths": np.array([2])}, r"lengths must be \[2\]"),
        ({"terminated": np.array([False, False])}, "episode '007' must be either terminated or truncated"),
        ({"truncated": np.array([True, True])}, "episode '007' must be either terminated or truncated"),
        ({"terminated": np.array([1, 0])}, r"terminated and truncated must be bool \[2\]"),
        ({"features": ("x",)}, "features must be 2 different names"),
        ({"features": ("x", "x")}, "features must be 2 different names"),
        ({"action_names": ("treat",)}, "action_names must be at least two different names"),
        ({"ids": ("7", "7")}, "the id '7' stands for two episodes"),
        ({"groups": ("a",)}, "ids and groups must be 2 names"),
        ({"contexts": (("ward", ("a", "b")),)}, r"context_levels must be \[2, 2, 1\], got \[2, 2, 2\]"),
        ({"contexts": ()}, "contexts and context_levels must be given together"),
        ({"context_levels": None}, "contexts and context_levels must be given together"),
        ({"contexts": (("a", ("0", "1")), ("a", ("0", "1", "2")))}, "contexts must have different names"),
        ({"contexts": (("a", ("0", "1")), ("previous", ("0", "1", "2")))}, "none of them previous, previous2 or none"),
        ({"contexts": (("none", ("0", "1")), ("a", ("0", "1", "2")))}, "none of them previous, previous2 or none"),
        ({"contexts": (("a", ("0", "0")), ("b", ("0", "1", "2")))}, "context 'a' must have different levels"),
        ({"contexts": (("a", ("0", "1")), ("b", ()))}, "context 'b' must have different levels, at least one"),
        ({"context_levels": np.zeros((2, 2, 2))}, "context_levels must be whole numbers, got float64"),
        (
            {"context_levels": np.array([[[0, 0], [0, 3]], [[0, 0], [0, 0]]])},
            r"episode '007', step 1: the level of 'shift' is 3, not within 0\.\.2",
        ),
        (
            {"context_levels": np.array([[[0, 0], [0, 0]], [[-1, 0], [0, 0]]])},
            r"episode '7', step 0: the level of 'ward' is -1, not within 0\.\.1",
        ),
    ],
)
def test_a_broken_promise_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        in_wards(**changes)


def test_take_keeps_the_order_asked_for() -> None:
    swapped = small(groups=("a", "b")).take(np.array([1, 0]))
    assert (swapped.ids, swapped.groups) == (("7", "007"), ("b", "a"))
    assert swapped.lengths.tolist() == [1, 2]
    assert swapped.obs[0, 0].tolist() == [6, 7]
    assert swapped.take(np.array([True, False])).ids == ("7",)


def test_a_batch_is_thinned_to_evenly_spaced_whole_episodes() -> None:
    """Ten episodes of two steps: of 9 decisions four whole episodes are left, the first and the last among them."""
    obs, actions = np.zeros((10, 3, 1), dtype=np.float32), np.zeros((10, 2), dtype=np.int64)
    ends = {"terminated": np.zeros(10, dtype=np.bool_), "truncated": np.ones(10, dtype=np.bool_)}
    names = tuple("abcdefghij")
    batch = Batch(
        obs, actions, np.full(10, 2), **ends, ids=names, groups=names, features=("x",), action_names=("0", "1")
    )
    assert batch.thinned(9).ids == ("a", "d", "g", "j")
    assert batch.thinned(1).ids == ("a",)
    assert batch.thinned(20) is batch


def test_batches_together_are_their_episodes_in_the_order_of_ids() -> None:
    wards = (("ward", ("A", "B")),)
    levels = np.arange(10).reshape(2, 5, 1) % 2
    long = Batch(
        obs=np.arange(24.0).reshape(2, 6, 2),
        actions=np.array([[1, 0, 1, 0, 1], [1, 1, 0, 0, 0]]),
        lengths=np.array([5, 2]),
        terminated=np.array([True, False]),
        truncated=np.array([False, True]),
        features=("x", "y"),
        action_names=("wait", "treat"),
        ids=("d", "b"),
        groups=("p", "q"),
        allowed=np.ones((2, 5, 2), dtype=np.bool_),
        contexts=wards,
        context_levels=levels,
    )
    short = replace(long.take(np.array([1])).trimmed(), ids=("c",), groups=("p",))
    whole = Batch.together([long, short])
    assert (whole.ids, whole.groups, whole.horizon) == (("b", "c", "d"), ("q", "p", "p"), 5)
    assert whole.take(np.array([2, 0])) == long
    assert whole.take(np.array([1])).trimmed() == short
    assert Batch.together([short, long]) == whole
    assert Batch.together([long]) == long.take(np.array([1, 0]))
    # The parts of a split are the whole again.
    first, second = whole.split(0.5, np.random.default_rng(0))
    assert Batch.together([second, first]) == whole


def test_batches_that_do_not_fit_together() -> None:
    batch = small()
    other = replace(batch, ids=tuple(f"other {name}" for name in batch.ids))
    for wrong in (
        [],
        [batch, replace(other, features=tuple(f"{name}'" for name in batch.features))],
        [batch, replace(other, action_names=tuple(f"{name}'" for name in batch.action_names))],
        [batch, replace(other, allowed=np.ones((*batch.actions.shape, batch.n_actions), dtype=np.bool_))],
        [in_wards(), other],
    ):
        with pytest.raises(ValueError, match="batches of the same features, actions and contexts are needed"):
            Batch.together(wrong)
    with pytest.raises(ValueError, match="stands for two episodes"):
        Batch.together([batch, batch])


def test_a_split_is_by_group() -> None:
    batch, _ = Batch.from_dataframe(stays(*[1 + i % 3 for i in range(40)]))
    batch = replace(batch, groups=tuple(f"g{i // 4}" for i in range(40)))
    first, second = batch.split(0.3, np.random.default_rng(0))
    assert set(first.groups) | set(second.groups) == set(batch.groups)
    assert not set(first.groups) & set(second.groups)
    assert (len(set(second.groups)), len(second)) == (3, 12)
    assert sorted(first.ids + second.ids) == sorted(batch.ids)
    assert batch.split(0.3, np.random.default_rng(0))[1] == second
    assert batch.split(0.3, np.random.default_rng(1))[1] != second
    with pytest.raises(ValueError, match="two groups are needed"):
        replace(batch, groups=("one",) * 40).split(0.3, np.random.default_rng(0))
    for share in (0, 1):
        with pytest.raises(ValueError, match="share must lie between 0 and 1"):
            batch.split(share, np.random.default_rng(0))


@settings(max_examples=20, deadline=None)
@given(
    ids=st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), min_size=2, max_size=2, unique=True
    ),
    x=st.floats(-1e9, 1e9, width=32),
)
def test_what_is_saved_is_what_is_loaded(ids: list[str], x: float, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("batch") / "batch.npz"
    batch = small(ids=tuple(ids), obs=np.full((2, 3, 2), x), groups=("eins", "ä"))
    batch.save(path)
    assert Batch.load(path) == batch
    again = path.with_name("again.npz")
    Batch.load(path).save(again)
    assert again.read_bytes() == path.read_bytes()


def test_contexts_are_kept_in_the_file_and_need_not_be_there(tmp_path: Path) -> None:
    path = tmp_path / "batch.npz"
    small().save(path)
    assert not {"contexts", "context_levels", "allowed"} & set(read_arrays(path))  # as earlier versions wrote it
    in_wards(contexts=(("stätion", ("ä", "7 ")), ("s", ("0", "", '"')))).save(path)
    assert Batch.load(path) == in_wards(contexts=(("stätion", ("ä", "7 ")), ("s", ("0", "", '"'))))
    arrays = read_arrays(path)
    for told in ("[[", '[["ward"]]', '[["ward", 3]]', "5"):
        write_arrays(path, arrays | {"contexts": np.array(told)})
        with pytest.raises(ValueError, match=r"batch\.npz is not a whole batch"):
            Batch.load(path)
    write_arrays(path, {name: array for name, array in arrays.items() if name != "contexts"})
    with pytest.raises(ValueError, match="its list of fields is not that of what it holds"):
        Batch.load(path)
    older = {"schema": np.array(1)} | {
        name: array for name, array in arrays.items() if name not in ("schema", "fields")
    }
    write_arrays(path, {name: array for name, array in older.items() if name != "contexts"})
    with pytest.raises(ValueError, match="contexts and context_levels must be given together"):
        Batch.load(path)
    write_arrays(path, older)
    assert Batch.load(path).contexts[0] == ("stätion", ("ä", "7 "))


def test_a_file_that_is_no_batch_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "batch.npz"
    write_arrays(path, {"weights": np.zeros(3)})
    with pytest.raises(ValueError, match="it is no batch: it holds weights"):
        Batch.load(path)
    small().save(path)
    arrays = read_arrays(path)
    write_arrays(path, {k: v for k, v in arrays.items() if k != "lengths"})
    with pytest.raises(ValueError, match=r"it is no batch: \['lengths'\] missing or unknown"):
        Batch.load(path)
    write_arrays(path, arrays | {"lengths": np.array([2, 3])})
    with pytest.raises(ValueError, match=r"episode '7' has length 3, not within 1\.\.2"):
        Batch.load(path)


def test_an_action_that_no_episode_holds_is_warned_of() -> None:
    batch, _ = Batch.from_dataframe(stays(3, 2))
    warn_of_actions_never_taken(batch)
    stated = replace(batch, action_names=("0", "1", "never"))
    with pytest.warns(UserWarning, match="action 'never' is never taken in these episodes"):
        warn_of_actions_never_taken(stated, stated)
    one = replace(stated, actions=np.full_like(stated.actions, 2) * stated.mask)
    warn_of_actions_never_taken(stated, one)


def test_what_was_seldom_taken_by_hand():
    # 12 patients with 60 decisions each, 720: action 2 by 29 decisions (under 30), action 3 by 30 of 9 patients, action
    # 4 by 30 of 10 patients; 5 never.
    taken = np.zeros((12, 60), dtype=np.int64)
    taken[:10, :3] = 4
    taken[:9, 3:6], taken[:3, 6] = 3, 3
    taken[:10, 7:9], taken[:9, 9] = 2, 2
    taken[:, 30:] = 1
    batch = batch_of(*taken.tolist(), n_actions=6)
    assert [int((taken == action).sum()) for action in range(6)] == [271, 360, 29, 30, 30, 0]
    assert seldom_taken(batch) == (2, 3, 5)
    # One patient in two stays is one; five per cent of the decisions are enough in a small table.
    assert seldom_taken(batch_of(*taken.tolist(), n_actions=6, groups=("a", *"abcdefghijk"))) == (2, 3, 4, 5)
    assert seldom_taken(batch_of([0] * 19 + [1], n_actions=2)) == ()
    assert seldom_taken(batch_of([0] * 20 + [1], n_actions=2)) == (1,)
