"""A Gymnasium environment with a cohort of one row: what both environments do, whatever the process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from cirl_gym.envs.picture import Course, Renderer
from cirl_gym.envs.process import NO_LIMIT, Cohort, OfCohort, check_ruled, shown
from cirl_gym.types import BoolArray, Float32Array

_ROW = np.zeros(1, dtype=np.int64)
_GOING = np.ones(1, dtype=np.bool_)


class CohortEnv(OfCohort, gym.Env[Any, Any]):
    """One process of a :class:`~cirl_gym.envs.process.Cohort`.

    Args:
        cohort: of one row.
        render_mode: one of ``metadata["render_modes"]``, or None.

    Raises:
        ValueError: the render mode is unknown.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array", "human"], "render_fps": 4}  # noqa: RUF012

    def __init__(self, cohort: Cohort, render_mode: str | None) -> None:
        self.render_mode = render_mode
        self._renderer = None if render_mode is None else Renderer(render_mode, self.metadata["render_fps"])
        self._cohort = cohort
        self.observation_space = cohort.layout.space()
        self.action_space: spaces.Discrete = spaces.Discrete(cohort.layout.n_actions)
        self._running = False
        # The episode so far, kept only where it is drawn.
        self._seen: list[Float32Array] = []
        self._taken: list[int] = []
        self._earned = 0.0

    @property
    def action_masks(self) -> Callable[[], BoolArray]:
        """``action_masks()``: ``[A]`` bool, which actions are allowed now (sb3-contrib's convention).

        Only where rules forbid something is there such an attribute. ``info["action_mask"]`` of ``reset`` and ``step``
        holds the same as int8.

        Raises:
            AttributeError: without rules.
            gymnasium.error.ResetNeeded: it is called before ``reset``.
        """
        check_ruled(self._cohort)
        return self._allowed

    def _allowed(self) -> BoolArray:
        if not self._seen:
            raise gym.error.ResetNeeded("call reset before action_masks")
        allowed: BoolArray = check_ruled(self._cohort).allowed[0]
        return allowed

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: start the random numbers anew.
            options: for this episode, over those of the constructor; the class lists them. ``info`` names those that
                were given.

        Raises:
            ValueError: an option is unknown or not possible; the environment is then left as it was.
        """
        chosen = self._cohort.read(options or {})
        super().reset(seed=seed)
        self._cohort.use([0], [self.np_random])
        told = self._cohort.begin(_ROW, chosen)
        self._running = True
        self._seen, self._taken, self._earned = [self._cohort.obs[0]], [], 0.0
        if self.render_mode == "human":
            self.render()
        return self._observation(), {name: _one(values) for name, values in told.items()}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act and observe what follows.

        Raises:
            ValueError: the action is not one of the action space or forbidden now, or the process yields what it
                cannot; the environment is then left as it was.
            gymnasium.error.ResetNeeded: no episode is going on.
        """
        if not self.action_space.contains(action):
            raise ValueError(f"action must be a whole number from 0 to {self.action_space.n - 1}, got {action!r}")
        if not self._running:
            raise gym.error.ResetNeeded("no episode is going on: call reset before step")
        result = self._cohort.step(np.array([action], dtype=np.int64), _GOING)
        terminated, truncated = bool(result.terminated[0]), bool(result.truncated[0])
        self._running = not (terminated or truncated)
        if self._renderer is not None:
            self._seen.append(self._cohort.obs[0])
            self._taken.append(int(action))
            self._earned += float(result.rewards[0])
        if self.render_mode == "human":
            self.render()
        info = {"phi": result.phi[0], **{name: _one(values) for name, values in result.infos.items()}}
        return self._observation(), float(result.rewards[0]), terminated, truncated, info

    def render(self) -> Any:
        """The episode so far as the render mode wants it: text, a picture ``[H, W, 3]`` uint8, or a window (None).

        Raises:
            gymnasium.error.ResetNeeded: no episode has begun.
            ImportError: the mode is ``"human"`` and pygame is not installed.
        """
        if self._renderer is None:
            gym.logger.warn('render() shows nothing without a render mode: make(id, render_mode="ansi")')
            return None
        if not self._seen:
            raise gym.error.ResetNeeded("there is nothing to show: call reset before render")
        cohort, begun = self._cohort, int(self._cohort.steps[0]) - len(self._taken)
        limit = int(cohort.limits[0])
        return self._renderer.render(
            Course(
                cohort.feature_map,
                np.stack(self._seen),
                tuple(self._taken),
                cohort.action_names,
                self._earned,
                cohort.limit_lines,
                None if limit == NO_LIMIT else limit - begun,
            )
        )

    def close(self) -> None:
        """Close the window of the render mode ``"human"``."""
        if self._renderer is not None:
            self._renderer.close()

    def _observation(self) -> Any:
        return self._cohort.layout.row(shown(self._cohort), 0)


def _one(values: Sequence[Any] | np.ndarray[Any, Any]) -> Any:
    """The value of the only row: an array of its own, or a plain number or text."""
    value = values[0]
    return value.item() if isinstance(value, np.generic) else value
