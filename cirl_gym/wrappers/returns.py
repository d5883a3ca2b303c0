"""Returns of a policy in any Gymnasium environment that tells its outcomes, under any weights that are stated."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cirl_gym.types import BoolArray, FloatArray, IntArray, Policy
from cirl_gym.vector_api import autoreset_mode


def env_returns(
    env: Any,
    policy: Policy,
    w: npt.ArrayLike,
    episodes: int,
    *,
    gamma: float = 1.0,
    seed: int | None = None,
    deterministic: bool = True,
) -> FloatArray:
    """Discounted sums of w . phi over whole episodes, with phi from ``info["phi"]`` (paper, equation 23).

    The reward of the environment is not looked at, so that one environment compares policies under any weights, and a
    foreign environment needs nothing but ``info["phi"]``. Of a vector environment's rows only the first episode after a
    reset counts, and then all are reset: an early end must not let short episodes count more often.

    Args:
        env: a ``gymnasium.Env``, or a ``gymnasium.vector.VectorEnv`` in any autoreset mode; it is reset, not closed.
        policy: who acts; ``predict`` gets observations with a first axis also where there is one environment.
        w: ``[d]`` weights of phi.
        episodes: how many.
        gamma: discount factor in [0, 1].
        seed: of the first reset; what follows goes on from it. None: the environment's own.
        deterministic: handed to the policy.

    Returns:
        ``[episodes]``, in the order in which they were begun.

    Raises:
        ValueError: a number is out of its range, w has another length than phi, or a step does not tell phi.
    """
    weights = np.asarray(w, dtype=np.float64)
    if weights.ndim != 1 or not np.isfinite(weights).all():
        raise ValueError(f"env_returns: w must be a vector of finite numbers, got {weights}")
    if episodes < 1 or not 0 <= gamma <= 1:
        raise ValueError(f"env_returns: episodes must be at least 1 and gamma in [0, 1], got {episodes}, {gamma}")
    play = _rows_returns if hasattr(env, "num_envs") else _one_return
    found: list[float] = []
    while len(found) < episodes:
        found += play(env, policy, weights, gamma, seed, deterministic)
        seed = None
    return np.array(found[:episodes], dtype=np.float64)


def _one_return(
    env: Any, policy: Policy, w: FloatArray, gamma: float, seed: int | None, deterministic: bool
) -> list[float]:
    obs, _ = env.reset(seed=seed)
    total, discount, memory, going = 0.0, 1.0, None, True
    begin: BoolArray = np.ones(1, dtype=np.bool_)
    while going:
        actions, memory = policy.predict(_with_axis(obs), memory, begin, deterministic)
        obs, _, terminated, truncated, info = env.step(np.asarray(actions)[0])
        if "phi" not in info:
            raise ValueError("env_returns: the environment gives no info['phi'], so there is no outcome to weigh")
        total += discount * float(_weighed(np.asarray(info["phi"], dtype=np.float64)[None], w)[0])
        discount, going, begin = discount * gamma, not (terminated or truncated), np.zeros(1, dtype=np.bool_)
    return [total]


def _rows_returns(
    env: Any, policy: Policy, w: FloatArray, gamma: float, seed: int | None, deterministic: bool
) -> list[float]:
    """The first episode of every row; rows that have ended go on unseen, in episodes that do not count."""
    mode, n = autoreset_mode(env).name, env.num_envs
    obs, _ = env.reset(seed=seed)
    total, discount, memory = np.zeros(n), 1.0, None
    begin, going, waiting = np.ones(n, dtype=np.bool_), np.ones(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_)
    while True:
        actions, memory = policy.predict(obs, memory, begin, deterministic)
        obs, _, terminated, truncated, infos = env.step(np.asarray(actions))
        ended: BoolArray = np.logical_or(terminated, truncated)
        # In a step that also begins the next episode, what belongs to the old one lies apart.
        last = infos.get("final_info", {}) if mode == "SAME_STEP" else infos
        for told, rows in ((infos, np.flatnonzero(going & ~ended)), (last, np.flatnonzero(going & ended))):
            total[rows] += discount * _weighed(_told(told, rows), w) if len(rows) else 0.0
        going &= ~ended
        discount *= gamma
        if not going.any():
            listed: list[float] = total.tolist()
            return listed
        if mode == "DISABLED" and ended.any():
            obs, _ = env.reset(options={"reset_mask": ended})
        # Where the next episode begins by itself, it does so now or in the next step.
        begin, waiting = (waiting, ended) if mode == "NEXT_STEP" else (ended, waiting)


def _told(infos: dict[str, Any], rows: IntArray) -> FloatArray:
    """``[k, d]`` phi of some rows; a vector of single environments may stack what they tell as objects."""
    told = np.asarray(infos.get("_phi", False), dtype=np.bool_)
    if not told.ndim or not told[rows].all():
        raise ValueError("env_returns: the environment gives no info['phi'] of a row that acted")
    return np.stack([np.asarray(infos["phi"][row], dtype=np.float64) for row in rows])


def _weighed(phi: FloatArray, w: FloatArray) -> FloatArray:
    """``[k]`` w . phi."""
    if phi.shape[1:] != w.shape:
        raise ValueError(f"env_returns: w has {len(w)} weights, info['phi'] {' x '.join(map(str, phi.shape[1:]))}")
    weighed: FloatArray = phi @ w
    return weighed


def _with_axis(obs: Any) -> Any:
    """One observation as a batch of one: an array, or a dictionary of them."""
    if isinstance(obs, dict):
        return {name: np.asarray(part)[None] for name, part in obs.items()}
    return np.asarray(obs)[None]
