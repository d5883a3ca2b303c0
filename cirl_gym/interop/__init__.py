"""Batches to and from the data formats of other libraries; each library is imported only by its own functions."""

from cirl_gym.interop.episodes import Transition, from_episodes, shown_observations, step_rewards, transitions
from cirl_gym.interop.learners import KeepLastObservation, to_d3rlpy, to_imitation
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
