"""``CIRLTumour-v0`` for many patients at once: a native Gymnasium vector environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector.utils import batch_space

from cirl_gym import dynamics
from cirl_gym.cohort import Cohort, CohortStep
from cirl_gym.parameters import TumourParameters
from cirl_gym.reset_options import check_option_names, check_patient
from cirl_gym.tumour_env import DEFAULT_WEIGHTS, tumour_layout
from cirl_gym.types import BoolArray, FloatArray, IntArray

try:
    from gymnasium.vector import AutoresetMode, VectorEnv
except ImportError as error:
    raise ImportError(
        f"the native vector form of CIRLTumour-v0 needs gymnasium >= 1.1, this is {gym.__version__}; use "
        "gymnasium.make_vec(..., vectorization_mode='sync') instead"
    ) from error


class TumourVectorEnv(VectorEnv[Any, Any, Any]):
    """n :class:`~cirl_gym.tumour_env.TumourEnv` stepped together; spaces, rewards and ends are described there.

    Row i of ``reset(seed=s)`` is the single environment seeded s + i, and given the same actions its course is the same
    to the last bit.

    Args:
        num_envs: n.
        max_episode_steps: the time limit; -1 for none. Default: ``parameters.horizon``. An episode that ends by itself
            at the limit is terminated and not truncated.
        parameters: every constant of the simulator.
        weights: (w1, w2), L1 norm at most 1.
        observation: ``"flat"`` or ``"dict"``.
        previous_action: show the previous action.
        autoreset_mode: what happens after an episode's end. ``NEXT_STEP``: the next step ignores the action and resets;
            ``SAME_STEP``: the step resets and puts the last observation into ``info["final_obs"]``; ``DISABLED``: the
            caller resets with ``options={"reset_mask": [n] bool}``.

    Raises:
        ValueError: an argument is not possible, or ``parameters.horizon`` and ``max_episode_steps`` contradict each
            other.
    """

    def __init__(
        self,
        num_envs: int = 1,
        max_episode_steps: int | None = None,
        *,
        parameters: TumourParameters | None = None,
        weights: npt.ArrayLike = DEFAULT_WEIGHTS,
        observation: Literal["flat", "dict"] = "flat",
        previous_action: bool = True,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs}")
        self.num_envs = num_envs
        self.parameters = parameters or TumourParameters()
        self.max_episode_steps = _time_limit(self.parameters, max_episode_steps)
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        # A copy of its own: the mode belongs to the object, the class-level dictionary to everybody.
        self.metadata = {"render_modes": [], "autoreset_mode": self.autoreset_mode}
        self._cohort = Cohort(self.parameters, weights, num_envs)
        self._layout = tumour_layout(self.parameters, previous_action, observation)
        self.single_observation_space = self._layout.space()
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.single_action_space = spaces.Discrete(dynamics.N_ACTIONS)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._generators: list[np.random.Generator] = []
        self._seeds: list[int] = []
        self._ended: BoolArray = np.zeros(num_envs, dtype=np.bool_)
        self._begun = False

    @property
    def weights(self) -> FloatArray:
        """``[2]`` the reward weights (read-only)."""
        return self._cohort.weights

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """One generator per row."""
        self._seed([None] * self.num_envs, range(self.num_envs))
        return tuple(self._generators)

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed of each row's generator."""
        self._seed([None] * self.num_envs, range(self.num_envs))
        return tuple(self._seeds)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every row, or in those of ``options["reset_mask"]``.

        Args:
            seed: s for the seeds s, s + 1, ...; or one seed per row.
            options: ``"patient"``: (x0, z0) for all rows or ``[n, 2]``; ``"reset_mask"``: ``[n]`` bool.

        Raises:
            ValueError: an option or seed is not possible; the environment is then left as it was.
        """
        options = options or {}
        check_option_names(options, ("patient", "reset_mask"))
        patients = check_patient(self.parameters, options, self.num_envs)
        rows = np.flatnonzero(self._mask(options.get("reset_mask")))
        self._seed(self._seeds_of_rows(seed), rows)
        self._begin(rows, patients)
        self._begun = True
        return self._layout.rows(self._cohort.obs, self._cohort.previous), {}

    def step(self, actions: Any) -> tuple[Any, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        """One action ``[n]`` per row.

        Returns:
            Observations, rewards ``[n]`` float64, terminated and truncated ``[n]`` bool, and infos in Gymnasium's
            vector form (``phi`` ``[n, 2]`` with the mask ``_phi``). A row that this step resets (``NEXT_STEP``) has
            reward 0 and no ``phi``.

        Raises:
            ValueError: an action is not 0 or 1; the environment is then left as it was.
            gymnasium.error.ResetNeeded: reset was never called, or a row has ended and ``autoreset_mode`` is disabled.
        """
        taken = self._checked(actions)
        if not self._begun:
            raise gym.error.ResetNeeded("call reset before step")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._ended.any():
            raise gym.error.ResetNeeded(
                f"the episodes of rows {np.flatnonzero(self._ended).tolist()} have ended: "
                "call reset(options={'reset_mask': ...}) before step"
            )
        resetting = self._ended.copy()
        result = self._cohort.step(taken, ~resetting)
        terminated = result.terminated & ~resetting
        truncated: BoolArray = np.zeros(self.num_envs, dtype=np.bool_)
        if self.max_episode_steps is not None:
            truncated = (self._cohort.steps >= self.max_episode_steps) & ~terminated & ~resetting
        self._ended = terminated | truncated
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            infos = self._finish(result)
        else:
            infos = _with_mask({}, "phi", result.phi, ~resetting)
            # The dead rows of the step after an end (next-step mode).
            self._begin(np.flatnonzero(resetting), None)
        obs = self._layout.rows(self._cohort.obs, self._cohort.previous)
        return obs, np.where(resetting, 0.0, result.rewards), terminated, truncated, infos

    def _finish(self, result: CohortStep) -> dict[str, Any]:
        """Infos of a same-step reset, and the reset of the rows that have ended."""
        ended, self._ended = self._ended, np.zeros(self.num_envs, dtype=np.bool_)
        infos = _with_mask({}, "phi", result.phi, ~ended)
        if ended.any():
            last = self._layout.rows(self._cohort.obs, self._cohort.previous)
            final = np.full(self.num_envs, None, dtype=object)
            for i in np.flatnonzero(ended):
                final[i] = self._layout.row(last, int(i))
            infos |= {"final_obs": final, "_final_obs": ended.copy()}
            infos |= {"final_info": _with_mask({}, "phi", result.phi, ended), "_final_info": ended.copy()}
            self._begin(np.flatnonzero(ended), None)
        return infos

    def _begin(self, rows: IntArray, patients: FloatArray | None) -> None:
        if len(rows):
            given = None if patients is None else patients[rows]
            self._cohort.begin(rows, [self._generators[i] for i in rows], given)
            self._ended[rows] = False

    def _checked(self, actions: Any) -> IntArray:
        taken = np.asarray(actions)
        if taken.shape != (self.num_envs,) or not np.issubdtype(taken.dtype, np.integer):
            raise ValueError(
                f"actions must be {self.num_envs} whole numbers, got shape {taken.shape} and dtype {taken.dtype}"
            )
        wrong = np.flatnonzero((taken < 0) | (taken >= dynamics.N_ACTIONS))
        if len(wrong):
            raise ValueError(f"the action of row {wrong[0]} is {taken[wrong[0]]}, not 0 or 1")
        return taken.astype(np.int64)

    def _mask(self, mask: Any) -> BoolArray:
        if mask is None:
            return np.ones(self.num_envs, dtype=np.bool_)
        rows = np.asarray(mask)
        if rows.shape != (self.num_envs,) or rows.dtype != np.bool_ or not rows.any():
            raise ValueError(
                f"option 'reset_mask' must be {self.num_envs} bools of which at least one is True, got {mask!r}"
            )
        if not self._begun and not rows.all():
            raise ValueError("option 'reset_mask': the first reset must begin every row")
        return rows

    def _seeds_of_rows(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            return [int(seed) + i for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(f"one seed per row is needed, {self.num_envs}, got {len(seed)}")
        return list(seed)

    def _seed(self, seeds: list[int | None], rows: Sequence[int] | IntArray) -> None:
        """A new generator where a seed is given or none exists; all or, if a seed is bad, none."""
        if self._generators and all(seed is None for seed in seeds):
            return
        fresh = {i: seeding.np_random(seeds[i]) for i in rows if seeds[i] is not None or not self._generators}
        known = dict(enumerate(zip(self._generators, self._seeds, strict=True)))
        pairs = [(known | fresh)[i] for i in range(self.num_envs)]
        self._generators, self._seeds = [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _time_limit(parameters: TumourParameters, max_episode_steps: int | None) -> int | None:
    """The limit from the two places where it may be given; None: none."""
    if max_episode_steps is None:
        return parameters.horizon
    if parameters.horizon not in (TumourParameters.horizon, max_episode_steps):
        raise ValueError(
            f"TumourParameters.horizon is {parameters.horizon} and max_episode_steps is {max_episode_steps}: give "
            f"max_episode_steps={parameters.horizon} (gymnasium.make_vec gives {TumourParameters.horizon} by default), "
            f"or leave horizon at {TumourParameters.horizon}"
        )
    if max_episode_steps == -1:
        return None
    if max_episode_steps < 1:
        raise ValueError(f"max_episode_steps must be at least 1, or -1 for none, got {max_episode_steps}")
    return max_episode_steps


def _with_mask(infos: dict[str, Any], name: str, values: FloatArray, rows: BoolArray) -> dict[str, Any]:
    """Gymnasium's vector form of an info that only some rows have: zeros elsewhere, and absent if no row has it."""
    if rows.any():
        infos = infos | {name: np.where(rows[:, None], values, 0.0), f"_{name}": rows.copy()}
    return infos
