"""The options of CIRLTumour-v0, checked: who the patients are, and what differs for an episode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from cirl_gym import dynamics
from cirl_gym.batch import Batch
from cirl_gym.cohort import Histories
from cirl_gym.parameters import TumourParameters
from cirl_gym.reset_options import history_rows, limit_of, patient_rows, weight_rows
from cirl_gym.types import FloatArray

DEFAULT_WEIGHTS = (-0.3, -0.7)
"""One of the paper's three trade-offs between tumour volume and side effects (section 5.1)."""


class TumourOptions(TypedDict, total=False):
    """What the constructor takes for every episode and ``reset`` for one; :class:`~cirl_gym.tumour_env.TumourEnv`."""

    patient: npt.ArrayLike | None
    """(x0, z0)."""
    history: Batch | tuple[npt.ArrayLike, npt.ArrayLike] | None
    """A batch of one episode, or (obs ``[k+1, 2]``, actions ``[k]``)."""
    noise: bool | npt.ArrayLike | None
    """False for none, or standard deviations (tumour, side effects)."""
    weights: npt.ArrayLike | None
    """(w1, w2), L1 norm at most 1."""


OPTIONS = (*TumourOptions.__annotations__, "horizon", "parameters")
"""What ``reset`` takes."""
FIXED = ("order", "lags", "tumour_max", "side_max", "horizon")
"""Parameters that belong to the environment, not to an episode: the state's size, the spaces, phi, the time limit."""


@dataclass(frozen=True)
class TumourStart:
    """What ``reset`` was asked for, checked, for each of n rows."""

    parameters: TumourParameters
    weights: FloatArray
    """``[n, 2]``."""
    histories: Histories | None
    """None: drawn patients."""
    limit: int
    echo: dict[str, npt.NDArray[Any]]
    """``[n, ..]`` the options that were given, as they were understood."""


def tumour_start(given: Mapping[str, Any], base: TumourParameters, limit: int | None, n: int) -> TumourStart:
    """What options ask for, for n rows.

    Args:
        given: options of the constructor and of ``reset``, merged.
        base: the environment's parameters.
        limit: the environment's time limit; None: none.
        n: number of rows.

    Raises:
        ValueError: an option is not possible; the message names it.
    """
    parameters, histories = _parameters(base, given), None
    weights = weight_rows(given.get("weights", DEFAULT_WEIGHTS), n, dynamics.FEATURES)
    if "patient" in given:
        histories = patient_rows(given["patient"], n, 2)
        _check_going(base, "patient", histories)
    elif "history" in given:
        histories = history_rows(given["history"], n, 2, dynamics.N_ACTIONS)
        _check_going(base, "history", histories)
    least = limit_of(given.get("horizon"), limit, histories)
    understood: dict[str, Any] = {"parameters": parameters, "noise": parameters.noise}
    echo = {name: np.array([value] * n) for name, value in understood.items() if name in given}
    per_row = {"weights": weights, "horizon": np.full(n, least, dtype=np.int64)}
    if histories is not None:
        per_row |= {"patient": histories.obs[:, 0], "history": histories.lengths}
    echo |= {"step" if name == "history" else name: rows for name, rows in per_row.items() if name in given}
    return TumourStart(parameters, weights, histories, least, echo)


def _parameters(base: TumourParameters, given: Mapping[str, Any]) -> TumourParameters:
    parameters = given.get("parameters", base)
    if not isinstance(parameters, TumourParameters):
        raise ValueError(f"option 'parameters' must be TumourParameters, got {parameters!r}")
    for name in FIXED:
        own, asked = getattr(base, name), getattr(parameters, name)
        if own != asked:
            raise ValueError(
                f"option 'parameters': {name} is {own!r} in this environment and cannot become {asked!r} for an "
                "episode; make another environment"
            )
    if "noise" in given:
        parameters = _with_noise(parameters, given["noise"])
    if (parameters.highest > base.highest).any():
        raise ValueError(
            f"option {'noise' if 'noise' in given else 'parameters'!r}: observations could reach "
            f"{parameters.highest.tolist()}, beyond this environment's observation space "
            f"{base.highest.tolist()}; make another environment with these parameters"
        )
    return parameters


def _check_going(base: TumourParameters, name: str, histories: Histories) -> None:
    """Refuse beginnings after which nothing follows."""
    limits = base.limits
    for k, (feature, least) in enumerate((("x", "("), ("z", "["))):
        values = histories.obs[..., k][histories.seen]
        inside = ((values > 0) if least == "(" else (values >= 0)) & (values < limits[k])
        if not inside.all():
            raise ValueError(
                f"option {name!r}: {feature} must lie inside {least}0, {limits[k]:g}), got {values[~inside][0]:g}"
            )


def _with_noise(parameters: TumourParameters, noise: Any) -> TumourParameters:
    if isinstance(noise, bool | np.bool_):
        return parameters if noise else replace(parameters, tumour_noise=0.0, side_noise=0.0)
    try:
        tumour, side = (float(sd) for sd in np.broadcast_to(np.asarray(noise, dtype=np.float64), (2,)))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"option 'noise' must be True, False, or standard deviations (tumour, side effects), got {noise!r}"
        ) from error
    if not (0 <= tumour < np.inf and 0 <= side < np.inf):
        raise ValueError(f"option 'noise' must be finite and not negative, got {noise!r}")
    return replace(parameters, tumour_noise=tumour, side_noise=side)
