"""Three ways to a good policy in the simulator, behind one call: successor features, DRQN, RecurrentPPO."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, NamedTuple, get_args

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from agents.expert import EXPERT, successor_expert
from cirl_gym import dynamics
from cirl_gym.parameters import TumourParameters
from cirl_gym.reward import check_weights
from cirl_gym.types import Policy

Algorithm = Literal["successor", "drqn", "recurrent_ppo"]
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)
ROWS = 64
"""Patients that DRQN and RecurrentPPO treat at once."""
WATCHES = 10
"""How often a curve looks at a policy that is being trained."""


@dataclass(frozen=True)
class Setting:
    """What is to be solved.

    Raises:
        ValueError: the weights are not two finite numbers with an L1 norm above 0 and at most 1, or gamma is not in
            [0, 1].
    """

    weights: tuple[float, float] = (-0.3, -0.7)
    """Of tumour and side effects."""
    gamma: float = 0.99
    """Discount factor."""
    parameters: TumourParameters = field(default_factory=TumourParameters)
    """The simulator."""

    def __post_init__(self) -> None:
        if not np.abs(check_weights(self.weights, dynamics.FEATURES)).sum() > 0:
            raise ValueError("weights must not both be zero: every policy would be optimal")
        if not 0 <= self.gamma <= 1:
            raise ValueError(f"gamma must lie between 0 and 1, got {self.gamma}")


SIX_SETTINGS = tuple(Setting(w, gamma) for gamma in (0.99, 0.5) for w in ((-0.3, -0.7), (-0.7, -0.3), (-0.5, -0.5)))
"""The paper's (section 5.1)."""


class Point(NamedTuple):
    """One point of a learning curve."""

    steps: int
    """Environment steps so far, real or imagined."""
    seconds: float
    """Of training, without those of looking."""
    value: float
    """What the watcher found."""


class Solved(NamedTuple):
    """What training has brought."""

    policy: Policy
    """Greedy where it is asked for ``deterministic=True``."""
    curve: tuple[Point, ...]
    """From before the first update to the end."""
    save: Callable[[str], None]
    """Writes the policy: the successor agent without pickle, the others as Stable-Baselines3 does."""


Watcher = Callable[[Policy], float]
"""Says what a policy is worth."""


def train_expert(
    setting: Setting,
    algorithm: Algorithm = "successor",
    watch: Watcher | None = None,
    *,
    seed: int = 0,
    scale: float = 1.0,
    until: float = np.inf,
    watches: int = WATCHES,
) -> Solved:
    """Train a policy for one setting; :mod:`agents.expert_store` keeps it.

    Args:
        setting: weights, discount factor, simulator.
        algorithm: one of :data:`ALGORITHMS`.
        watch: called now and then; its time is not counted. Without it there is no curve.
        seed: everything that is drawn.
        scale: share of the usual training, for a first look.
        until: end the training as soon as ``watch`` finds as much; the successor agent has nothing to show before its
            end.
        watches: how often to look while training.

    Raises:
        ValueError: the algorithm is unknown or the scale is not positive.
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}, got {algorithm!r}")
    if not scale > 0:
        raise ValueError(f"scale must be positive, got {scale}")
    if algorithm == "successor":
        return _successor(setting, watch, seed, scale)
    new_curve = partial(Curve, watch, until=until, watches=watches) if watch else lambda _: None
    return _stable_baselines(setting, algorithm, seed, scale, new_curve)


def _successor(setting: Setting, watch: Watcher | None, seed: int, scale: float) -> Solved:
    config = replace(
        EXPERT,
        episodes=max(int(EXPERT.episodes * scale), 1),
        gradient_steps=max(int(EXPERT.gradient_steps * scale), 1),
    )
    w = np.array(setting.weights)
    begun = time.perf_counter()
    expert = successor_expert(setting.parameters, w, setting.gamma, 1.0, config, np.random.default_rng(seed))
    seconds, policy = time.perf_counter() - begun, expert.agent.policy(w)
    # One sweep backwards: only its end is a policy.
    steps = config.episodes * setting.parameters.horizon
    curve = (Point(steps, seconds, watch(policy)),) if watch else ()
    return Solved(policy, curve, expert.agent.save)


def _stable_baselines(
    setting: Setting, algorithm: Algorithm, seed: int, scale: float, new_curve: Callable[[int], Curve | None]
) -> Solved:
    # Only these two need it, and a newer Gymnasium.
    from agents.sb3_vec_env import make_native_vec_env

    env = make_native_vec_env(
        "CIRLTumour-v0",
        ROWS,
        seed=seed,
        parameters=setting.parameters,
        weights=setting.weights,
        max_episode_steps=setting.parameters.horizon,
    )
    if algorithm == "drqn":
        from agents.drqn import DRQN
        from agents.drqn_settings import tumour_settings

        settings = tumour_settings()
        steps = max(int(settings.total_timesteps * scale), 1)
        curve = new_curve(steps)
        drqn = DRQN("MlpLstmPolicy", env, gamma=setting.gamma, seed=seed, device="cpu", **settings.arguments).learn(
            steps, callback=curve
        )
        return Solved(drqn, curve.finished(drqn) if curve else (), drqn.save)
    from agents.recurrent_ppo import RecurrentPPOConfig, train_recurrent_ppo

    steps = max(int(RecurrentPPOConfig.steps * scale), 1)
    curve = new_curve(steps)
    config = RecurrentPPOConfig(steps=steps, rollout=setting.parameters.horizon)
    ppo = train_recurrent_ppo(env, setting.gamma, config, seed=seed, callback=curve)
    return Solved(ppo, curve.finished(ppo) if curve else (), ppo.save)


class Curve(BaseCallback):
    """A callback of Stable-Baselines3 that looks at the policy some times while it is trained.

    Args:
        watch: says what it is worth.
        steps: of the whole training.
        until: stop once it is worth as much.
        watches: how often to look.
    """

    def __init__(self, watch: Watcher, steps: int, until: float = np.inf, watches: int = WATCHES) -> None:
        super().__init__()
        self._watch, self._every, self._until = watch, max(steps // watches, 1), until
        self._points: list[Point] = []
        self._due, self._looking = 0, 0.0
        self._begun = time.perf_counter()

    def finished(self, policy: Policy) -> tuple[Point, ...]:
        """The curve, with a last point for the trained policy."""
        self._look(policy)
        return tuple(self._points)

    def _on_training_start(self) -> None:
        self._begun = time.perf_counter()

    def _on_step(self) -> bool:
        if self.num_timesteps >= self._due:
            self._due += self._every
            self._look(self.model)
            return self._points[-1].value < self._until
        return True

    def _look(self, policy: Policy) -> None:
        at = time.perf_counter()
        seconds = at - self._begun - self._looking
        self._points.append(Point(self.num_timesteps, seconds, self._watch(policy)))
        self._looking += time.perf_counter() - at
