"""``posterior.npz``: the draws behind a run's weights and intervals, kept so that runs can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cirl_gym.files import read_arrays, read_json, write_arrays
from cirl_gym.types import FloatArray
from cirl_gym.wrappers.learned_reward import load_reward
from irl.preferences.posterior import PosteriorResult
from irl.studies.comparison import Preferences

POSTERIOR = "posterior.npz"
"""The file of a run that holds its posterior draws."""


def save_posterior(posterior: PosteriorResult, path: Path) -> None:
    """Write ``draws [M, d]``, ``kappa_draws [M]`` and, where there are any, ``bootstrap [B, d]``, all float32."""
    arrays = {"draws": posterior.draws, "kappa_draws": posterior.kappa_draws}
    if posterior.bootstrap is not None:
        arrays["bootstrap"] = posterior.bootstrap
    write_arrays(path, {name: values.astype(np.float32) for name, values in arrays.items()})


def load_preferences(run: Path) -> Preferences:
    """What a run of ``cirl demo`` or ``cirl explain`` found of the weights.

    Raises:
        ValueError: the folder is not a whole run's, or the run kept no draws; the message names it.
        OSError: a file cannot be read.
    """
    try:
        learned = load_reward(run)
    except FileNotFoundError as error:
        raise ValueError(f"{run} is not the folder of a whole run: {error}") from error
    if not (run / POSTERIOR).is_file():
        raise ValueError(f"{run} has no {POSTERIOR}: run the command that made it again, which now keeps the draws")
    arrays = read_arrays(run / POSTERIOR)
    if not {"draws", "kappa_draws"} <= set(arrays):
        raise ValueError(f"{run / POSTERIOR} lacks the draws; it holds {', '.join(sorted(arrays)) or 'nothing'}")
    wrong = [name for name, values in arrays.items() if not np.issubdtype(values.dtype, np.floating)]
    if wrong:
        raise ValueError(f"{run / POSTERIOR}: {wrong[0]} must be floating-point numbers")
    if arrays["draws"].shape[:1] != arrays["kappa_draws"].shape:
        raise ValueError(f"{run / POSTERIOR}: draws and kappa_draws differ in length")
    bootstrap = arrays.get("bootstrap")
    gamma, signs = _told(read_json(run / "result.json"))
    return Preferences(
        run=str(run),
        feature_map=learned.feature_map,
        weights=np.asarray(learned.weights, dtype=np.float64),
        draws=_float64(arrays["draws"]),
        bootstrap=None if bootstrap is None else _float64(bootstrap),
        gamma=gamma,
        signs=signs,
    )


def _told(result: Mapping[str, Any]) -> tuple[float | None, dict[str, int]]:
    """Discount factor and known signs of a run; a run that was made otherwise may lack both."""
    config, chosen = result["config"], result.get("gammas")
    fit = config.get("fit")
    given = fit.get("gamma") if isinstance(fit, Mapping) else None
    gamma = chosen["chosen"] if isinstance(chosen, Mapping) else given
    signs = config.get("signs")
    return gamma, dict(signs) if isinstance(signs, Mapping) else {}


def _float64(values: Any) -> FloatArray:
    wide: FloatArray = values.astype(np.float64)
    return wide
