"""The options of CIRLCounterfactual-v0, checked: which histories go on, and what differs for an episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt

from cirl_gym.batch import Batch
from cirl_gym.cohort import Histories
from cirl_gym.layout import Layout
from cirl_gym.reset_options import episode_rows, history_rows, limit_of, patient_rows, weight_rows
from cirl_gym.source import Source
from cirl_gym.types import FloatArray


class CounterfactualOptions(TypedDict, total=False):
    """What the constructor takes for every episode and ``reset`` for one.

    They are described at :class:`~cirl_gym.counterfactual_env.CounterfactualEnv`.
    """

    episode: int | str | None
    """Position or id of an episode of the batch."""
    step: int | None
    """With ``episode``: how many of its actions belong to the beginning."""
    patient: npt.ArrayLike | None
    """A first observation ``[D]``."""
    history: Batch | tuple[npt.ArrayLike, npt.ArrayLike] | None
    """A batch of one episode, or (obs ``[k+1, D]``, actions ``[k]``)."""
    outcome: Literal["expected", "sampled"] | None
    """What is observed."""
    weights: npt.ArrayLike | None
    """``[d]``, one per outcome, L1 norm at most 1."""


OPTIONS = (*CounterfactualOptions.__annotations__, "horizon")
"""What ``reset`` takes."""


@dataclass(frozen=True)
class CounterfactualStart:
    """What ``reset`` was asked for, checked, for each of n rows."""

    weights: FloatArray
    """``[n, d]``."""
    histories: Histories | None
    """None: first observations of drawn episodes."""
    sampled: bool
    limit: int
    echo: dict[str, npt.NDArray[Any]]
    """``[n, ..]`` the options that were given, as they were understood."""


def counterfactual_start(
    given: Mapping[str, Any], source: Source, layout: Layout, limit: int | None, n: int
) -> CounterfactualStart:
    """What options ask for, for n rows.

    Args:
        given: options of the constructor and of ``reset``, merged.
        source: what the process is made of.
        layout: how observations are shown, and the limits of what a beginning may hold.
        limit: the environment's time limit; None: none.
        n: number of rows.

    Raises:
        ValueError: an option is not possible; the message names it.
    """
    batch, d, histories = source.batch, len(source.batch.features), None
    weights = weight_rows(given.get("weights", source.weights), n, source.feature_map.features)
    outcome = given.get("outcome", "expected")
    if outcome not in ("expected", "sampled"):
        raise ValueError(f"option 'outcome' must be 'expected' or 'sampled', got {outcome!r}")
    if "step" in given and "episode" not in given:
        raise ValueError("option 'step' needs the option 'episode'")
    echo: dict[str, npt.NDArray[Any]] = {}
    if "episode" in given:
        histories, echo["episode"] = episode_rows(batch, given["episode"], given.get("step", 0), n)
        echo["step"] = histories.lengths
    elif "patient" in given:
        histories = patient_rows(given["patient"], n, d)
        echo["patient"] = histories.obs[:, 0]
    elif "history" in given:
        histories = history_rows(given["history"], n, d, batch.n_actions)
        echo["step"] = histories.lengths
    if histories is not None:
        _check_inside(layout, batch.features, histories)
    least = limit_of(given.get("horizon"), limit, histories)
    per_row = {
        "weights": weights,
        "outcome": np.array([outcome] * n, dtype=object),
        "horizon": np.full(n, least, dtype=np.int64),
    }
    echo |= {name: rows for name, rows in per_row.items() if name in given}
    return CounterfactualStart(weights, histories, outcome == "sampled", least, echo)


def _check_inside(layout: Layout, features: Sequence[str], histories: Histories) -> None:
    obs = histories.obs.astype(np.float32)
    wrong = np.argwhere(~((obs >= layout.low) & (obs <= layout.high)) & histories.seen[..., None])
    if len(wrong):
        row, t, k = wrong[0]
        raise ValueError(
            f"{features[k]!r} is {obs[row, t, k]:g} at step {t} of the given beginning, outside "
            f"what model and batch know: {layout.low[k]:g} to {layout.high[k]:g}"
        )
