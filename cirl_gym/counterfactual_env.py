"""``CIRLCounterfactual-v0``: what would happen to the patients of a batch, by any outcome model (paper, appendix C)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from cirl_gym.batch import Batch
from cirl_gym.features import FeatureMap
from cirl_gym.layout import Layout
from cirl_gym.reset_options import check_option_names
from cirl_gym.reward import check_weights, reward
from cirl_gym.types import BoolArray, Float32Array, OutcomeModel
from cirl_gym.worlds import CounterfactualWorld

EndRule: TypeAlias = Callable[[Float32Array], BoolArray]
"""From observations ``[n, d]``, raw units, to ``[n]`` bool: the process ended."""


class CounterfactualEnv(gym.Env[Any, Any]):
    """A batch of histories that go on as an outcome model predicts (``CIRLCounterfactual-v0``).

    ## Description

    A partially observed process made of a batch of episodes and an outcome model, and of nothing else: a history of the
    batch goes on as the model predicts, h' = (h, a, phi(h, a)). It never reaches the process that made the batch, so
    learning in it is offline.

    ## Action Space

    ``Discrete(A)``, the actions of the batch.

    ## Observation Space

    A float32 ``Box`` of shape (d + A,): the features in raw units, then the one-hot previous action.

    | Num      | Observation                    | Min                       | Max                      |
    |----------|--------------------------------|---------------------------|--------------------------|
    | 0..d-1   | feature                        | least of model and batch  | most of model and batch  |
    | d..d+A-1 | 1 for the previous action      | 0                         | 1                        |

    The last A are all 0 where no action came before. The limits are those of ``model.bounds`` and of the batch's own
    observations, one float32 step wider. ``info["outside_support"]`` is True where a feature leaves the range that the
    batch shows: there the model is extrapolating.

    ## Rewards

    ``w . phi(h, a)`` with phi the model's expected outcome, scaled by the feature map (paper, equation 1); also when
    the observation is sampled. ``info["phi"]`` holds phi(h, a), float64 ``[d]``. Without weights the reward is 0: what
    the reward is, is then the question.

    ## Starting State

    The first observation of an episode drawn at random, or any history of the batch:
    ``reset(options={"episode": i, "step": t})`` begins at h_t of the i-th episode (or of the episode with the id
    ``i``, if it is text). ``info`` names the ``episode`` and the ``step``.

    ## Episode End

    *Terminated* as ``end`` says. *Truncated* when the history, counted from its episode's own beginning, has
    ``horizon`` actions, unless it is terminated. This environment counts its steps itself: use ``horizon``;
    ``gymnasium.make(..., max_episode_steps=...)`` can only cut it shorter.

    ## Arguments

    - ``model``: an :class:`~cirl_gym.types.OutcomeModel`.
    - ``batch``: where episodes begin, and which observations count as seen.
    - ``feature_map``: scales outcomes to phi (default: the batch's ranges).
    - ``weights``: ``[d]`` finite, with an L1 norm of at most 1 (default: zeros).
    - ``outcome``: observe the ``"expected"`` outcome (default), or a ``"sampled"`` one: the expected one with noise of
      ``model.noise_scale``.
    - ``end``: ``"learned"`` (default) draws from ``model.end_probability``; ``"never"``; or a rule, a function from
      observations ``[n, d]`` in raw units to ``[n]`` bool.
    - ``horizon``: longest history in actions (default: the batch's).

    ## Version History

    - v0: first version.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        model: OutcomeModel | None = None,
        batch: Batch | None = None,
        *,
        feature_map: FeatureMap | None = None,
        weights: npt.ArrayLike | None = None,
        outcome: Literal["expected", "sampled"] = "expected",
        end: Literal["learned", "never"] | EndRule = "learned",
        horizon: int | None = None,
    ) -> None:
        if model is None or batch is None:
            missing = "model" if model is None else "batch"
            raise ValueError(
                f"CIRLCounterfactual-v0 needs the argument {missing}: "
                "gymnasium.make('CIRLCounterfactual-v0', model=..., batch=...)"
            )
        if not callable(end) and end not in ("learned", "never"):
            raise ValueError(f"end must be 'learned', 'never' or a function, got {end!r}")
        if horizon is not None and horizon < 1:
            raise ValueError(f"horizon must be at least 1, got {horizon}")
        self.model, self.batch = model, batch
        self.feature_map = feature_map or FeatureMap.from_batch(batch)
        _check_same_table(model, batch, self.feature_map)
        self.weights = check_weights(np.zeros(len(batch.features)) if weights is None else weights, batch.features)
        self.horizon = batch.horizon if horizon is None else horizon
        self.end = end
        self._world = CounterfactualWorld(model, batch.start, self.horizon, outcome=outcome)
        self._seen = _observed_range(batch)
        self._layout = _layout(model, self._seen)
        self.observation_space = self._layout.space()
        self.action_space = spaces.Discrete(model.n_actions)
        self._state: Float32Array | None = None
        self._obs: Float32Array = batch.start[:1]
        self._previous, self._step = -1, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin from a history of the batch.

        Args:
            seed: start the random numbers anew.
            options: ``{"episode": i, "step": t}``; the step is 0 if left out.

        Raises:
            ValueError: an option is unknown, or the batch has no such history that could go on; the environment is
                then left as it was.
        """
        chosen = self._history(options or {})
        super().reset(seed=seed)
        episode, step = chosen or (int(self.np_random.integers(len(self.batch))), 0)
        self._obs = self.batch.obs[episode, step][None].copy()
        if step == 0:
            self._state = self.model.start(self._obs)
        else:
            self._state = self.model.encode(self.batch.take(np.array([episode])))[:, step].copy()
        self._previous = int(self.batch.actions[episode, step - 1]) if step else -1
        self._step = step
        return self._observation(), {"episode": self.batch.ids[episode], "step": step, "outside_support": False}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Append an action and the model's outcome to the history.

        Raises:
            ValueError: the action is not one of the batch's, or the model predicts an outcome that is not finite or
                outside its own bounds; the history is then left as it was.
            gymnasium.error.ResetNeeded: no episode is going on.
        """
        if not self.action_space.contains(action):
            raise ValueError(f"action must be a whole number from 0 to {self.model.n_actions - 1}, got {action!r}")
        if self._state is None:
            raise gym.error.ResetNeeded("no episode is going on: call reset before step")
        taken = int(action)
        result = self._world.step(self._state, np.array([taken]), self.np_random)
        self._check_outcome(result.obs[0])
        terminated = self._ended(result.obs, result.terminated)
        self._obs, self._previous, self._step = result.obs, taken, self._step + 1
        truncated = self._step >= self.horizon and not terminated
        self._state = None if terminated or truncated else result.state
        phi = self.feature_map(result.outcomes)
        low, high = self._seen
        outside = bool(((self._obs < low) | (self._obs > high)).any())
        info = {"phi": phi[0], "outside_support": outside}
        return self._observation(), float(reward(phi, self.weights)[0]), terminated, truncated, info

    def _ended(self, obs: Float32Array, drawn: BoolArray) -> bool:
        if callable(self.end):
            return bool(np.asarray(self.end(obs.copy())).reshape(-1)[0])
        return bool(drawn[0]) if self.end == "learned" else False

    def _check_outcome(self, obs: Float32Array) -> None:
        # Written as "not inside", so that a NaN is caught too.
        wrong = np.flatnonzero(~((obs >= self._layout.low) & (obs <= self._layout.high)))
        if len(wrong):
            raise ValueError(
                f"the outcome model predicts {obs[wrong[0]]} for {self.model.features[wrong[0]]!r}, "
                "outside the bounds that it states"
            )

    def _observation(self) -> Any:
        return self._layout.row(self._layout.rows(self._obs, np.array([self._previous])), 0)

    def _history(self, options: Mapping[str, Any]) -> tuple[int, int] | None:
        """Episode and step asked for in reset's options; None: any episode's first observation."""
        check_option_names(options, ("episode", "step"))
        if options.get("episode") is None:
            if options.get("step") is not None:
                raise ValueError("option 'step' needs the option 'episode'")
            return None
        episode = _episode(self.batch, options["episode"])
        length, name = int(self.batch.lengths[episode]), self.batch.ids[episode]
        step = 0 if options.get("step") is None else options["step"]
        if not isinstance(step, int | np.integer) or not 0 <= step <= length:
            raise ValueError(
                f"option 'step' must be a whole number from 0 to {length} for episode {name!r}, got {step!r}"
            )
        if step == length and self.batch.terminated[episode]:
            raise ValueError(f"option 'step': episode {name!r} ended at step {length}, so nothing follows")
        if step >= self.horizon:
            raise ValueError(f"option 'step' must be below the horizon of {self.horizon}, got {step}")
        return episode, int(step)


def _episode(batch: Batch, asked: Any) -> int:
    """Position of an episode given by position or id."""
    if isinstance(asked, str):
        if asked not in batch.ids:
            raise ValueError(f"option 'episode': the batch has no episode with the id {asked!r}")
        return batch.ids.index(asked)
    if not isinstance(asked, int | np.integer) or not 0 <= asked < len(batch):
        raise ValueError(f"option 'episode' must be an id or a whole number from 0 to {len(batch) - 1}, got {asked!r}")
    return int(asked)


def _observed_range(batch: Batch) -> tuple[Float32Array, Float32Array]:
    """``[d]`` least and most of each feature in the batch, padding left out."""
    live = np.arange(batch.horizon + 1) <= batch.lengths[:, None]
    rows = batch.obs[live]
    return rows.min(axis=0), rows.max(axis=0)


def _layout(model: OutcomeModel, seen: tuple[Float32Array, Float32Array]) -> Layout:
    low = np.minimum(model.bounds[0].astype(np.float32), seen[0])
    high = np.maximum(model.bounds[1].astype(np.float32), seen[1])
    # One float32 step wider: a model may round its float64 bounds either way.
    return Layout(np.nextafter(low, np.float32(-np.inf)), np.nextafter(high, np.float32(np.inf)), model.n_actions)


def _check_same_table(model: OutcomeModel, batch: Batch, feature_map: FeatureMap) -> None:
    for name, features in (("model", model.features), ("feature_map", feature_map.features)):
        if tuple(features) != batch.features:
            raise ValueError(f"the features of {name} are {tuple(features)}, those of the batch {batch.features}")
    if model.n_actions != batch.n_actions:
        raise ValueError(f"model knows {model.n_actions} actions, the batch {batch.n_actions}")
