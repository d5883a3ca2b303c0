"""Whole episodes of different lengths, one after the other in arrays that are used in a circle."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cirl_gym.types import IntArray

Unit = Literal["steps", "episodes"]
"""What a capacity counts."""
Fields = Mapping[str, tuple[tuple[int, ...], npt.DTypeLike]]
"""Shape and dtype of one row of every field."""

_FIRST_ROWS = 1024


class EpisodeRing:
    """The last episodes that fit; the oldest leave, always whole.

    An episode of k actions takes k + 1 rows: the last one holds what was seen after the last action. The arrays grow
    with what is stored until the capacity is reached, so that a large capacity costs nothing before it is used.

    Args:
        fields: what a row holds.
        capacity: how many steps (actions) or episodes are kept.
        unit: which of the two.

    Raises:
        ValueError: the capacity is below 1 or the unit is unknown.
    """

    def __init__(self, fields: Fields, capacity: int, unit: Unit = "steps") -> None:
        if unit not in ("steps", "episodes"):
            raise ValueError(f"unit must be 'steps' or 'episodes', got {unit!r}")
        if capacity < 1:
            raise ValueError(f"the capacity must be at least 1, got {capacity}")
        self.capacity, self.unit = capacity, unit
        self.arrays = {name: np.zeros((_FIRST_ROWS, *shape), dtype) for name, (shape, dtype) in fields.items()}
        self.clear()

    def clear(self) -> None:
        """Forget all episodes."""
        self._starts: deque[int] = deque()
        self._lengths: deque[int] = deque()
        self._index: tuple[IntArray, IntArray] | None = None
        self._next = 0
        self.n_steps = 0

    def __len__(self) -> int:
        """Number of episodes."""
        return len(self._starts)

    @property
    def lengths(self) -> IntArray:
        """``[E]`` number of actions of every episode, the oldest first."""
        return self._table()[1]

    def append(self, episode: Mapping[str, npt.NDArray[Any]]) -> None:
        """Store an episode of k actions: ``[k + 1, ..]`` for every field.

        Raises:
            ValueError: it has no action, or alone exceeds the capacity.
        """
        rows = len(next(iter(episode.values())))
        steps = rows - 1
        if steps < 1:
            raise ValueError("an episode must have at least one action")
        if self.unit == "steps" and steps > self.capacity:
            raise ValueError(f"an episode of {steps} steps does not fit into a capacity of {self.capacity} steps")
        added = steps if self.unit == "steps" else 1
        while (self.n_steps if self.unit == "steps" else len(self)) + added > self.capacity:
            self._drop_oldest()
        self._make_room(rows)
        where = (self._next + np.arange(rows)) % self._size
        for name, array in self.arrays.items():
            array[where] = episode[name]
        self._starts.append(self._next)
        self._lengths.append(steps)
        self._next = (self._next + rows) % self._size
        self.n_steps += steps
        self._index = None

    def rows(self, episodes: IntArray, width: int) -> IntArray:
        """``[n, width]`` where the rows of episodes (0: the oldest) are in :attr:`arrays`.

        Beyond an episode's own rows its last one is repeated.
        """
        starts, lengths = self._table()
        offset = np.minimum(np.arange(width), lengths[episodes, None])
        rows: IntArray = (starts[episodes, None] + offset) % self._size
        return rows

    @property
    def _size(self) -> int:
        return len(next(iter(self.arrays.values())))

    def _used(self) -> int:
        return self.n_steps + len(self)

    def _table(self) -> tuple[IntArray, IntArray]:
        if self._index is None:
            self._index = np.array(self._starts, dtype=np.int64), np.array(self._lengths, dtype=np.int64)
        return self._index

    def _drop_oldest(self) -> None:
        self._starts.popleft()
        self.n_steps -= self._lengths.popleft()

    def _make_room(self, rows: int) -> None:
        """Move everything into arrays twice as large, in order, if the rows do not fit."""
        used = self._used()
        if used + rows <= self._size:
            return
        self._index = None
        kept = (np.arange(used) + (self._starts[0] if self._starts else 0)) % self._size
        size = max(2 * self._size, used + rows)
        for name, array in self.arrays.items():
            larger = np.zeros((size, *array.shape[1:]), array.dtype)
            larger[:used] = array[kept]
            self.arrays[name] = larger
        ends = np.cumsum(np.array(self._lengths, dtype=np.int64) + 1)
        self._starts = deque([0, *ends[:-1].tolist()] if len(ends) else [])
        self._next = used
