"""One step of the projection method (paper, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
