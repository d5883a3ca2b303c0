"""Random numbers of many rows, each from a generator of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np

from cirl_gym.types import BoolArray, FloatArray, IntArray


class RowStreams:
    """n streams of rows of ``width`` numbers, drawn ahead so that one for every stream needs no loop over them.

    A stream is its generator's own sequence of numbers, in order: how far ahead they are drawn changes none of them.
    So a row's numbers are the same alone and among others.

    Args:
        n: how many streams.
        width: numbers that are taken at once.
        kind: standard ``"normal"``, or ``"uniform"`` on [0, 1).
        ahead: how many takes are drawn at once. 1 leaves a generator, between two takes, where its last number was.
    """

    def __init__(self, n: int, width: int, kind: Literal["normal", "uniform"], ahead: int) -> None:
        self._kind = kind
        self._numbers = np.zeros((n, ahead, width))
        self._taken: IntArray = np.full(n, ahead, dtype=np.int64)
        """``[n]`` how many of those drawn are used up."""
        self._first = np.arange(n) * ahead
        self._generators: list[np.random.Generator | None] = [None] * n

    def use(self, rows: Iterable[int], generators: Iterable[np.random.Generator]) -> None:
        """Draw from these generators from now on; what was drawn ahead from another one is dropped."""
        for i, rng in zip(rows, generators, strict=True):
            if self._generators[i] is not rng:
                self._generators[i] = rng
                self._taken[i] = self._numbers.shape[1]

    def take(self, rows: IntArray) -> FloatArray:
        """``[k, width]`` the next numbers of ``rows [k]``."""
        taken = self._taken[rows]
        used_up = (taken == self._numbers.shape[1]).nonzero()[0]
        if len(used_up):
            self._draw(rows[used_up])
            taken[used_up] = 0
        numbers: FloatArray = self._numbers[rows, taken]
        self._taken[rows] = taken + 1
        return numbers

    def take_all(self, going: BoolArray) -> FloatArray:
        """``[n, width]`` the next numbers of rows that are ``going [n]``; numbers without meaning for the others."""
        used_up = (self._taken == self._numbers.shape[1]).nonzero()[0]
        if len(used_up):
            self._draw(used_up)
        width = self._numbers.shape[2]
        numbers: FloatArray = self._numbers.reshape(-1, width).take(self._first + self._taken, axis=0)
        self._taken += going
        return numbers

    def _draw(self, rows: IntArray) -> None:
        for i in rows:
            rng = self._generators[i]
            assert rng is not None  # a row is given its generator before it begins
            if self._kind == "normal":
                rng.standard_normal(out=self._numbers[i])
            else:
                rng.random(out=self._numbers[i])
        self._taken[rows] = 0
