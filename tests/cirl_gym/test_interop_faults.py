"""What data formats have got wrong elsewhere: last observations, ends, alignment, short episodes, absurd numbers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from interop_batches import VIEWS, assert_same_steps, ladder, steps_of, uneven, unit_map

from cirl_gym.data.batch import Batch
from cirl_gym.files import read_arrays, write_arrays
from cirl_gym.interop import (
    from_episodes,
    from_long_table,
    from_minari,
    to_long_table,
    to_minari,
    transitions,
)

every_exporter = pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)


@pytest.fixture(autouse=True)
def _minari_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))


def foreign(*episodes: tuple[list[Any], list[int], list[bool], list[bool]], width: int = 1) -> Any:
    """A data set as Minari presents one that somebody else made: (observations, actions, terminations, truncations)."""
    rows = [
        SimpleNamespace(
            id=i,
            observations=np.array(x, dtype=np.float64).reshape(-1, width),
            actions=np.array(a, dtype=np.int64),
            rewards=np.zeros(len(a)),
            terminations=np.array(e, dtype=bool),
            truncations=np.array(c, dtype=bool),
        )
        for i, (x, a, e, c) in enumerate(episodes)
    ]
    return SimpleNamespace(
        id="theirs/data-v0",
        observation_space=spaces.Box(-np.inf, np.inf, (width,)),
        action_space=spaces.Discrete(2),
        storage=SimpleNamespace(metadata={}, total_episodes=len(rows)),
        iterate_episodes=lambda: iter(rows),
    )


def many(n: int) -> dict[str, Any]:
    """N episodes of one action, and every tenth of two."""
    lengths = [2 if i % 10 == 0 else 1 for i in range(n)]
    return {
        "obs": [np.arange(k + 1.0)[:, None] + i for i, k in enumerate(lengths)],
        "actions": [np.arange(k) % 2 for k in lengths],
        "terminated": np.ones(n, dtype=bool),
        "features": ("x",),
        "action_names": ("no", "yes"),
        "ids": [f"p{i}" for i in range(n)],
    }


def test_one_of_a_thousand_with_a_row_too_few_or_too_many_is_named() -> None:
    fields = many(1000)
    batch = from_episodes(**fields)
    assert len(batch) == 1000
    x = fields["obs"][617]
    for wrong in (x[:-1], np.concatenate([x, x[-1:]])):
        fields["obs"][617] = wrong
        with pytest.raises(ValueError, match=f"episode 'p617': {len(wrong)} observations for 1 actions"):
            from_episodes(**fields)
    pytest.importorskip("minari")
    h5py = pytest.importorskip("h5py")
    data = to_minari(batch, "cirl/file-v0", unit_map(batch), [1.0])
    back, report = from_minari(data)
    assert (back, report.used, report.steps) == (batch, 1000, 1100)
    with h5py.File(data.storage.data_path / "main_data.hdf5", "a") as file:
        file["episode_617"]["observations"].resize(1, axis=0)
    with pytest.raises(ValueError, match="episode 'p617': 1 observations for 1 actions; k actions need k \\+ 1"):
        from_minari("cirl/file-v0")


def test_rows_without_end_marks_need_the_user_s_word_which_is_recorded_and_cut_bootstraps() -> None:
    no = [False, False]
    data = foreign(([0, 1, 2], [0, 1], no, no), ([5, 6], [1], [True], [False]), ([7, 8], [1], [False], [True]))
    with pytest.raises(ValueError, match=r"1 of 3 episodes \(the first is '0'\) .* Say ends='ended' .* or ends='cut'"):
        from_minari(data)
    for ends, expected in (("ended", [True, True, False]), ("cut", [False, True, False])):
        batch, report = from_minari(data, ends=ends)
        assert batch.terminated.tolist() == expected
        assert (report.ends, report.unmarked) == (ends, 1)
        assert (report.terminated, report.truncated) == (sum(expected), 3 - sum(expected))
    marked = foreign(([0, 1], [0], [True], [False]))
    with pytest.raises(ValueError, match="itself says how each episode ends: leave out ends"):
        from_minari(marked, ends="cut")
    with pytest.raises(ValueError, match="ends must be 'ended' or 'cut', got 'done'"):
        from_minari(marked, ends="done")  # type: ignore[arg-type]
    assert from_minari(marked)[1].ends is None
    # Two actions with phi 1 and 2, and mu = 4 of what would follow: the targets are 2 and 1 + .5 * 2 = 2 if it ended,
    # 2 + .5 * 4 = 4 and 1 + .5 * 4 = 3 if the record was cut.
    gamma, after = 0.5, 4.0
    targets = {}
    for ends in ("ended", "cut"):
        batch, _ = from_minari(foreign(([0, 1, 2], [0, 1], no, no)), ends=ends)
        following = [after]
        for step in reversed(list(transitions(batch, unit_map(batch), [1.0]))):
            following.insert(0, step.reward + (0.0 if step.terminated else gamma * following[0]))
        targets[ends] = following[:2]
    assert targets == {"ended": [2.0, 2.0], "cut": [3.0, 4.0]}
    assert targets["cut"][1] - targets["ended"][1] == gamma * after


@every_exporter
def test_no_exporter_takes_a_cut_for_an_end(view: Any) -> None:
    ends = [[step[4] for step in episode] for episode in view(uneven(2, 2, 1), [0.5, 0.5], True)]
    assert ends == [[False, True], [False, False], [False]]


@every_exporter
def test_the_input_at_t_holds_the_action_before_it_and_never_its_own(view: Any) -> None:
    (episode,) = view(ladder(), [0.1], True)
    shown = [step[0][1:] for step in episode] + [episode[-1][3][1:]]
    assert [np.flatnonzero(row).tolist() for row in shown] == [[], [10], [11], [12]]
    assert np.sum(shown) == 3


def test_both_marks_at_once_are_an_end_and_counted_but_not_before_the_last_step() -> None:
    batch, report = from_minari(foreign(([0, 1], [0], [True], [True]), ([0, 1], [1], [False], [True])))
    assert batch.terminated.tolist() == [True, False]
    assert (report.both, report.terminated, report.truncated) == (1, 1, 1)
    for marks in (([True, False], [False, False]), ([False, False], [True, True])):
        with pytest.raises(ValueError, match="episode '0': its end is marked at step 0, but it goes on to step 1"):
            from_minari(foreign(([0, 1, 2], [0, 1], *marks)))


@every_exporter
@pytest.mark.parametrize("shown", [False, True])
def test_action_reward_and_next_observation_go_with_their_observation(view: Any, shown: bool) -> None:
    (episode,) = view(ladder(), [0.1], shown)
    found = [(x[0], a, r, y[0], e) for x, a, r, y, e in episode]
    assert [(x, a, y) for x, a, _, y, _ in found] == [(0, 10, 1), (1, 11, 2), (2, 12, 3)]
    np.testing.assert_allclose([r for _, _, r, _, _ in found], [0.1, 0.2, 0.3], rtol=1e-6)
    assert [e for *_, e in found] == [False, False, True]


@every_exporter
@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("ended", ["first", "others"])
def test_lengths_1_1_20_reach_every_library_whole(view: Any, shown: bool, ended: str) -> None:
    batch = uneven(1, 1, 20, ended=ended)
    found = view(batch, [0.25, -0.75], shown)
    assert [len(episode) for episode in found] == [1, 1, 20]
    assert_same_steps(found, steps_of(batch, [0.25, -0.75], shown))


def test_counts_of_every_way_back_add_up(tmp_path: Path) -> None:
    batch = uneven(1, 1, 20)
    batch.save(tmp_path / "b.npz")
    assert Batch.load(tmp_path / "b.npz") == batch
    back, table = from_long_table(to_long_table(batch))
    assert back == batch
    assert (table.rows.read, table.rows.used, table.episodes.used, table.episodes.steps) == (25, 25, 3, 22)
    pytest.importorskip("minari")
    back, report = from_minari(to_minari(batch, "cirl/short-v0", unit_map(batch), [0.5, 0.5]))
    assert back == batch
    assert (report.episodes, report.used, report.lone, report.steps) == (3, 3, 0, 22)
    assert (report.terminated, report.truncated, report.rewards_left_out) == (1, 2, 22)


def test_episodes_without_an_action_are_counted_or_refused_by_name() -> None:
    data = foreign(([3], [], [], []), ([0, 1], [0], [True], [False]), ([4], [], [], []))
    batch, report = from_minari(data)
    assert batch.ids == ("1",)
    assert (report.episodes, report.used, report.lone, report.steps) == (3, 1, 2, 1)
    with pytest.raises(ValueError, match="has no episode with an action"):
        from_minari(foreign(([3], [], [], [])))
    fields = many(2)
    fields["obs"][1], fields["actions"][1] = np.zeros((1, 1)), np.array([], dtype=np.int64)
    with pytest.raises(ValueError, match="episode 'p1' has no action"):
        from_episodes(**fields)
    frame = to_long_table(uneven(2, 1, 2))
    frame = frame[(frame["id"] != "001") | (frame["step"] == 0)].copy()
    frame.loc[frame["id"] == "001", "action"] = np.nan
    frame.loc[frame["id"] == "001", "truncated"] = 1
    back, table = from_long_table(frame)
    assert back.ids == ("000", "002")
    assert (table.episodes.read, table.episodes.used, table.episodes.lone, table.rows.lone) == (3, 2, 1, 1)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (np.nan, "is not finite as float32"),
        (np.inf, "is not finite as float32"),
        (-np.inf, "is not finite as float32"),
        (1e30, r"is 1e\+30, beyond 1e\+15"),
    ],
)
def test_one_bad_cell_of_ten_thousand_is_named_wherever_it_comes_from(value: float, why: str, tmp_path: Path) -> None:
    batch = uneven(*[49] * 100)
    assert batch.obs.size == 10_000
    where = rf"episode '0041', step 17, feature 'z' {why}"
    obs = batch.obs.copy()
    obs[41, 17, 1] = value
    names = {"features": batch.features, "action_names": batch.action_names, "ids": batch.ids}
    with pytest.raises(ValueError, match=where):
        from_episodes(list(obs), list(batch.actions), batch.terminated, **names)
    batch.save(tmp_path / "b.npz")
    write_arrays(tmp_path / "b.npz", read_arrays(tmp_path / "b.npz") | {"obs": obs})
    with pytest.raises(ValueError, match=where):
        Batch.load(tmp_path / "b.npz")
    pytest.importorskip("minari")
    h5py = pytest.importorskip("h5py")
    batch = uneven(20, 20, 20)
    data = to_minari(batch, "cirl/bad-v0", unit_map(batch), [0.5, 0.5])
    with h5py.File(data.storage.data_path / "main_data.hdf5", "a") as file:
        file["episode_1"]["observations"][17, 1] = value
    with pytest.raises(ValueError, match=rf"episode '001', step 17, feature 'z' {why}"):
        from_minari(data)
