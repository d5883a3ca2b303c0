"""Both Gymnasium forms of a cohort: one row as an environment, n rows as a native vector environment."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding

from cirl_gym.data.features import FeatureMap
from cirl_gym.data.rules import ActionRules
from cirl_gym.envs.options import NO_LIMIT
from cirl_gym.envs.picture import EpisodeSoFar, Renderer
from cirl_gym.envs.process import Cohort
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray
from cirl_gym.vector_api import AutoresetMode, VectorEnv, batch_space

Infos: TypeAlias = dict[str, Any]

_ROW = np.zeros(1, dtype=np.int64)
_GOING = np.ones(1, dtype=np.bool_)


class OfCohort:
    """What both forms tell of their cohort."""

    _cohort: Cohort[Any]

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the D observed features; those that are weighed are ``feature_map.features``."""
        return self._cohort.feature_map.of

    @property
    def feature_map(self) -> FeatureMap:
        """Phi: how outcomes are scaled before they are weighed."""
        return self._cohort.feature_map

    @property
    def weights(self) -> FloatArray:
        """``[d]`` the reward weights, where ``reset`` asks for no others (read-only)."""
        return self._cohort.weights

    @property
    def rules(self) -> ActionRules | None:
        """Which actions are forbidden when; None: never one."""
        return self._cohort.rules

    @property
    def action_masks(self) -> Callable[[], BoolArray]:
        """``action_masks()``: which actions are allowed now (sb3-contrib's convention): ``[A]`` bool, or ``[n, A]``.

        ``info["action_mask"]`` of ``reset`` and ``step`` holds the same as int8. In a row of a vector environment whose
        next step only resets it (``NEXT_STEP``), any action may be given.

        Raises:
            AttributeError: no rules were given. So there is such an attribute only with rules: agents that know of
                masks (sb3-contrib's, DRQN) look for it and would ask at every step.
            gymnasium.error.ResetNeeded: it is called before ``reset``.
        """
        if self.rules is None:
            raise AttributeError(
                "no rules were given (forbid=...), so there is no action_masks: every action is allowed"
            )
        return self._allowed

    def _allowed(self) -> BoolArray:
        raise NotImplementedError


class CohortEnv(OfCohort, gym.Env[Any, Any]):
    """One process of a :class:`~cirl_gym.envs.process.Cohort`.

    Args:
        cohort: of one row.
        render_mode: one of ``metadata["render_modes"]``, or None.

    Raises:
        ValueError: the render mode is unknown.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array", "human"], "render_fps": 4}  # noqa: RUF012

    def __init__(self, cohort: Cohort[Any], render_mode: str | None) -> None:
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

    def _allowed(self) -> BoolArray:
        if not self._seen:
            raise gym.error.ResetNeeded("call reset before action_masks")
        return np.array(self._cohort.allowed[0])

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
        self._cohort.streams.use([0], [self.np_random])
        told = self._cohort.begin(_ROW, chosen)
        self._running = True
        self._seen, self._taken, self._earned = [self._cohort.obs[0].copy()], [], 0.0
        if self.render_mode == "human":
            self.render()
        return self._cohort.layout.row(self._cohort.shown(), 0), {name: _one(values) for name, values in told.items()}

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
            self._seen.append(self._cohort.obs[0].copy())
            self._taken.append(int(action))
            self._earned += float(result.rewards[0])
        if self.render_mode == "human":
            self.render()
        info = {"phi": result.phi[0], **{name: _one(values) for name, values in result.infos.items()}}
        obs = self._cohort.layout.row(self._cohort.shown(), 0)
        return obs, float(result.rewards[0]), terminated, truncated, info

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
            EpisodeSoFar(
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


def entry_point(env: Any) -> Callable[..., Any]:
    """What ``gymnasium.make`` calls: ``env(.., max_episode_steps=..)`` with what ``make`` was asked for, or registered.

    ``gymnasium.make`` hands that limit to a wrapper alone, which can shorten an episode and never lengthen it: an
    environment with a limit of its own would silently ignore a longer one. So it is read where it stands, in the frame
    of ``make``. None where none is registered and none was given, or where somebody else calls.
    """

    def made(**arguments: Any) -> Any:
        frame, limit = sys._getframe(1), None
        if frame.f_code.co_name == "make" and frame.f_globals.get("__name__") == "gymnasium.envs.registration":
            asked = frame.f_locals["max_episode_steps"]
            limit = frame.f_locals["env_spec"].max_episode_steps if asked is None else asked
        return env(**arguments, max_episode_steps=limit)

    # Gymnasium reads the render modes from the entry point before it calls it.
    made.metadata = env.metadata  # type: ignore[attr-defined]
    return made


class CohortVectorEnv(OfCohort, VectorEnv[Any, Any, Any]):
    """The rows of a :class:`~cirl_gym.envs.process.Cohort`, stepped together.

    Row i of ``reset(seed=s)`` is the single environment seeded s + i, and given the same actions its episodes are the
    same to the last bit.

    Args:
        cohort: of n rows.
        autoreset_mode: what happens after an episode's end. ``NEXT_STEP``: the next step ignores the action and resets;
            ``SAME_STEP``: the step resets and puts the last observation into ``info["final_obs"]``; ``DISABLED``: the
            caller resets with ``options={"reset_mask": [n] bool}``.
    """

    def __init__(self, cohort: Cohort[Any], autoreset_mode: AutoresetMode | str) -> None:
        self._cohort = cohort
        self.num_envs = num_envs = cohort.n
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        # A copy of its own: the mode belongs to the object, the class-level dictionary to everybody.
        self.metadata = {"render_modes": [], "autoreset_mode": self.autoreset_mode}
        self.single_observation_space = cohort.layout.space()
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.single_action_space = spaces.Discrete(cohort.layout.n_actions)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._generators: list[np.random.Generator] = []
        self._seeds: list[int] = []
        self._ended: BoolArray = np.zeros(num_envs, dtype=np.bool_)
        self._begun = False

    def _allowed(self) -> BoolArray:
        if not self._begun:
            raise gym.error.ResetNeeded("call reset before action_masks")
        return self._cohort.allowed.copy()

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
    ) -> tuple[Any, Infos]:
        """Begin an episode in every row, or in those of ``options["reset_mask"]``.

        Args:
            seed: s for the seeds s, s + 1, ...; or one seed per row.
            options: those of the single environment, for the episodes that begin now (not for those that begin by
                themselves later); and ``"reset_mask"``: ``[n]`` bool.

        Raises:
            ValueError: an option or seed is not possible; the environment is then left as it was.
        """
        n, asked, infos = self.num_envs, dict(options or {}), Infos()
        mask = np.ones(n, dtype=np.bool_)
        if (given := asked.pop("reset_mask", None)) is not None:
            mask = np.asarray(given)
            if mask.shape != (n,) or mask.dtype != np.bool_ or not mask.any():
                raise ValueError(f"option 'reset_mask' must be {n} bools of which at least one is True, got {given!r}")
            if not self._begun and not mask.all():
                raise ValueError("option 'reset_mask': the first reset must begin every row")
        rows, chosen = np.flatnonzero(mask), self._cohort.read(asked)
        if seed is None or isinstance(seed, int | np.integer):
            seed = [None if seed is None else int(seed) + i for i in range(n)]
        elif len(seed) != n:
            raise ValueError(f"one seed per row is needed, {n}, got {len(seed)}")
        self._seed(seed, rows)
        self._begin(rows, chosen, infos)
        self._begun = True
        return self._cohort.shown(), infos

    def step(self, actions: Any) -> tuple[Any, FloatArray, BoolArray, BoolArray, Infos]:
        """One action ``[n]`` per row.

        Returns:
            Observations, rewards ``[n]`` float64, terminated and truncated ``[n]`` bool, and infos in Gymnasium's
            vector form (``phi`` ``[n, d]`` with the mask ``_phi``). A row that this step resets (``NEXT_STEP``) has
            reward 0 and no ``phi``.

        Raises:
            ValueError: an action is not one of the action space or forbidden now, or a process yields what it cannot;
                the environment is then left as it was.
            gymnasium.error.ResetNeeded: reset was never called, or a row has ended and ``autoreset_mode`` is disabled.
        """
        taken, count = np.asarray(actions), self._cohort.layout.n_actions
        if taken.shape != (self.num_envs,) or taken.dtype.kind not in "iu":
            raise ValueError(
                f"actions must be {self.num_envs} whole numbers, got shape {taken.shape} and dtype {taken.dtype}"
            )
        if taken.min() < 0 or taken.max() >= count:
            row = np.flatnonzero((taken < 0) | (taken >= count))[0]
            raise ValueError(f"the action of row {row} is {taken[row]}, not a whole number from 0 to {count - 1}")
        if not self._begun:
            raise gym.error.ResetNeeded("call reset before step")
        dead, going = self._ended.nonzero()[0], ~self._ended
        if len(dead) and self.autoreset_mode is AutoresetMode.DISABLED:
            raise gym.error.ResetNeeded(
                f"the episodes of rows {dead.tolist()} have ended: "
                "call reset(options={'reset_mask': ...}) before step"
            )
        result = self._cohort.step(taken.astype(np.int64, copy=False), going)
        for values in (result.rewards, result.terminated, result.truncated) if len(dead) else ():
            values[dead] = 0
        self._ended = result.terminated | result.truncated
        told: Infos = {"phi": result.phi, **result.infos}
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            infos = self._reset_at_once(told, self._ended.nonzero()[0])
        else:
            infos = _infos(told, going, dead)
            if len(dead):
                self._begin(dead, None, infos)
        return self._cohort.shown(), result.rewards, result.terminated, result.truncated, infos

    def _reset_at_once(self, told: Infos, rows: IntArray) -> Infos:
        """Infos of a same-step reset, and the reset of the ``rows [k]`` that have ended."""
        ended = self._ended.copy()
        if not len(rows):
            return _infos(told, ~ended, rows)
        final = np.full(self.num_envs, None, dtype=object)
        last = self._cohort.shown()
        for i in rows:
            final[i] = self._cohort.layout.row(last, int(i))
        last_infos = _infos({name: values.copy() for name, values in told.items()}, ended, np.flatnonzero(~ended))
        infos = _infos(told, ~ended, rows)
        infos |= {"final_obs": final, "_final_obs": ended}
        infos |= {"final_info": last_infos, "_final_info": ended.copy()}
        self._begin(rows, None, infos)
        return infos

    def _begin(self, rows: IntArray, chosen: Any, infos: Infos) -> None:
        """Begin an episode in ``rows [k]``; what is told of it goes into ``infos`` in Gymnasium's vector form."""
        for name, values in self._cohort.begin(rows, chosen).items():
            if name not in infos:
                empty = None if values.dtype == object else 0
                infos[name] = np.full((self.num_envs, *values.shape[1:]), empty, values.dtype)
                infos[f"_{name}"] = np.zeros(self.num_envs, dtype=np.bool_)
            infos[name][rows], infos[f"_{name}"][rows] = values, True
        self._ended[rows] = False

    def _seed(self, seeds: Sequence[int | None], rows: Sequence[int] | IntArray) -> None:
        """A new generator where a seed is given or none exists; all or, if a seed is bad, none."""
        if self._generators and all(seed is None for seed in seeds):
            return
        fresh = {int(i): seeding.np_random(seeds[i]) for i in rows if seeds[i] is not None or not self._generators}
        known = dict(enumerate(zip(self._generators, self._seeds, strict=True)))
        pairs = [(known | fresh)[i] for i in range(self.num_envs)]
        self._generators, self._seeds = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        self._cohort.streams.use(range(self.num_envs), self._generators)


def _one(values: Sequence[Any] | np.ndarray[Any, Any]) -> Any:
    """The value of the only row: an array of its own, or a plain number or text."""
    value = values[0]
    return value.item() if isinstance(value, np.generic) else value


def _infos(told: Infos, rows: BoolArray, others: IntArray) -> Infos:
    """Gymnasium's vector form of infos that only ``rows [n]`` have: zeros for ``others [k]``, none if nobody has them.

    The arrays of ``told`` are written to.
    """
    infos: Infos = {}
    if len(others) < len(rows):
        for name, values in told.items():
            if len(others):
                values[others] = 0
            infos[name], infos[f"_{name}"] = values, rows.copy()
    return infos
