"""RecurrentPPO in the world-model environment: the third solver of the max-margin loop."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sb3_contrib import RecurrentPPO
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from agents.kept_rounds import StoredPolicies
from agents.recurrent_ppo import RecurrentPPOConfig, WarningLstmPolicy, policy_arguments, train_recurrent_ppo
from agents.rolled_out_mu import RollOutConfig, rolled_out_mu
from agents.sb3_vec_env import make_native_vec_env
from agents.successor_training import Problem
from agents.world_ppo_config import KNOWS_NO_RULES, WorldPPOConfig
from cirl_gym.outcome_models.inputs import Scaler
from cirl_gym.outcome_models.masked import rules_of
from cirl_gym.outcome_models.store import load_module_arrays, module_arrays
from cirl_gym.types import FloatArray, Policy


class HorizonEnds(VecEnvWrapper):
    """An episode that the horizon cut off counts as ended: mu has T terms, and nothing is to be bootstrapped after."""

    def reset(self) -> VecEnvObs:
        """Begin an episode in every row."""
        return self.venv.reset()

    def step_wait(self) -> VecEnvStepReturn:
        """Take the step; no end is called a cut-off."""
        obs, rewards, dones, infos = self.venv.step_wait()
        for row in np.flatnonzero(dones):
            infos[row]["TimeLimit.truncated"] = False
        return obs, rewards, dones, infos


class BestPolicy(BaseCallback):
    """Looks at the policy while it is trained, and keeps the best one that it saw.

    Args:
        value: what a policy is worth.
        every: steps between two looks; the first one is before any update.
        start: whose network the training begins with; None: the algorithm's own.
    """

    def __init__(
        self, value: Callable[[Policy], float], every: int, start: RecurrentActorCriticPolicy | None = None
    ) -> None:
        super().__init__()
        self._value, self._every, self._start = value, every, start
        self._due = 0
        self._best = -np.inf
        self._weights: dict[str, Any] = {}

    def chosen(self, trained: RecurrentPPO) -> RecurrentActorCriticPolicy:
        """The best policy seen, the trained one included."""
        policy = trained.policy
        assert isinstance(policy, RecurrentActorCriticPolicy)
        self._look(policy)
        policy.load_state_dict(self._weights)
        return policy

    def _on_training_start(self) -> None:
        if self._start is not None:
            self.model.policy.load_state_dict(self._start.state_dict())

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= self._due:
            self._due += self._every
            self._look(self.model.policy)

    def _look(self, policy: Any) -> None:
        value = self._value(policy)
        if value > self._best:
            self._best, self._weights = value, copy.deepcopy(policy.state_dict())


class WorldPPO:
    """Learns a policy for any preferences by acting in ``CIRLCounterfactual-v0`` with a problem's outcome model.

    Episodes begin with first observations of the batch and end by the model's p_end, at the latest at the horizon,
    after which nothing counts. Features are scaled by the batch, so that units do not matter.

    Args:
        problem: outcome model, outcomes, horizon, discount factor, and the batch (``histories``).
        config: how to train.
        rng: seeds every training.

    Raises:
        ValueError: the problem has no batch, or in its world not every action is always allowed.
    """

    def __init__(self, problem: Problem, config: WorldPPOConfig, rng: np.random.Generator) -> None:
        if problem.histories is None:
            raise ValueError("RecurrentPPO in the world model needs a problem with histories to begin from")
        if rules_of(problem.model) is not None:
            raise ValueError(KNOWS_NO_RULES)
        self.problem, self.config, self.rng = problem, config, rng
        self._settings = RecurrentPPOConfig(
            steps=config.steps, rollout=problem.horizon, epochs=config.epochs, last_rate=0.03
        )
        self._scaler = Scaler.from_batch(problem.histories)
        self._last: RecurrentActorCriticPolicy | None = None

    def solve(self, w: npt.ArrayLike) -> RecurrentActorCriticPolicy:
        """The best policy seen in a training for preferences ``[d]``, by w . mu over roll-outs with expected outcomes.

        It is a :class:`~cirl_gym.types.Policy`. Stable-Baselines3 seeds Python's and NumPy's global generators, from
        which nothing here draws; torch's is left as it was.

        Raises:
            ValueError: the weights are not d finite numbers with an L1 norm of at most 1.
        """
        weights, looking = np.asarray(w, dtype=np.float64), RollOutConfig(self.config.look_starts)
        best = BestPolicy(
            lambda policy: float(weights @ rolled_out_mu(policy, self.problem, looking)),
            max(self.config.steps // self.config.looks, 1),
            self._last if self.config.warm_start else None,
        )
        env, seed = self._env(weights), int(self.rng.integers(2**31))
        with torch.random.fork_rng(devices=[]):
            trained = train_recurrent_ppo(
                env, self.problem.gamma, self._settings, seed=seed, callback=best, scaler=self._scaler
            )
        self._last = best.chosen(trained)
        return self._last

    def stored(self) -> StoredPolicies:
        """Policies that :meth:`solve` found, as arrays and back; one that came back is what the next may start from."""

        def arrays(policy: Policy) -> dict[str, npt.NDArray[Any]]:
            assert isinstance(policy, RecurrentActorCriticPolicy)
            return module_arrays(policy)

        def policy(w: FloatArray, found: dict[str, npt.NDArray[Any]]) -> RecurrentActorCriticPolicy:
            env = self._env(w)
            with torch.random.fork_rng(devices=[]):  # first weights are drawn from torch's own generator
                again = WarningLstmPolicy(
                    env.observation_space,
                    env.action_space,
                    lambda _: 0.0,
                    **policy_arguments(self._settings, self._scaler),
                )
            load_module_arrays(again, found)
            self._last = again
            return again

        return StoredPolicies(arrays, policy)

    def _env(self, weights: FloatArray) -> VecEnv:
        env = make_native_vec_env(
            "CIRLCounterfactual-v0",
            self.config.rows,
            monitor=False,
            model=self.problem.model,
            batch=self.problem.histories,
            feature_map=self.problem.feature_map,
            horizon=self.problem.horizon,
            outcome=self.config.outcome,
            weights=weights,
        )
        return HorizonEnds(env)
