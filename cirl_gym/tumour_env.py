"""``CIRLTumour-v0`` for one patient (paper, section 5.1)."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from cirl_gym import dynamics, rendering
from cirl_gym.cohort import Cohort
from cirl_gym.layout import Layout
from cirl_gym.parameters import TumourParameters
from cirl_gym.reset_options import check_option_names, check_patient
from cirl_gym.types import Float32Array

DEFAULT_WEIGHTS = (-0.3, -0.7)
"""One of the paper's three trade-offs between tumour volume and side effects (section 5.1)."""


class TumourEnv(gym.Env[Any, Any]):
    """A patient with a growing tumour, to be treated or left alone (``CIRLTumour-v0``).

    ## Description

    A patient with a tumour of volume x is treated or not at every step. Treatment shrinks the tumour over the next p
    steps and raises side effects z; both have memory (order p = 5) and the previous treatments are part of the state,
    so what is observed at one step does not tell what will follow: the process is partially observed.

        x_t = mean(x_{t-1..t-p}) - 2.5 * sum(a_{t-1..t-p}) + 0.5 p + eps        eps ~ N(0, 0.1^2)
        z_t = mean(z_{t-1..t-p}) + 1.0 * sum(a_{t-1..t-p}) - 0.5 p + eta        eta ~ N(0, 0.1^2)

    **The z line is a correction of the printed equation**, which reads ``+ 0.5 sum(a) - p``: with p = 5 that falls by
    at least 2.5 whatever is done, so treatment could never raise side effects. Exchanging the two printed coefficients
    restores what the text says. ``TumourParameters.as_printed()`` gives the printed line. x and z are clipped at 0 from
    below; lags before t = 0 repeat x_0, z_0 without treatment.

    ## Action Space

    ``Discrete(2)``: 0 leaves the patient alone, 1 treats.

    ## Observation Space

    A float32 ``Box`` of shape (4,), raw units:

    | Num | Observation                              | Min | Max  |
    |-----|------------------------------------------|-----|------|
    | 0   | tumour volume x                          | 0   | 53.5 |
    | 1   | side effects z                           | 0   | 18.5 |
    | 2   | 1 if the previous action was 0           | 0   | 1    |
    | 3   | 1 if the previous action was 1           | 0   | 1    |

    2 and 3 are both 0 at t = 0. The limits lie beyond x_max and z_max (one step and ten standard deviations of noise),
    so that the state that ended an episode is shown as it is. ``previous_action=False`` leaves [x, z];
    ``observation="dict"`` gives the same numbers as ``obs`` and ``previous_action``.

    ## Rewards

    ``w1 * x_{t+1} / x_max + w2 * z_{t+1} / z_max`` (paper, equation 23), computed from the observed float32 values.
    ``info["phi"]`` holds the two scaled outcomes before weighting, float64.

    ## Starting State

    x_0 ~ N(30, 5) and z_0 ~ N(2, 1) (standard deviations), redrawn until inside (0, x_max) and (0, z_max), or
    ``reset(options={"patient": (x0, z0)})``. All random numbers come from ``self.np_random``, those of the start and
    of 20 steps at once; a seed's noise is the same with any patient.

    ## Episode End

    *Terminated* when x = 0 (cured), x >= x_max = 50, or z >= z_max = 15. *Truncated* at the time limit, which has one
    owner. Made by ``gymnasium.make``, that is Gymnasium's ``TimeLimit`` wrapper: 20 steps,
    ``make(id, max_episode_steps=50)`` changes it, ``-1`` removes it (and, as with every environment of Gymnasium, an
    episode that ends by itself at the last step is reported as both). A ``TumourEnv`` built directly truncates itself
    after ``parameters.horizon`` steps, and then an episode that ends by itself there is terminated only.

    ## Arguments

    - ``parameters``: every constant of the simulator (default: the paper's, z line corrected).
    - ``weights``: (w1, w2), finite, with an L1 norm of at most 1 (default (-0.3, -0.7)).
    - ``observation``: ``"flat"`` (default) or ``"dict"``.
    - ``previous_action``: show the previous action (default True).
    - ``render_mode``: ``"ansi"`` (the current step as a line) or ``"rgb_array"`` (the episode so far as a picture).
    - ``time_limit``: truncate at ``parameters.horizon`` (not an argument of ``gymnasium.make``).

    ## Version History

    - v0: first version.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        parameters: TumourParameters | None = None,
        *,
        weights: npt.ArrayLike = DEFAULT_WEIGHTS,
        observation: Literal["flat", "dict"] = "flat",
        previous_action: bool = True,
        render_mode: str | None = None,
        time_limit: bool = True,
    ) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(f"render_mode must be one of {self.metadata['render_modes']} or None, got {render_mode!r}")
        self.parameters = parameters or TumourParameters()
        self.render_mode = render_mode
        self._limit = self.parameters.horizon if time_limit else None
        self._cohort = Cohort(self.parameters, weights, 1)
        self._layout = tumour_layout(self.parameters, previous_action, observation)
        self.observation_space = self._layout.space()
        self.action_space = spaces.Discrete(dynamics.N_ACTIONS)
        self._running = False
        self._course: list[Float32Array] = []
        self._taken: list[int] = []

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """``[2]`` the reward weights (read-only)."""
        return self._cohort.weights

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: start the random numbers anew.
            options: ``{"patient": (x0, z0)}`` begins with this patient instead of a drawn one.

        Raises:
            ValueError: an option is unknown or not possible; the environment is then left as it was.
        """
        options = options or {}
        check_option_names(options, ("patient",))
        patient = check_patient(self.parameters, options, 1)
        super().reset(seed=seed)
        self._cohort.begin(np.array([0]), [self.np_random], patient)
        self._running = True
        self._course, self._taken = [self._cohort.obs[0]], []
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Treat (1) or not (0) and observe what follows.

        Raises:
            ValueError: the action is not 0 or 1; the environment is then left as it was.
            gymnasium.error.ResetNeeded: no episode is going on.
        """
        if not self.action_space.contains(action):
            raise ValueError(f"action must be the whole number 0 or 1, got {action!r}")
        if not self._running:
            raise gym.error.ResetNeeded("no episode is going on: call reset before step")
        taken = int(action)
        result = self._cohort.step(np.array([taken]), np.array([True]))
        self._course.append(result.obs[0])
        self._taken.append(taken)
        terminated = bool(result.terminated[0])
        truncated = self._limit is not None and len(self._taken) >= self._limit and not terminated
        self._running = not (terminated or truncated)
        return self._observation(), float(result.rewards[0]), terminated, truncated, {"phi": result.phi[0].copy()}

    def render(self) -> Any:
        """The current step as a line of text, or the episode so far as an array ``[200, 320, 3]`` uint8."""
        if self.render_mode is None:
            gym.logger.warn('render() shows nothing without a render mode: make(id, render_mode="ansi")')
            return None
        if not self._course:
            raise gym.error.ResetNeeded("there is nothing to show: call reset before render")
        if self.render_mode == "ansi":
            previous = int(self._cohort.previous[0])
            return rendering.line(len(self._taken), dynamics.FEATURES, self._course[-1], previous)
        phi = self._cohort.feature_map(np.stack(self._course))
        return rendering.picture(phi, self._taken, self.parameters.horizon)

    def _observation(self) -> Any:
        return self._layout.row(self._layout.rows(self._cohort.obs, self._cohort.previous), 0)


def tumour_layout(parameters: TumourParameters, previous_action: bool, form: Literal["flat", "dict"]) -> Layout:
    """How both tumour environments show a patient: from 0 to the largest value that a step can reach."""
    high = parameters.highest.astype(np.float32)
    return Layout(np.zeros_like(high), high, dynamics.N_ACTIONS, previous_action, form)


def make_tumour_env(**arguments: Any) -> TumourEnv:
    """Entry point of ``gymnasium.make``: a :class:`TumourEnv` whose time limit is left to Gymnasium's wrapper.

    An environment does not learn which ``max_episode_steps`` was asked for. If it counted steps itself, a longer limit
    would silently not work; so it does not, and a horizon that the wrapper would not know of is refused.

    Raises:
        ValueError: ``parameters.horizon`` is not the registered limit.
    """
    env = TumourEnv(**arguments, time_limit=False)
    if env.parameters.horizon != TumourParameters.horizon:
        raise ValueError(
            f"TumourParameters.horizon is {env.parameters.horizon}, but in Gymnasium the time limit is "
            f"max_episode_steps: leave horizon at {TumourParameters.horizon} and use "
            f"gymnasium.make('CIRLTumour-v0', max_episode_steps={env.parameters.horizon})"
        )
    return env


# Gymnasium reads the render modes from the entry point before it calls it.
make_tumour_env.metadata = TumourEnv.metadata  # type: ignore[attr-defined]
