"""RecurrentPPO of sb3-contrib: with settings that work on short episodes, and in the world-model environment.

:class:`WorldPPO` is a solver of the max-margin loop, beside the successor-feature agent and recurrent Q-learning.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sb3_contrib import RecurrentPPO
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.distributions import make_proba_distribution
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from agents.as_printed.learning import RollOutConfig, rolled_out_mu
from agents.drqn.policy import LinearRate, ScaledExtractor
from agents.policies.policy import StoredPolicies
from agents.ppo_settings import KNOWS_NO_RULES, RecurrentPPOConfig, WorldPPOConfig
from agents.sb3_copies import CopiedWithoutEnv
from agents.sb3_vec_env import make_native_vec_env
from agents.successor.training import Problem
from cirl_gym.outcome_models.inputs import Scaler
from cirl_gym.outcome_models.masked import rules_of
from cirl_gym.outcome_models.network_files import load_module_arrays, module_arrays
from cirl_gym.types import FloatArray, Policy


class WarningLstmPolicy(RecurrentActorCriticPolicy):
    """sb3-contrib's ``MlpLstmPolicy``, which says so where memory is missing.

    Without a word the state would be zeros in the middle of an episode, and the policy another one.
    """

    def predict(
        self,
        observation: npt.NDArray[Any] | dict[str, npt.NDArray[Any]],
        state: tuple[npt.NDArray[Any], ...] | None = None,
        episode_start: npt.NDArray[Any] | None = None,
        deterministic: bool = False,
    ) -> tuple[npt.NDArray[Any], tuple[npt.NDArray[Any], ...] | None]:
        """As in sb3-contrib; warns where there is no state although ``episode_start`` says that an episode goes on."""
        if state is None and episode_start is not None and not np.all(episode_start):
            told = "RecurrentPPO: no state was given although an episode is under way; its history is lost"
            warnings.warn(told, stacklevel=3)
        answer: tuple[npt.NDArray[Any], tuple[npt.NDArray[Any], ...] | None]
        answer = super().predict(observation, state, episode_start, deterministic)
        return answer

    def __getstate__(self) -> dict[str, Any]:
        # The distribution of the last actions hangs on the graph of their gradients, which no copy can have.
        return self.__dict__ | {"action_dist": make_proba_distribution(self.action_space)}


def policy_arguments(config: RecurrentPPOConfig, scaler: Scaler | None = None) -> dict[str, Any]:
    """Keyword arguments of :class:`WarningLstmPolicy` beside spaces and learning rate."""
    arguments: dict[str, Any] = {
        "lstm_hidden_size": config.hidden,
        "shared_lstm": True,
        "enable_critic_lstm": False,
        "net_arch": [config.hidden],
    }
    if scaler is not None:
        arguments |= {"features_extractor_class": ScaledExtractor, "features_extractor_kwargs": {"scaler": scaler}}
    return arguments


class CopiedPPO(CopiedWithoutEnv, RecurrentPPO):
    """Sb3-contrib's RecurrentPPO, whose copies act without the environment that it was trained in."""


def train_recurrent_ppo(
    env: VecEnv,
    gamma: float,
    config: RecurrentPPOConfig | None = None,
    *,
    seed: int = 0,
    callback: BaseCallback | None = None,
    scaler: Scaler | None = None,
) -> RecurrentPPO:
    """Sb3-contrib's RecurrentPPO, trained on either environment; its ``predict`` takes and returns the LSTM's state.

    Args:
        env: many rows at once, e.g. :func:`agents.sb3_vec_env.make_native_vec_env` with 64; its observation a ``Box``.
        gamma: discount factor in [0, 1].
        config: default: :class:`RecurrentPPOConfig`'s.
        seed: of the network and of the environment's first reset.
        callback: Stable-Baselines3's, e.g. to watch or to stop.
        scaler: of the observed features, for units that differ much, such as a real table's; default: as they are.

    Raises:
        ValueError: gamma is out of its range.
    """
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma must lie between 0 and 1, got {gamma}")
    config = config or RecurrentPPOConfig()
    # Small recurrent networks are slower with more threads, and results stay the same to the byte.
    torch.set_num_threads(1)
    algorithm = CopiedPPO(
        WarningLstmPolicy,
        env,
        n_steps=config.rollout,
        batch_size=config.rollout * env.num_envs,
        n_epochs=config.epochs,
        learning_rate=LinearRate(config.learning_rate, config.last_rate * config.learning_rate),
        gamma=gamma,
        gae_lambda=config.gae_lambda,
        ent_coef=config.entropy,
        policy_kwargs=policy_arguments(config, scaler),
        seed=seed,
        device="cpu",
    )
    return algorithm.learn(config.steps, callback=callback)


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
    """Looks at the policy before its first update and after ``every`` steps, and answers with the best that it saw.

    With ``start`` the training begins with that policy's network.
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
                arguments = policy_arguments(self._settings, self._scaler)
                again = WarningLstmPolicy(env.observation_space, env.action_space, lambda _: 0.0, **arguments)
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
