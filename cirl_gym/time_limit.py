"""Who counts the steps: one owner of the time limit, wherever it was given."""

from __future__ import annotations

import sys

NO_LIMIT_ASKED = -1
"""``max_episode_steps`` of somebody who wants no limit, as in ``gymnasium.make``."""


def time_limit(horizon: int, stated: str | None, max_episode_steps: int | None) -> int | None:
    """The number of actions after which watching ends; None: never.

    Args:
        horizon: the environment's own limit.
        stated: how the user has stated it ("horizon=12"); None if it is a default, which ``max_episode_steps``
            replaces.
        max_episode_steps: as Gymnasium names it; -1 for none, None if it was not given.

    Raises:
        ValueError: the two contradict each other, or ``max_episode_steps`` is not a possible limit.
    """
    if max_episode_steps is None:
        return horizon
    if max_episode_steps < 1 and max_episode_steps != NO_LIMIT_ASKED:
        raise ValueError(f"max_episode_steps must be at least 1, or -1 for none, got {max_episode_steps}")
    if stated is not None and horizon != max_episode_steps:
        raise ValueError(
            f"{stated} and max_episode_steps={max_episode_steps} contradict each other: the time limit of an "
            f"environment that Gymnasium makes is max_episode_steps, so give max_episode_steps={horizon}"
        )
    return None if max_episode_steps == NO_LIMIT_ASKED else max_episode_steps


def asked_of_make() -> int | None:
    """``max_episode_steps`` of the ``gymnasium.make`` that calls the calling entry point, or the registered one.

    ``gymnasium.make`` keeps it to itself and hands it to a wrapper, which can shorten an episode and never lengthen it:
    an environment with a limit of its own would silently ignore a longer one. So it is read where it stands, in the
    frame of ``make``. None where none is registered and none was given, or where somebody else calls.
    """
    frame = sys._getframe(2)
    if frame.f_code.co_name != "make" or frame.f_globals.get("__name__") != "gymnasium.envs.registration":
        return None
    asked: int | None = frame.f_locals["max_episode_steps"]
    registered: int | None = frame.f_locals["env_spec"].max_episode_steps
    return registered if asked is None else asked
