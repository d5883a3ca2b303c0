"""Episodes that are still going on, recorded side by side until each one ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from agents.episode_ring import Fields

_FIRST_STEPS = 32


class OpenEpisodes:
    """One episode per row, of whatever length so far.

    Args:
        fields: what a step holds.
        n: rows.
    """

    def __init__(self, fields: Fields, n: int) -> None:
        self.steps = np.zeros(n, dtype=np.int64)
        self._rows = np.arange(n)
        self._arrays = {name: np.zeros((n, _FIRST_STEPS, *shape), dtype) for name, (shape, dtype) in fields.items()}

    def forget(self) -> None:
        """Begin a new episode in every row."""
        self.steps[:] = 0

    def write(self, step: Mapping[str, npt.NDArray[Any]]) -> None:
        """Append one step ``[n, ..]`` to every row."""
        capacity = next(iter(self._arrays.values())).shape[1]
        # The last place is for what is seen after the last action.
        if self.steps.max() + 2 > capacity:
            self._arrays = {name: np.concatenate([a, np.zeros_like(a)], axis=1) for name, a in self._arrays.items()}
        for name, array in self._arrays.items():
            array[self._rows, self.steps] = step[name]
        self.steps += 1

    def close(self, row: int, end: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
        """The whole episode ``[k + 1, ..]`` of a row, which then begins a new one.

        Args:
            row: which.
            end: what is seen after the last action; fields that it leaves out are zero there.
        """
        k = int(self.steps[row])
        for name, array in self._arrays.items():
            array[row, k] = end.get(name, 0)
        self.steps[row] = 0
        return {name: array[row, : k + 1] for name, array in self._arrays.items()}
