"""The one rollout loop: it owns memory, episode starts and the rule that every episode that was begun is finished."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray, Policy, World


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
    world: World,
    policy: Policy,
    episodes: int,
    rng: np.random.Generator,
    *,
    deterministic: bool = True,
    start: tuple[object, Float32Array] | None = None,
    progress: Callable[[int, int], None] | None = None,
    max_steps: int | None = None,
) -> Batch:
    """Act in a world until every episode has ended, at the latest at its horizon; those that have not are truncated.

    Args:
        world: where to act.
        policy: who acts.
        episodes: how many episodes, all at once.
        rng: starts, noise and ends; the policy has a generator of its own.
        deterministic: handed to the policy.
        start: states and observations ``[episodes, d]`` to begin from; default: the world's own draw.
        progress: called with (steps done, steps at most).
        max_steps: at most so many steps; default: the world's horizon.

    Returns:
        The episodes as a batch, named "0", "1", ... in order.

    Raises:
        ValueError: there is no episode to act in, neither the world nor ``max_steps`` says when to stop, or the starts
            are not ``episodes``.
    """
    if episodes < 1:
        raise ValueError(f"rollout: episodes must be at least 1, got {episodes}")
    steps = _whole_steps(world, max_steps)
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


def _whole_steps(world: World, max_steps: int | None) -> int:
    """Steps of an episode at most."""
    for name, value in (("max_steps", max_steps), ("the world's horizon", getattr(world, "horizon", None))):
        if value is None:
            continue
        if not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"rollout: {name} must be a whole number of at least 1, got {value!r}")
        return int(value)
    raise ValueError("rollout: the world has no horizon, so that max_steps must say when to stop")


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
