"""The reward of every environment: R = w . phi, with weights that are checked once (paper, equation 23)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cirl_gym.types import FloatArray


def check_weights(weights: npt.ArrayLike, features: Sequence[str]) -> FloatArray:
    """The weights ``[d]`` as a read-only array, one per feature.

    Raises:
        ValueError: not one finite number per feature, or their absolute values add up to more than 1 (with phi in
            [0, 1] the norm bounds the reward of a step).
    """
    try:
        array = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"weights must be {len(features)} numbers, got {weights!r}") from error
    if array.shape != (len(features),):
        raise ValueError(
            f"weights must be {len(features)} numbers, one for each of {', '.join(features)}; got shape {array.shape}"
        )
    if not np.isfinite(array).all():
        raise ValueError(f"weights must be finite, got {array.tolist()}")
    norm = float(np.abs(array).sum())
    if norm > 1 + 1e-9:
        raise ValueError(f"weights must have an L1 norm of at most 1, got {array.tolist()} with norm {norm:g}")
    array.setflags(write=False)
    return array


def reward(phi: FloatArray, weights: FloatArray) -> FloatArray:
    """``[..]`` w . phi for ``phi [.., d]`` and weights ``[d]`` or ``[.., d]``, added feature by feature.

    Written out instead of a matrix product, so that a row's reward is the same to the last bit alone and among others.
    """
    total: FloatArray = phi[..., 0] * weights[..., 0]
    for k in range(1, phi.shape[-1]):
        total = total + phi[..., k] * weights[..., k]
    return total
