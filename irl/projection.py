"""One step of the projection method (paper, Algorithm 1), and weights on the L1 sphere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cirl_gym.types import FloatArray

SAME = 1e-12
"""Two feature expectations whose distance is below this share of their size are the same policy's."""


@dataclass(frozen=True)
class Projection:
    """mu_E projected onto the segment from bar to mu (paper, Algorithm 1, line 10)."""

    bar: FloatArray
    """``[d]`` the nearest point of the segment to mu_E."""
    clipped: float
    """The factor used, within [0, 1]."""
    raw: float
    """The factor before clipping; outside [0, 1] the solver or mu is off (optimal policies never give less than 0)."""
    margin: float
    """Distance from mu_E to the new bar, 2-norm, of the vectors themselves and not of scaled ones."""


def project(mu_expert: FloatArray, bar: FloatArray, mu: FloatArray) -> Projection | None:
    """Move bar towards mu, as near to mu_E as the segment between them allows.

    The paper projects onto the whole line. A point outside the segment is the feature expectation of no mixture of
    policies, so the factor is kept within [0, 1].

    Args:
        mu_expert: ``[d]`` mu_E.
        bar: ``[d]`` the point reached so far.
        mu: ``[d]`` feature expectation of the newest policy.

    Returns:
        The step, or None where mu equals bar: there is no line to project onto, and no new policy.
    """
    d = mu - bar
    scale = max(float(np.abs(vector).max()) for vector in (mu_expert, bar, mu))
    size = float(np.abs(d).max())
    if size <= SAME * scale:
        return None
    along = d / size  # first, so that the square of a tiny step does not become zero
    raw = float(along @ ((mu_expert - bar) / size)) / float(along @ along)
    clipped = min(max(raw, 0.0), 1.0)
    moved = bar + clipped * d
    return Projection(moved, clipped, raw, float(np.linalg.norm(mu_expert - moved)))


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
