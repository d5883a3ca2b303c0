"""Drawing an episode with NumPy alone: one line of text per step, or one small picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cirl_gym.types import Float32Array, FloatArray

Picture = npt.NDArray[np.uint8]

HEIGHT, WIDTH, MARGIN, STRIP = 200, 320, 10, 14
"""Pixels: size of the picture, the border around the plot, and the height of the strip of actions below it."""
BACKGROUND, FRAME, ACTION = (255, 255, 255), (200, 200, 200), (60, 60, 60)
COLOURS = ((192, 57, 43), (41, 98, 163), (39, 134, 74), (150, 90, 160))


def line(step: int, features: Sequence[str], obs: Float32Array, previous: int) -> str:
    """One step as text: the step, what was done before it, and the features ``obs [d]`` in raw units."""
    did = "start   " if previous < 0 else f"action {previous}"
    values = "  ".join(f"{name} {value:.2f}" for name, value in zip(features, obs, strict=True))
    return f"step {step:2d}  {did}  {values}\n"


def picture(phi: FloatArray, actions: Sequence[int], horizon: int) -> Picture:
    """An episode so far as ``[200, 320, 3]`` uint8: a curve per scaled feature ``phi [k+1, d]``, a bar per action.

    The plot's lower edge is 0, its upper edge 1; a bar below the plot marks every action other than 0.
    """
    canvas = np.full((HEIGHT, WIDTH, 3), BACKGROUND, dtype=np.uint8)
    left, right = MARGIN, WIDTH - MARGIN - 1
    top, bottom = MARGIN, HEIGHT - 2 * MARGIN - STRIP - 1
    steps = max(horizon, len(actions), 1)
    canvas[[top, bottom], left : right + 1] = FRAME
    canvas[top : bottom + 1, [left, right]] = FRAME
    for t, action in enumerate(actions):
        if action:
            a, b = (left + (right - left) * edge // steps for edge in (t, t + 1))
            canvas[bottom + MARGIN : bottom + MARGIN + STRIP, a + 1 : b] = ACTION
    last = left + (right - left) * (len(phi) - 1) // steps
    columns = np.arange(left, last + 1)
    times = np.linspace(0, len(phi) - 1, len(columns))
    for k in range(phi.shape[1]):
        curve = np.interp(times, np.arange(len(phi)), np.clip(phi[:, k], 0, 1))
        rows = np.round(bottom - (bottom - top) * curve).astype(int)
        for column, before, here in zip(columns, np.r_[rows[0], rows[:-1]], rows, strict=True):
            upper, lower = min(before, here) - 1, max(before, here) + 1
            canvas[upper : lower + 1, column] = COLOURS[k % len(COLOURS)]
    return canvas
