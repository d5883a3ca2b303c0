"""The one rollout loop: it owns memory, episode starts and the rule that every episode that was begun is finished."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray, Policy, World

if TYPE_CHECKING:
    from gymnasium import Env

    Acting: TypeAlias = Policy | Callable[[Any], Any]


def observation(obs: Float32Array, previous: IntArray, n_actions: int) -> Float32Array:
    """``[n, d + A]`` what a policy sees: raw features, then the one-hot previous action (none at t = 0: -1)."""
    n, d = obs.shape
    shown = np.empty((n, d + n_actions), dtype=np.float32)
    # Column by column: rows are short, and many.
    for k in range(d):
        shown[:, k] = obs[:, k]
    for action in range(n_actions):
        shown[:, d + action] = previous == action
    return shown


def numbered_actions(n: int) -> tuple[str, ...]:
    """What the A actions of a world are called, which has no names for them: "0", "1", ... in batches and in rules."""
    return tuple(str(action) for action in range(n))


def rollout(
    world: World | Env[Any, Any],
    policy: Acting,
    episodes: int,
    rng: np.random.Generator,
    *,
    deterministic: bool = True,
    start: tuple[object, Float32Array] | None = None,
    progress: Callable[[int, int], None] | None = None,
    max_steps: int | None = None,
    features: Sequence[str] | None = None,
    observe: Callable[[Any], npt.ArrayLike] | None = None,
) -> Batch:
    """Act in a world until every episode has ended, at the latest at its horizon; those that have not are truncated.

    In a Gymnasium environment, which needs discrete actions, one episode follows the other, each reset with a seed of
    its own from ``rng``. A policy there is a callable, which takes the environment's own observation and returns its
    own action; a model of Stable-Baselines3 (whatever has ``predict`` and an ``observation_space``), which is shown
    the same with a first axis; or a policy of this project, which is shown what the batch holds and the previous
    action, as in a world.

    Args:
        world: where to act: a :class:`World`, or a ``gymnasium.Env``.
        policy: who acts; in a world whatever has ``predict``.
        episodes: how many episodes; in a world all at once.
        rng: starts, noise and ends; the policy has a generator of its own.
        deterministic: handed to the policy.
        start: states and observations ``[episodes, d]`` to begin from, only of a world; default: its own draw.
        progress: called with (steps done, steps at most), in an environment with episodes in place of steps.
        max_steps: at most so many steps; default: the world's horizon, or the environment's time limit.
        features: names of the d numbers that an environment's batch holds of every observation; default: those that
            its ``feature_map`` has, else "obs_0", "obs_1", ...
        observe: makes the ``[d]`` numbers of an environment's own observation; default: they are the observation,
            which is then a ``Box`` of one axis.

    Returns:
        The episodes as a batch, named "0", "1", ... in order.

    Raises:
        ValueError: there is no episode to act in, neither the world nor ``max_steps`` says when to stop, the starts
            are not ``episodes``, an environment's spaces are of another kind, or an action is none of it.
    """
    if episodes < 1:
        raise ValueError(f"rollout: episodes must be at least 1, got {episodes}")
    if hasattr(world, "action_space"):
        if start is not None:
            raise ValueError("rollout: start is of a world; an environment begins where its reset does")
        seeds = rng.integers(2**31, size=episodes)
        env: Any = world
        return _played(env, policy, seeds, deterministic, progress, max_steps, features, observe)
    if features is not None or observe is not None or not hasattr(policy, "predict"):
        raise ValueError("rollout: in a world a policy has predict, and features and observe are the world's own")
    steps = _whole_steps("the world's horizon", getattr(world, "horizon", None), max_steps)
    state, obs = world.reset(episodes, rng) if start is None else start
    if len(obs) != episodes:
        raise ValueError(f"rollout: {episodes} episodes asked for, {len(obs)} starts given")
    alive: BoolArray = np.ones(episodes, dtype=np.bool_)
    terminated: BoolArray = np.zeros(episodes, dtype=np.bool_)
    previous: IntArray = np.full(episodes, -1, dtype=np.int64)
    lengths: IntArray = np.zeros(episodes, dtype=np.int64)
    observed, taken = [obs], []
    memory, begin = None, np.ones(episodes, dtype=np.bool_)
    for step in range(steps):
        chosen, memory = policy.predict(observation(obs, previous, world.n_actions), memory, begin, deterministic)
        actions: IntArray = np.asarray(chosen, dtype=np.int64)
        # Ended episodes go on unseen, so that the numbers drawn for one episode do not depend on the others' ends.
        state, obs, _, ended = world.step(state, actions, rng)
        lengths += alive
        terminated |= alive & ended
        alive &= ~ended
        begin = np.zeros(episodes, dtype=np.bool_)
        previous = actions
        observed.append(obs)
        taken.append(actions)
        if progress is not None:
            progress(step + 1, steps)
        if not alive.any():
            break
    return Batch(
        obs=np.stack(observed, axis=1),
        actions=np.stack(taken, axis=1),
        lengths=lengths,
        terminated=terminated,
        truncated=~terminated,
        features=world.features,
        action_names=numbered_actions(world.n_actions),
        ids=tuple(str(i) for i in range(episodes)),
    )


def _whole_steps(name: str, limit: object, max_steps: int | None) -> int:
    """Steps of an episode at most: ``max_steps``, else the limit of that name."""
    name, steps = (name, limit) if max_steps is None else ("max_steps", max_steps)
    if steps is None:
        raise ValueError(f"rollout: {name} is not stated, so that max_steps must say when to stop")
    if not isinstance(steps, int | np.integer) or steps < 1:
        raise ValueError(f"rollout: {name} must be a whole number of at least 1, got {steps!r}")
    return int(steps)


def _played(
    env: Env[Any, Any],
    policy: Acting,
    seeds: IntArray,
    deterministic: bool,
    progress: Callable[[int, int], None] | None,
    max_steps: int | None,
    features: Sequence[str] | None,
    observe: Callable[[Any], npt.ArrayLike] | None,
) -> Batch:
    """Episodes in a Gymnasium environment, one after the other."""
    first, n_actions = _discrete(env)
    scale = getattr(env.unwrapped, "feature_map", None)
    own = scale.of if isinstance(scale, FeatureMap) else None
    limit = getattr(env.spec, "max_episode_steps", None)
    steps = _whole_steps("the environment's time limit", limit, max_steps)
    observe = observe or _box(env, own, n_actions)
    choose = _chooser(env, policy, first, n_actions, deterministic)
    played = []
    for seed in seeds:
        played.append(_episode(env, choose, observe, int(seed), steps))
        if progress is not None:
            progress(len(played), len(seeds))
    lengths: IntArray = np.array([len(actions) for _, actions, _ in played], dtype=np.int64)
    n, d = len(seeds), len(played[0][0][0])
    obs: FloatArray = np.zeros((n, lengths.max() + 1, d))
    taken: IntArray = np.zeros((n, lengths.max()), dtype=np.int64)
    for i, (rows, actions, _) in enumerate(played):
        obs[i, : len(rows)], taken[i, : len(actions)] = rows, actions
    terminated: BoolArray = np.array([ended for _, _, ended in played], dtype=np.bool_)
    return Batch(
        obs=obs,  # type: ignore[arg-type]  # the batch makes it float32, and names what is too large for that
        actions=taken,
        lengths=lengths,
        terminated=terminated,
        truncated=~terminated,
        features=tuple(features or (own if own is not None and len(own) == d else (f"obs_{k}" for k in range(d)))),
        action_names=tuple(str(first + action) for action in range(n_actions)),
        ids=tuple(str(i) for i in range(n)),
    )


def _episode(
    env: Env[Any, Any], choose: _Chooser, observe: Callable[[Any], npt.ArrayLike], seed: int, steps: int
) -> tuple[list[FloatArray], list[int], bool]:
    """Features of each observation, numbers of the actions from 0 on, and whether the process ended."""
    shown, _ = env.reset(seed=seed)
    rows, actions, memory = [_row(observe, shown)], list[int](), None
    for _ in range(steps):
        action, taken, memory = choose(shown, rows[-1], actions[-1] if actions else -1, memory)
        shown, _, ended, stopped, _ = env.step(taken)
        rows.append(_row(observe, shown))
        actions.append(action)
        if ended or stopped:
            return rows, actions, bool(ended)
    return rows, actions, False


def _discrete(env: Env[Any, Any]) -> tuple[int, int]:
    """The first action of an environment, and A, how many there are."""
    from gymnasium import spaces

    if hasattr(env, "num_envs"):
        raise ValueError("rollout: a vector environment resets rows by itself; give a single one, gymnasium.make(...)")
    space = env.action_space
    if not isinstance(space, spaces.Discrete) or space.n < 2:
        raise ValueError(
            f"rollout: at least two discrete actions are needed, and the environment's are {space}; "
            "gymnasium.wrappers.TransformAction can number them"
        )
    return int(space.start), int(space.n)


def _box(env: Env[Any, Any], own: tuple[str, ...] | None, n_actions: int) -> Callable[[Any], npt.ArrayLike]:
    """How the features are read from the observations of an environment that has no other word for them."""
    from gymnasium import spaces

    space = env.observation_space
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise ValueError(
            f"rollout: observations must be a Box of one axis, and the environment's are {space}; observe=... makes "
            "numbers of an observation, and gymnasium.wrappers.FlattenObservation a Box"
        )
    # This project's environments show the previous action behind the features, which a batch has anyway.
    if own is not None and space.shape[0] == len(own) + n_actions:
        return lambda shown: shown[: len(own)]
    return lambda shown: shown


def _row(observe: Callable[[Any], npt.ArrayLike], shown: Any) -> FloatArray:
    """``[d]`` the features of an observation; a copy, since environments may write into one array."""
    row = np.array(observe(shown), dtype=np.float64)
    if row.ndim != 1:
        raise ValueError(f"rollout: observe must make one row of numbers of an observation, got shape {row.shape}")
    return row


_Chooser: TypeAlias = Callable[[Any, FloatArray, int, Any], tuple[int, Any, Any]]
"""(shown, features, previous action, memory) to (action from 0 on, the environment's own, memory)."""


def _chooser(env: Env[Any, Any], policy: Acting, first: int, n_actions: int, deterministic: bool) -> _Chooser:
    """What a policy of any kind does in an environment."""
    space = getattr(policy, "observation_space", None)
    if space is not None and space.shape != env.observation_space.shape:
        raise ValueError(f"rollout: the policy was trained on observations {space}, not {env.observation_space}")
    if not hasattr(policy, "predict") and not callable(policy):
        raise ValueError(f"rollout: a policy is a callable or has predict, and {type(policy).__name__} is neither")

    def choose(shown: Any, row: FloatArray, previous: int, memory: Any) -> tuple[int, Any, Any]:
        offset = first
        if not hasattr(policy, "predict"):
            chosen: Any = policy(shown)
        elif space is None:
            seen = observation(row[None].astype(np.float32), np.array([previous]), n_actions)
            chosen, memory = policy.predict(seen, memory, np.array([previous < 0]), deterministic)
            offset = 0
        else:
            alone: Any = {k: v[None] for k, v in shown.items()} if isinstance(shown, dict) else np.asarray(shown)[None]
            chosen, memory = policy.predict(alone, memory, np.array([previous < 0]), deterministic)
        numbers = np.asarray(chosen)
        action = int(numbers.item()) - offset if numbers.size == 1 and numbers.dtype.kind in "iub" else -1
        if not 0 <= action < n_actions:
            every = f"{first}..{first + n_actions - 1}"
            raise ValueError(f"rollout: the policy chose {chosen!r}, and the environment's actions are {every}")
        return action, first + action, memory

    return choose


def discounted(batch: Batch, values: FloatArray, gamma: float) -> FloatArray:
    """``[N, ..]`` sum over t = 0..T-1 of gamma^t values[:, t] for ``values [N, T, ..]``; gamma restarts per episode."""
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma must lie between 0 and 1, got {gamma}")
    weights = np.where(batch.mask, gamma ** np.arange(batch.horizon, dtype=np.float64), 0.0)
    total: FloatArray = np.einsum("nt,nt...->n...", weights, values)
    return total


def returns(batch: Batch, feature_map: FeatureMap, w: FloatArray, gamma: float = 1.0) -> FloatArray:
    """``[N]`` discounted sums of the reward w . phi(x_{t+1}) that the episodes really earned (equation 23)."""
    return discounted(batch, feature_map(batch.next_obs) @ np.asarray(w, dtype=np.float64), gamma)


def act_along(policy: Policy, batch: Batch, *, deterministic: bool = True) -> IntArray:
    """``[N, T]`` what a policy would do along the batch's own histories, zero on padding.

    Every step shows what was observed and, as previous action, the one really taken, whatever the policy would have
    done before. Its memory is carried from t = 0 on.
    """
    n = len(batch)
    chosen = np.zeros_like(batch.actions)
    previous: IntArray = np.full(n, -1, dtype=np.int64)
    memory = None
    for step in range(int(batch.lengths.max())):
        seen = observation(batch.obs[:, step], previous, batch.n_actions)
        begin = np.full(n, step == 0, dtype=np.bool_)
        chosen[:, step], memory = policy.predict(seen, memory, begin, deterministic)
        previous = batch.actions[:, step]
    return np.where(batch.mask, chosen, 0)
