"""Batches to and from the data formats of other libraries; each library is imported only by its own functions.

:func:`transitions` gives a batch step by step; :func:`to_d3rlpy`, :func:`to_imitation` and :func:`to_minari` give the
data sets of these libraries, :func:`to_long_table` a table of pandas; :func:`from_minari`, :func:`from_long_table` and
:func:`from_episodes` (any arrays) give a batch back.

Contexts of habits stay in the table of pandas alone: the other formats have no place for what stands beside an
observation. What rules allowed is handed on by none: say the rules again (:func:`cirl_gym.data.rules.masked`).
"""

from cirl_gym.interop.episodes import (
    KeepLastObservation,
    Transition,
    from_episodes,
    shown_observations,
    step_rewards,
    to_d3rlpy,
    to_imitation,
    transitions,
)
from cirl_gym.interop.long_table import from_long_table, to_long_table
from cirl_gym.interop.minari import MinariReport, from_minari, to_minari

__all__ = [
    "KeepLastObservation",
    "MinariReport",
    "Transition",
    "from_episodes",
    "from_long_table",
    "from_minari",
    "shown_observations",
    "step_rewards",
    "to_d3rlpy",
    "to_imitation",
    "to_long_table",
    "to_minari",
    "transitions",
]
