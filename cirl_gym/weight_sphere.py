"""Weights on the L1 sphere: scaled, drawn and walked along, with the signs that are known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cirl_gym.types import FloatArray


def normalised(w: npt.ArrayLike) -> FloatArray:
    """``[d]`` w scaled to L1 norm 1; a policy does not depend on the scale of w, a network's input does.

    Raises:
        ValueError: w is not a vector, not finite, or zero.
    """
    vector = np.asarray(w, dtype=np.float64)
    if vector.ndim != 1 or len(vector) == 0 or not np.isfinite(vector).all():
        raise ValueError(f"weights must be a vector of finite numbers, got {vector}")
    largest = np.abs(vector).max()
    if largest == 0:
        raise ValueError("weights must not all be zero: they have no direction")
    vector = vector / largest  # first, so that neither very large nor very small weights leave the range of floats
    scaled: FloatArray = vector / np.abs(vector).sum()
    return scaled


def checked_signs(signs: npt.ArrayLike) -> FloatArray:
    """``[d]`` signs as -1.0, 0.0 (free) or 1.0.

    Raises:
        ValueError: not a vector of these three numbers.
    """
    vector = np.asarray(signs, dtype=np.float64)
    if vector.ndim != 1 or len(vector) == 0 or not np.isin(vector, (-1.0, 0.0, 1.0)).all():
        raise ValueError(f"signs must be a vector of -1, 0 (free) and 1, got {signs!r}")
    return vector


def keep_signs(w: FloatArray, signs: FloatArray) -> FloatArray:
    """``[.., d]`` w with every component of the wrong sign set to zero: the nearest weights that obey ``signs [d]``."""
    return np.where(w * signs < 0, 0.0, w)


def draw_weights(signs: npt.ArrayLike, rng: np.random.Generator, n: int | None = None) -> FloatArray:
    """``[d]`` (or ``[n, d]``) weights drawn uniformly from the part of the L1 sphere that ``signs [d]`` allow."""
    allowed = checked_signs(signs)
    size = (1 if n is None else n, len(allowed))
    v = rng.standard_exponential(size)
    flipped = np.where(rng.random(size) < 0.5, -1.0, 1.0)
    v *= np.where(allowed == 0, flipped, allowed)
    w: FloatArray = v / np.abs(v).sum(axis=1, keepdims=True)
    return w[0] if n is None else w


_CORNERS = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0], [1.0, 0.0]])


def arc_weights(t: FloatArray) -> FloatArray:
    """``[M, 2]`` the L1 sphere of two features, walked along: t in [0, 4], one unit per face, from (1, 0) over (0, 1).

    Within a face both components change linearly, so that t uniform is w_1 uniform.
    """
    face = np.clip(np.floor(t).astype(np.int64), 0, 3)
    share = (t - face)[:, None]
    w: FloatArray = (1 - share) * _CORNERS[face] + share * _CORNERS[face + 1]
    return w


def allowed_faces(signs: FloatArray) -> list[int]:
    """Faces 0..3 of :func:`arc_weights` on which no component has a sign that ``signs [2]`` forbid."""
    inside = (_CORNERS[:-1] + _CORNERS[1:]) * signs
    return [face for face in range(4) if (inside[face] >= 0).all()]
