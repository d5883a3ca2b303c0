"""The successor-feature agent: psi(h, a; w) for every w in one training, by one backward sweep in a world model.

psi^pi(h, a) is the discounted sum of phi from h on when a is taken first and pi acts after it (paper, section 4.1,
there written mu^pi(h, a)); for preferences w, Q(h, a) = w . psi(h, a; w), and the policy is greedy in Q.

How it is learnt (policy search by dynamic programming, Bagnell et al. 2003, with successor features):

1. Histories are imagined in the world model under policies that treat at random rates, so that every stretch of
   treatment and of sparing is seen; the batch's own histories are added where there is a batch.
2. Backwards over t = T-1 .. 0: for each history h_t, a drawn w and **every** action, the target is exact: take the
   action, then follow the greedy policy of the stages already learnt to the end of the episode in the world model.
   Nothing is bootstrapped, so that no error of one stage enters the next one's values, only its choices; and a deep
   local optimum such as "always treat" is no trap, since later stages are solved before earlier ones.
3. When acting, the network only guides a beam search over plans (:mod:`agents.successor.planning`), and psi is the
   exact discounted sum of phi along the best plan found, so that w . psi = Q holds exactly.

There is one small network per time step: in a finite-horizon problem what is left to come depends on how much time is
left. Where decisions look fewer steps ahead than episodes last (:attr:`agents.successor.training.Problem.ahead`), each
is planned so far ahead, or to the end where that is nearer, and planned anew at the next step (a receding horizon):
there are as many networks as steps that are looked ahead. The memory of the agent is the world model's own state, which
by construction is all that the world model needs of a history. It is carried from step to step like any recurrent
policy's.
"""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch

from agents.policies.policy import (
    Memory,
    ScoringPolicy,
    checked_observation,
    drawn_from_softmax,
    warn_of_lost_history,
)
from agents.successor.network import StagedNetwork
from agents.successor.planning import ActionValues, Plans, Search, among_common, best_plan, open_actions, plan
from cirl_gym.data.batch import Batch, evenly_spaced_rows
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.habits import Habit
from cirl_gym.data.outcome_model import CounterfactualWorld, OutcomeModel, foresee
from cirl_gym.data.rules import among_allowed
from cirl_gym.files import loading
from cirl_gym.outcome_models.masked import allowed_actions, rules_of
from cirl_gym.outcome_models.network_files import (
    module_arrays,
    names_of,
    read_model_file,
    size_of,
    stored_module,
    write_model_file,
)
from cirl_gym.outcome_models.training import check_settings
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray
from cirl_gym.worlds.tumour import TumourWorld

Source: TypeAlias = Batch | gym.Env[Any, Any] | TumourWorld | CounterfactualWorld
"""What an agent can be trained from."""
_NARROW = 8
"""A search of less width need not find more than the greedy policy's plans."""
_PLANS_AT_ONCE = 8192
"""Some thousand plans at a time stay in the processor's cache."""


@dataclass(frozen=True)
class SuccessorConfig:
    """How :func:`agents.successor.training.fit_successor` trains.

    Raises:
        ValueError: a number is out of its range.
    """

    episodes: int = 4096
    """Imagined episodes."""
    weights_per_history: int = 2
    """How many w are drawn for each history."""
    hidden: tuple[int, ...] = (64, 64)
    """Units of the hidden layers of each stage."""
    gradient_steps: int = 120
    """Gradient steps per stage."""
    batch_size: int = 1024
    """Histories per gradient step where there are two actions; fewer where there are more, each of which learns."""
    learning_rate: float = 3e-3
    """Adam's, falling linearly to zero within each stage."""
    width: int = 32
    """Plans that go on in the beam search when acting (in training 1: the greedy policy is followed): so many for each
    first action where there are two. Where there are more, 2 ``width`` plans are shared evenly among them, but 2 at
    least go on for each, or 1 where ``width`` is below 8 (:func:`plans_each`)."""

    def __post_init__(self) -> None:
        counts = "episodes weights_per_history gradient_steps batch_size width"
        check_settings(self, counts, "at least 1", lambda value: value >= 1)
        check_settings(self, "hidden", "at least 1 each", lambda sizes: min(sizes, default=1) >= 1)
        check_settings(self, "learning_rate", "positive and finite", lambda value: 0 < value < np.inf)


def plans_each(width: int, n_actions: int) -> int:
    """Plans that go on for each of A first actions, in a search of a width for two (:attr:`SuccessorConfig.width`).

    Work so depends little on the number of actions. Nor does what is found: with many actions it hardly matters how
    many plans go on beside the greedy policy's. Measured with 20 outcomes and 25 actions, mean value of the best plans
    beyond that of the greedy policy: .00009 with 2 plans each, .00007 with 4, .00011 with 8, .00019 with 32.
    """
    return min(width, max(2 * width // n_actions, 2 if width >= _NARROW else 1))


class SuccessorAgent:
    """psi for every w, and the policies and feature expectations that follow from it.

    Usable without IRL: one training gives the (near) optimal policy of any preference.
    """

    def __init__(
        self,
        model: OutcomeModel,
        feature_map: FeatureMap,
        network: StagedNetwork,
        gamma: float,
        state_mean: Float32Array,
        state_scale: Float32Array,
        width: int = 32,
        seldom: tuple[int, ...] = (),
    ) -> None:
        self.model, self.feature_map, self.network, self.gamma = model, feature_map, network, gamma
        self.state_mean, self.state_scale = state_mean, state_scale
        self.width, self.seldom = width, seldom
        self.horizon = self.ahead
        """T, number of actions of a whole episode."""

    @classmethod
    def fit(cls, source: Source, gamma: float = 0.99, **options: Any) -> SuccessorAgent:
        """Train from a batch, an environment or a world (:func:`agents.successor.training.fit_agent`)."""
        # The training stands on this module.
        from agents.successor.training import fit_agent

        return fit_agent(source, gamma, **options)

    @property
    def ahead(self) -> int:
        """How many actions a decision looks ahead where no end is nearer: the number of stages."""
        return len(self.network.stages)

    def for_episodes(self, horizon: int) -> SuccessorAgent:
        """The same for episodes of another number of actions, looking ahead as far as before."""
        other = copy.copy(self)
        other.horizon = horizon
        return other

    def stage(self, t: IntArray) -> IntArray:
        """Of the network's stages, where plans made at times t begin; they end with the last stage."""
        return np.maximum(t + self.ahead - self.horizon, 0)

    def network_psi(self, t: int, states: Float32Array, w: FloatArray) -> Float32Array:
        """psi(h_t, a; w) ``[n, A, d]`` as the network has it, for states ``[n, S]`` and one w per row ``[n, d]``."""
        with torch.no_grad():
            psi = self.network.psi(t, self.inputs(states), torch.from_numpy(w.astype(np.float32)))
        return np.asarray(psi.numpy())

    def inputs(self, states: Float32Array) -> torch.Tensor:
        """Standardised states, as the network takes them."""
        return torch.from_numpy((states - self.state_mean) / self.state_scale)

    def planned_psi(
        self, t: int | IntArray, states: Float32Array, w: FloatArray, width: int | None = None
    ) -> FloatArray:
        """``[n, A, d]`` psi(h_t, a; w) of the best plans, as :meth:`plans`, one w a row.

        ``t`` is one time for all histories, or ``[n]`` in ascending order, which takes far less time than one search
        for each time.
        """
        times = np.broadcast_to(t, len(states))
        parts = [plans.psi for plans in self._planned(times, states, w, width)]
        return np.concatenate(parts) if parts else np.zeros((0, self.model.n_actions, w.shape[1]))

    def plans(self, t: int, states: Float32Array, w: FloatArray, width: int | None = None) -> Plans:
        """The best plans (:func:`agents.successor.planning.plan`), one w a row.

        Args:
            t: time of the histories.
            states: ``[n, S]`` histories in the world model's form.
            w: ``[n, d]`` preferences.
            width: of the search (:attr:`SuccessorConfig.width`); default: the agent's own.
        """
        parts, shape = self._planned(np.full(len(states), t), states, w, width), (0, self.model.n_actions)
        steps = min(self.ahead, self.horizon - t)
        none = Plans(np.zeros((*shape, w.shape[1])), np.zeros((*shape, steps), dtype=np.int64))
        return Plans(*map(np.concatenate, zip(*parts, strict=True))) if parts else none

    def _planned(self, times: IntArray, states: Float32Array, w: FloatArray, width: int | None) -> list[Plans]:
        """Plans of some thousand at a time."""
        n_actions = self.model.n_actions
        search = self._search(plans_each(self.width if width is None else width, n_actions))
        size = max(_PLANS_AT_ONCE // (search.width * n_actions), 1)
        pieces, begin = [slice(first, first + size) for first in range(0, len(states), size)], self.stage(times)
        return [plan(search, begin[piece], states[piece], w[piece]) for piece in pieces]

    @torch.inference_mode()
    def estimate(self) -> ActionValues:
        """Q as the network has it, made ready to be asked of many plans."""
        scaling = torch.from_numpy(self.state_mean), torch.from_numpy(self.state_scale)
        stages = [self.network.folded(t, *scaling) for t in range(self.ahead)]

        @torch.inference_mode()
        def values(t: int, states: Float32Array, w: FloatArray) -> Float32Array:
            found = stages[t](torch.from_numpy(states), torch.from_numpy(w.astype(np.float32)))
            return np.asarray(found.numpy())

        return values

    def _search(self, width: int) -> Search:
        return Search(self.model, self.feature_map, self.estimate(), self.ahead, self.gamma, width, self.seldom)

    def open_actions(self, states: Float32Array) -> BoolArray | None:
        """``[.., A]`` which actions policies without mistakes choose from after states ``[.., S]``; None: from all."""
        return open_actions(self.model, self.seldom, states)

    def psi(self, batch: Batch, w: npt.ArrayLike, width: int | None = None) -> Float32Array:
        """Successor features ``[N, T, A, d]`` for every history and action, forbidden or not; zero on padding.

        Args:
            batch: whose histories.
            w: ``[d]`` preferences; or several, ``[J, d]``, for psi ``[J, N, T, A, d]`` in less time than one by one.
            width: of the search (:attr:`SuccessorConfig.width`); default: the agent's own.

        Raises:
            ValueError: w is not possible, or the batch is longer than the agent was trained for or has other features
                or actions.
        """
        given = np.asarray(w, dtype=np.float64)
        weights = np.stack([self.checked_weights(one) for one in np.atleast_2d(given)])
        self.check_horizon(batch.horizon)
        if (batch.features, batch.n_actions) != (self.model.features, self.model.n_actions):
            raise ValueError(
                f"the batch has features {batch.features} and {batch.n_actions} actions, this agent's world model "
                f"{self.model.features} and {self.model.n_actions}"
            )
        states, (several, d), n_actions = self.model.encode(batch), weights.shape, self.model.n_actions
        psi = np.zeros((several, len(batch), batch.horizon, n_actions, d), dtype=np.float32)
        time, episode = np.nonzero(batch.mask.T)
        every, own = np.repeat(states[episode, time], several, axis=0), np.tile(weights, (len(time), 1))
        found = self.planned_psi(np.repeat(time, several), every, own, width)
        psi[:, episode, time] = found.reshape(-1, several, n_actions, d).transpose(1, 0, 2, 3)
        return psi if given.ndim == 2 else psi[0]

    def q(self, batch: Batch, w: npt.ArrayLike, width: int | None = None) -> FloatArray:
        """Q(h_t, a; w) = w . psi(h_t, a; w), ``[N, T, A]``; minus infinity where an action is forbidden.

        ``width`` is that of the search, if not the agent's own.
        """
        rules = rules_of(self.model)
        allowed = None if rules is None else rules.allowed_along(batch)[:, :-1]
        return np.asarray(among_allowed(self.psi(batch, w, width) @ self.checked_weights(w), allowed))

    def policy(
        self, w: npt.ArrayLike, kappa: float | None = None, seed: int = 0, habit: Habit | None = None
    ) -> SuccessorPolicy:
        """Greedy policy for preferences w, or, with ``kappa``, P(a) = softmax(kappa Q(h, a)) drawn with ``seed``.

        W is ``[d]``, or ``[n, d]`` where n episodes are acted in at once, each for preferences of its own.
        With a ``habit``, whose logits are b, P(a) = softmax(b + kappa Q(h, a)), and the best action is the most likely.

        Raises:
            ValueError: w is not possible, kappa is negative or not finite, or a habit comes without kappa or has
                another number of actions.
        """
        given = np.asarray(w, dtype=np.float64)
        weights = np.stack([self.checked_weights(one) for one in given]) if given.ndim == 2 else self.checked_weights(w)
        return SuccessorPolicy(self, weights, kappa, np.random.default_rng(seed), habit)

    def mu(self, w: npt.ArrayLike, starts: Float32Array, searched: int | None = None) -> FloatArray:
        """Feature expectation ``[d]`` of the greedy policy for w (appendix C): mean of psi(h_0, greedy; w) over h_0.

        Where it looks less far ahead than episodes last, it acts along the expected course until it sees the end.

        With ``searched`` plans are searched from a part of the first observations only, and their mean is corrected by
        how the part differs from all of them in what the network says (a regression estimate, feature by feature).
        Patients differ more than network and search do, so that it is far less spread than the part's mean.

        Args:
            w: ``[d]`` preferences.
            starts: ``[n, D]`` first observations, raw units.
            searched: how many of them, evenly spread over the rows; default: all.
        """
        n = len(starts)
        states, weights = self.model.start(starts), np.tile(self.checked_weights(w), (n, 1))
        rows = evenly_spaced_rows(n, searched or n)
        found = self._reached(states[rows], weights[rows])
        if len(rows) == n:
            return np.asarray(found.mean(axis=0))
        psi = self.network_psi(0, states, weights)
        values = among_allowed(np.einsum("nad,nd->na", psi, weights), self.open_actions(states))
        guessed = psi[np.arange(n), values.argmax(axis=1)].astype(np.float64)
        centred = guessed[rows] - guessed[rows].mean(axis=0)
        spread = (centred**2).sum(axis=0)
        slope = np.where(spread > 0, (centred * found).sum(axis=0) / np.where(spread > 0, spread, 1.0), 0.0)
        return np.asarray(found.mean(axis=0) + slope * (guessed.mean(axis=0) - guessed[rows].mean(axis=0)))

    def _reached(self, states: Float32Array, w: FloatArray) -> FloatArray:
        """``[n, d]`` mu of the greedy policy from the states of first observations on."""
        gained, reach = np.zeros(w.shape), np.ones((len(w), 1))
        for t in range(self.horizon - self.ahead):
            values = np.einsum("nad,nd->na", self.planned_psi(t, states, w), w)
            actions = among_allowed(values, self.open_actions(states)).argmax(axis=1)
            outcome, end = foresee(self.model, states, actions)
            gained += reach * self.feature_map(outcome)
            reach *= self.gamma * (1.0 - end[:, None])
            states = self.model.advance(states, actions, outcome)
        begin = max(self.ahead - self.horizon, 0)
        return gained + reach * best_plan(self._search(self.width), begin, states, w)

    def within(self, model: OutcomeModel) -> SuccessorAgent:
        """The same network as the guide of searches in another world, whose states have the same form.

        Raises:
            ValueError: the other world's features, actions or states are others.
        """
        states = model.start(np.zeros((1, len(model.features)), dtype=np.float32)).shape[1]
        if (model.features, model.n_actions, states) != (
            self.model.features,
            self.model.n_actions,
            len(self.state_mean),
        ):
            raise ValueError("this agent was trained in a world of other features, actions or states")
        other = copy.copy(self)
        other.model = model
        return other

    def weighing(self, feature_map: FeatureMap) -> SuccessorAgent:
        """The same network as the guide of searches for as many outcomes, computed or scaled a little otherwise.

        Raises:
            ValueError: they are more or fewer, or of other observed features.
        """
        own = self.feature_map
        if (len(feature_map.features), feature_map.of) != (len(own.features), own.of):
            raise ValueError(f"this agent weighs {own.features} of {own.of}, not {feature_map.features}")
        other = copy.copy(self)
        other.feature_map = feature_map
        return other

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the agent whole, without its world model and without pickle."""
        config = {
            "kind": "successor",
            "features": self.feature_map.features,
            "observed": self.feature_map.of,
            "n_actions": self.model.n_actions,
            "gamma": self.gamma,
            "horizon": self.horizon,
            "ahead": self.ahead,
            "hidden": self.network.hidden,
            "width": self.width,
            "seldom": self.seldom,
        }
        scales = {"state_mean": self.state_mean, "state_scale": self.state_scale}
        ranges = {"low": self.feature_map.low, "high": self.feature_map.high}
        write_model_file(path, config, {**ranges, **scales, **module_arrays(self.network)})

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: OutcomeModel) -> SuccessorAgent:
        """Read what :meth:`save` wrote, to act in the world model it was trained in.

        Raises:
            ValueError: the file is not a whole agent, or the model has other features, actions or states.
        """
        config, arrays = read_model_file(path)
        with loading(path, "a whole successor-feature agent"):
            if config["kind"] != "successor":
                raise ValueError(f"the kind is {config['kind']!r}")
            features, mean, scale = names_of(config, "features"), arrays.pop("state_mean"), arrays.pop("state_scale")
            if mean.ndim != 1 or mean.shape != scale.shape or not (scale > 0).all():
                raise ValueError(f"state_mean and state_scale must be [S], scales positive, got {mean} and {scale}")
            # A file of an earlier version does not say what was observed: every feature was an outcome.
            observed = names_of(config, "observed") if "observed" in config else features
            feature_map = FeatureMap(features, arrays.pop("low"), arrays.pop("high"), observed)
            gamma, n_actions, width = config["gamma"], size_of(config, "n_actions"), size_of(config, "width")
            if not isinstance(gamma, int | float) or not 0 <= gamma <= 1:
                raise ValueError(f"gamma must be within 0..1, got {gamma!r}")
            # Agents of an earlier version look ahead to the end.
            ahead = size_of(config, "ahead" if "ahead" in config else "horizon", len(arrays))
            horizon, hidden = size_of(config, "horizon"), tuple(config["hidden"])
            seldom = tuple(range(n_actions)[action] for action in config.get("seldom", ()))
            sizes = (len(mean), len(features), n_actions, float(gamma), ahead, hidden)
            network = stored_module(lambda: StagedNetwork(*sizes), arrays)
        states = model.start(np.zeros((1, len(model.features)), dtype=np.float32)).shape[1]
        if (model.features, model.n_actions, states) != (observed, network.n_actions, len(mean)):
            raise ValueError(f"{path} was trained in another world model: its features, actions or states differ")
        return cls(model, feature_map, network, gamma, mean, scale, width, seldom).for_episodes(horizon)

    def checked_weights(self, w: npt.ArrayLike) -> FloatArray:
        """Weights scaled to L1 norm 1 (the policy does not change; the network has seen no other scale); 0 stays 0."""
        weights = np.asarray(w, dtype=np.float64)
        outcomes = self.feature_map.features
        if weights.shape != (len(outcomes),) or not np.isfinite(weights).all():
            raise ValueError(f"w must be {len(outcomes)} finite numbers, got {weights}")
        norm = np.abs(weights).sum()
        return weights / norm if norm > 0 else weights

    def check_horizon(self, horizon: int) -> None:
        """Raise ValueError where a history is longer than the agent was trained for."""
        if horizon > self.horizon:
            raise ValueError(f"this agent was trained for episodes of {self.horizon} steps, not of {horizon}")


class SuccessorPolicy(ScoringPolicy):
    """Greedy or stochastic policy for w; its memory is the world model's state ``[n, S]``, the time ``[n]`` and the
    action before ``[n]``.

    ``w`` is ``[d]``, or ``[n, d]`` where n episodes are acted in at once, each for preferences of its own. Other than
    policies that read the history themselves, it cannot act in the middle of an episode without its memory.
    A ``habit`` stands beside kappa Q (:mod:`cirl_gym.data.habits`), so that it asks for kappa.
    """

    def __init__(
        self,
        agent: SuccessorAgent,
        w: FloatArray,
        kappa: float | None,
        rng: np.random.Generator,
        habit: Habit | None = None,
    ) -> None:
        if kappa is not None:
            check_kappa(kappa)
        if habit is not None:
            if kappa is None:
                raise ValueError("a habit needs kappa: it says how much values count beside it")
            check_actions(habit, agent.model.n_actions)
        self.agent, self.w, self.kappa, self.rng, self.habit = agent, w, kappa, rng, habit

    def act(
        self, observation: Any, state: Memory | None, episode_start: npt.NDArray[Any] | None
    ) -> tuple[FloatArray, Memory]:
        """Q ``[n, A]``, or with a habit b + kappa Q, and the memory after seeing ``observation``.

        Minus infinity where an action is forbidden.

        Raises:
            ValueError: the observation has another shape, memory or the previous action is missing although
                ``episode_start`` says that an episode is under way, or an episode is longer than the agent's horizon.
        """
        model = self.agent.model
        d, n_actions = len(model.features), model.n_actions
        observation = checked_observation("SuccessorPolicy", observation, d, n_actions)
        obs, hot = observation[:, :d], observation[:, d:]
        # As in Stable-Baselines3, memory that is handed in is used unless an episode is said to start.
        begin = np.full(len(obs), state is None) if episode_start is None else np.asarray(episode_start, np.bool_)
        states = model.start(obs)
        times, previous2 = np.zeros(len(obs), dtype=np.int64), np.full(len(obs), -1)
        if state is not None:
            if not hot[~begin].any(axis=1).all():
                raise ValueError("SuccessorPolicy: an episode goes on, but no previous action is given")
            going = model.advance(np.asarray(state[0]), hot.argmax(axis=1), obs)
            states = np.where(begin[:, None], states, going)
            times = np.where(begin, 0, np.asarray(state[1]) + 1)
            previous2 = np.where(begin, -1, np.asarray(state[2]))
        elif not begin.all():
            raise ValueError("SuccessorPolicy: state is None although episode_start says that an episode is under way")
        elif episode_start is None:
            warn_of_lost_history("SuccessorPolicy", hot)
        self.agent.check_horizon(int(times.max()) + 1)
        q = np.zeros((len(obs), n_actions))
        order = np.argsort(times, kind="stable")
        w = np.broadcast_to(self.w, (len(obs), self.w.shape[-1]))[order]
        psi = self.agent.planned_psi(times[order], states[order], w)
        q[order] = np.einsum("nad,nd->na", psi, w)
        possible = self.agent.open_actions(states) if self.kappa is None else allowed_actions(model, states)
        scores = np.asarray(among_allowed(q, possible))
        previous = np.where(begin | ~hot.any(axis=1), -1, hot.argmax(axis=1))
        if self.kappa is not None and self.habit is not None:
            scores = tempered(scores, self.kappa) + self.habit.after(previous, previous2)
        return scores, (states, times, previous)

    def best_along(self, batch: Batch, width: int | None = None) -> IntArray:
        """Best action ``[N, T]`` after every history of a batch, zero on padding: without habits, for one preference.

        What :func:`cirl_gym.data.rollout.act_along` finds step by step, by one search for all steps together, of
        another ``width`` than the agent's if one is given.
        """
        q = self.agent.q(batch, self.w, width)
        possible = among_common(~np.isneginf(q), self.agent.seldom)
        return np.where(batch.mask, among_allowed(q, possible).argmax(axis=2), 0)

    def draw(self, scores: FloatArray) -> IntArray:
        """Actions ``[n]`` drawn from softmax(kappa Q), or softmax(b + kappa Q); without kappa those of largest Q."""
        if self.kappa is None:
            return super().draw(scores)
        return drawn_from_softmax(scores if self.habit is not None else tempered(scores, self.kappa), self.rng)


def tempered(q: FloatArray, kappa: float) -> FloatArray:
    """Kappa Q ``[.., A]``; a forbidden action's is minus infinity, also where kappa is 0."""
    allowed = ~np.isneginf(q)
    return np.asarray(among_allowed(kappa * np.where(allowed, q, 0.0), allowed))


def check_kappa(kappa: float) -> None:
    """Raise ValueError unless an inverse temperature is a finite number and not negative."""
    if not 0 <= kappa < np.inf:
        raise ValueError(f"kappa must be a finite number, not negative, got {kappa}")


def check_actions(habit: Habit, n_actions: int) -> None:
    """Raise ValueError where a habit is one of another number of actions."""
    if habit.logits.shape[1] != n_actions:
        raise ValueError(f"the habit is one of {habit.logits.shape[1]} actions, the agent acts with {n_actions}")
