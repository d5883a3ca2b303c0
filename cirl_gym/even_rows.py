"""Some of many rows, spread evenly over all of them."""

from __future__ import annotations

import numpy as np

from cirl_gym.types import IntArray


def even_rows(n: int, most: int) -> IntArray:
    """At most ``most`` of the rows 0..n-1, the first and the last among them; the same ones at every call."""
    rows: IntArray = np.linspace(0, n - 1, min(n, most)).astype(np.int64)
    return rows
