"""The options of ``reset``, checked before anything is changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cirl_gym.parameters import TumourParameters
from cirl_gym.types import FloatArray


def check_patient(parameters: TumourParameters, options: Mapping[str, Any], n: int) -> FloatArray | None:
    """First (x, z) ``[n, 2]`` from reset's option ``patient``: one pair for all, or a pair each; None if not given.

    Raises:
        ValueError: the shape is wrong, or a value is not inside (0, x_max) and [0, z_max), where an episode can begin.
    """
    if options.get("patient") is None:
        return None
    try:
        given = np.array(options["patient"], dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"option 'patient' must be a pair (x0, z0), got {options['patient']!r}") from error
    if given.shape not in ((2,), (n, 2)):
        raise ValueError(f"option 'patient' must be a pair (x0, z0), got shape {given.shape}")
    patients = np.broadcast_to(given, (n, 2))
    x, z = patients[:, 0], patients[:, 1]
    # Written as "not inside", so that a NaN is refused too.
    if not ((x > 0) & (x < parameters.tumour_max)).all():
        raise ValueError(f"option 'patient': x0 must lie inside (0, {parameters.tumour_max:g}), got {x.tolist()}")
    if not ((z >= 0) & (z < parameters.side_max)).all():
        raise ValueError(f"option 'patient': z0 must lie inside [0, {parameters.side_max:g}), got {z.tolist()}")
    return patients


def check_option_names(options: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Refuse an option of reset that does not exist, naming it.

    Raises:
        ValueError: an option is unknown.
    """
    unknown = sorted(str(name) for name in options if name not in known)
    if unknown:
        raise ValueError(f"reset: unknown option {', '.join(map(repr, unknown))}; known: {', '.join(known)}")
