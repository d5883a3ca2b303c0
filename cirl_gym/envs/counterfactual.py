"""``CIRLCounterfactual-v0``: what would happen to a batch's patients, by any outcome model (paper, appendix C)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.known import known_in, known_names, with_known
from cirl_gym.data.outcome_model import OutcomeModel, follow
from cirl_gym.data.rules import ActionRules
from cirl_gym.envs.forms import CohortEnv, CohortVectorEnv, entry_point
from cirl_gym.envs.options import (
    Start,
    check_arguments,
    episode_rows,
    history_rows,
    limit_of,
    patient_rows,
    rules_given,
    time_limit,
    weight_rows,
)
from cirl_gym.envs.process import Cohort, Layout
from cirl_gym.files import loading, read_json
from cirl_gym.outcome_models.masked import MaskedModel, with_rules
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray, Step
from cirl_gym.vector_api import AutoresetMode
from cirl_gym.wrappers.learned_reward import load_reward

if TYPE_CHECKING:
    from typing_extensions import Unpack

EndRule: TypeAlias = Callable[[Float32Array], BoolArray]
"""From observations ``[n, d]``, raw units, to ``[n]`` bool: the process ended."""


@dataclass(frozen=True)
class Source:
    """What a counterfactual process is made of.

    Raises:
        ValueError: model, batch and feature map are not of the same features and actions, or the end is unknown.
    """

    model: OutcomeModel
    batch: Batch
    feature_map: FeatureMap
    """Which of the batch's features are weighed, and how they are scaled."""
    weights: FloatArray
    """``[d]`` of the reward, one per outcome, where nobody asks for others."""
    end: Literal["learned", "never"] | EndRule = "learned"
    rules: ActionRules | None = None
    """Which actions are forbidden when; None: never one."""

    def __post_init__(self) -> None:
        for name, features in (("model", self.model.features), ("feature_map", self.feature_map.of)):
            if tuple(features) != self.batch.features:
                raise ValueError(
                    f"the features of {name} are {tuple(features)}, those of the batch {self.batch.features}"
                )
        if self.model.n_actions != self.batch.n_actions:
            raise ValueError(f"model knows {self.model.n_actions} actions, the batch {self.batch.n_actions}")
        if not callable(self.end) and self.end not in ("learned", "never"):
            raise ValueError(f"end must be 'learned', 'never' or a function, got {self.end!r}")

    @cached_property
    def observed_range(self) -> tuple[Float32Array, Float32Array]:
        """``[D]`` least and most of each feature in the batch, padding left out."""
        rows = self.batch.obs[self.batch.seen]
        return rows.min(axis=0), rows.max(axis=0)


PACKAGED = Path(__file__).parents[1] / "packaged"
"""A run on simulated patients (examples/make_packaged_run.py)."""


def _source(
    model: OutcomeModel | None,
    batch: Batch | None,
    run: str | os.PathLike[str] | None,
    feature_map: FeatureMap | None,
    end: Literal["learned", "never"] | EndRule,
    forbid: Sequence[str] | None,
) -> Source:
    """Model and batch, or a run's, or the packaged ones where nothing is given; rules are asked for, or theirs."""
    if model is None and batch is None:
        folder = Path(PACKAGED if run is None else run)
        # Read with PyTorch, which an environment of one's own model may do without.
        from cirl_gym.outcome_models.store import load_model

        learned = load_reward(folder)
        batch = Batch.load(folder / "batch.npz")
        phi = feature_map or learned.among(batch.features).feature_map
        if forbid is None:
            path = folder / "result.json"
            with loading(path, "a result with settings of its fit"):
                forbid = read_json(path)["config"].get("fit", {}).get("forbid", [])
                if not isinstance(forbid, list) or not all(isinstance(text, str) for text in forbid):
                    raise ValueError(f"{path}: fit.forbid must be a list of rules, got {forbid!r}")
        learnt, batch = _knowing(load_model(folder / "outcome_model.npz"), batch, phi)
        rules = rules_given(forbid, batch.features, batch.action_names)
        weights = learned.weights if phi.features == learned.features else np.zeros(len(phi.features))
        return Source(learnt, batch, phi, weights, end, rules)
    if run is not None:
        raise ValueError("CIRLCounterfactual-v0: give either run, or model and batch")
    if model is None or batch is None:
        missing = "model" if model is None else "batch"
        raise ValueError(f"CIRLCounterfactual-v0: model and batch belong together, {missing} is missing")
    phi = feature_map or FeatureMap.from_batch(batch)
    # Rules are the environment's: it asks the model within them.
    plain, own = (model.model, model.rules) if isinstance(model, MaskedModel) else (model, None)
    plain, batch = _knowing(plain, batch, phi)
    if forbid is not None:
        rules = rules_given(forbid, batch.features, batch.action_names)
    else:
        rules = None if own is None else replace(own, features=batch.features)
    return Source(plain, batch, phi, np.zeros(len(phi.features)), end, rules)


def _knowing(model: OutcomeModel, batch: Batch, phi: FeatureMap) -> tuple[OutcomeModel, Batch]:
    """Model and batch with what is known exactly (:mod:`cirl_gym.data.known`), where phi or the batch speak of it."""
    batch = with_known(batch, known_names(phi.of, batch.features))
    # What is known comes with PyTorch, which a model of one's own may do without.
    if any(name not in model.features for name in (one.name for one in known_in(batch).values())):
        from cirl_gym.outcome_models.known import knowing

        model = knowing(model, batch.features, batch.action_names)
    return model, batch


class CounterfactualOptions(TypedDict, total=False):
    """What the constructor takes for every episode and ``reset`` for one; described at
    :class:`CounterfactualEnv`."""

    episode: int | str | None
    """Position or id of an episode of the batch."""
    step: int | None
    """With ``episode``: how many of its actions belong to the beginning."""
    patient: npt.ArrayLike | None
    """A first observation ``[D]``."""
    history: Batch | tuple[npt.ArrayLike, npt.ArrayLike] | None
    """A batch of one episode, or (obs ``[k+1, D]``, actions ``[k]``)."""
    outcome: Literal["expected", "sampled"] | None
    """What is observed."""
    weights: npt.ArrayLike | None
    """``[d]``, one per outcome, L1 norm at most 1."""


class CounterfactualArguments(CounterfactualOptions, total=False):
    """What both forms take beside model and batch."""

    run: str | os.PathLike[str] | None
    feature_map: FeatureMap | None
    end: Literal["learned", "never"] | EndRule
    horizon: int | None
    observation: Literal["flat", "dict"]
    previous_action: bool
    forbid: Sequence[str] | None


@dataclass(frozen=True)
class CounterfactualStart(Start):
    """What ``reset`` was asked for, checked, for each of n histories."""

    sampled: bool
    """Whether noise is added to what is observed."""


ROWS = 32
"""A model is asked for a multiple of so many rows: the last few of others are added up in another order by matrix
products, and a row's numbers would not be the same to the last bit alone and among others. With 16, networks on some
processors still took another routine of matrix products than with many."""


class CounterfactualCohort(Cohort[CounterfactualStart]):
    """n histories that go on as an outcome model predicts: h' = (h, a, phi(h, a)).

    Every beginning and every step takes 1 + D uniform numbers of a row's stream: which episode begins, or whether the
    process ends; and the noise of the outcome, used or not, so that an option changes nothing but what it names.

    Arguments are described at :class:`CounterfactualEnv`; ``options`` are what ``reset`` begins with where it is given
    no others.

    Raises:
        TypeError: an option is unknown.
        ValueError: an argument is not possible, or ``horizon`` and ``max_episode_steps`` contradict each other.
        FileNotFoundError: the run lacks a file.
    """

    def __init__(
        self,
        n: int,
        model: OutcomeModel | None = None,
        batch: Batch | None = None,
        *,
        run: str | os.PathLike[str] | None = None,
        feature_map: FeatureMap | None = None,
        end: Literal["learned", "never"] | EndRule = "learned",
        forbid: Sequence[str] | None = None,
        horizon: int | None = None,
        observation: Literal["flat", "dict"] = "flat",
        previous_action: bool = True,
        max_episode_steps: int | None = None,
        **options: Unpack[CounterfactualOptions],
    ) -> None:
        check_arguments(options, CounterfactualOptions.__annotations__)
        self.source = source = _source(model, batch, run, feature_map, end, forbid)
        if horizon is not None and horizon < 1:
            raise ValueError(f"horizon must be at least 1, got {horizon}")
        own = source.batch.horizon if horizon is None else horizon
        self._limit = time_limit(own, None if horizon is None else f"horizon={horizon}", max_episode_steps)
        self._low, self._high = least, most = source.observed_range
        low = np.minimum(source.model.bounds[0].astype(np.float32), least)
        high = np.maximum(source.model.bounds[1].astype(np.float32), most)
        # One float32 step wider: a model may round its float64 bounds either way.
        low, high = np.nextafter(low, np.float32(-np.inf)), np.nextafter(high, np.float32(np.inf))
        super().__init__(
            n,
            Layout(low, high, source.model.n_actions, observation, previous_action),
            source.feature_map,
            source.batch.action_names,
            source.rules,
            (*CounterfactualOptions.__annotations__, "horizon"),
            options,
            (1 + len(source.batch.features), "uniform"),
        )
        self.obs = np.tile(source.batch.obs[:1, 0], (n, 1))
        self.state: Float32Array = _padded(source.model.start, self.obs)
        self._sampled: BoolArray = np.zeros(n, dtype=np.bool_)

    def start(self, given: dict[str, Any]) -> CounterfactualStart:
        """See :meth:`~cirl_gym.envs.process.Cohort.start`."""
        n, source, batch, histories = self.n, self.source, self.source.batch, None
        d = len(batch.features)
        weights = weight_rows(given.get("weights", source.weights), n, source.feature_map.features)
        outcome = given.get("outcome", "expected")
        if outcome not in ("expected", "sampled"):
            raise ValueError(f"option 'outcome' must be 'expected' or 'sampled', got {outcome!r}")
        if "step" in given and "episode" not in given:
            raise ValueError("option 'step' needs the option 'episode'")
        echo: dict[str, npt.NDArray[Any]] = {}
        if "episode" in given:
            histories, echo["episode"] = episode_rows(batch, given["episode"], given.get("step", 0), n)
            echo["step"] = histories.lengths
        elif "patient" in given:
            histories = patient_rows(given["patient"], n, d)
            echo["patient"] = histories.obs[:, 0]
        elif "history" in given:
            histories = history_rows(given["history"], n, d, batch.n_actions)
            echo["step"] = histories.lengths
        if histories is not None:
            low, high, obs = self.layout.low, self.layout.high, histories.obs.astype(np.float32)
            # Written as "not inside", here and below, so that a NaN is caught too.
            wrong = np.argwhere(~((obs >= low) & (obs <= high)) & histories.seen[..., None])
            if len(wrong):
                row, t, k = wrong[0]
                raise ValueError(
                    f"{batch.features[k]!r} is {obs[row, t, k]:g} at step {t} of the given beginning, outside "
                    f"what model and batch know: {low[k]:g} to {high[k]:g}"
                )
        least = limit_of(given.get("horizon"), self._limit, histories)
        per_row = {
            "weights": weights,
            "outcome": np.array([outcome] * n, dtype=object),
            "horizon": np.full(n, least, dtype=np.int64),
        }
        echo |= {name: rows for name, rows in per_row.items() if name in given}
        return CounterfactualStart(weights, histories, least, echo, outcome == "sampled")

    def put(self, rows: IntArray, start: CounterfactualStart, numbers: FloatArray) -> dict[str, npt.NDArray[Any]]:
        """See :meth:`~cirl_gym.envs.process.Cohort.put`."""
        batch = self.source.batch
        self._sampled[rows] = start.sampled
        if start.histories is not None:
            histories = start.histories.take(rows)
            obs, model = histories.obs.astype(np.float32), self.source.model
            states = _padded(model.start, obs[:, 0])
            for t in range(histories.actions.shape[1]):
                further = _padded(model.advance, states, histories.actions[:, t], obs[:, t + 1])
                states = np.where((t < histories.lengths)[:, None], further, states)
            self.obs[rows], self.state[rows] = obs[np.arange(len(rows)), histories.lengths], states
            return {}
        drawn = (numbers[:, 0] * len(batch)).astype(np.int64)
        self.obs[rows], self.state[rows] = batch.obs[drawn, 0], _padded(self.source.model.start, batch.obs[drawn, 0])
        ids = np.array([batch.ids[i] for i in drawn], dtype=object)
        return {"episode": ids, "step": np.zeros(len(rows), dtype=np.int64)}

    def follow(self, actions: IntArray, numbers: FloatArray, going: BoolArray) -> Step:
        """See :meth:`~cirl_gym.envs.process.Cohort.follow`."""
        noise = None
        if self._sampled.any():
            # The smallest uniform number is 0, the noise of which would be infinite.
            noise = np.where(self._sampled[:, None], ndtri(np.maximum(numbers[:, 1:], 2.0**-54)), 0.0)
        every = follow(
            self.source.model,
            _whole(self.state),
            _whole(actions),
            _whole(numbers[:, 0]),
            None if noise is None else _whole(noise),
        )
        n = self.n
        obs, ended = every.obs[:n], every.terminated[:n]
        wrong = np.argwhere(~((obs >= self.layout.low) & (obs <= self.layout.high)) & going[:, None])
        if len(wrong):
            row, k = wrong[0]
            raise ValueError(
                f"the outcome model predicts {obs[row, k]} for {self.source.batch.features[k]!r}, "
                "outside the bounds that it states"
            )
        end = self.source.end
        if callable(end):
            ended = np.asarray(end(obs.copy()))
            if ended.shape != (n,) or ended.dtype != np.bool_:
                raise ValueError(
                    f"end must return {n} bools for observations {obs.shape}, got {ended.dtype} {ended.shape}"
                )
        elif end == "never":
            ended = np.zeros(n, dtype=np.bool_)
        return Step(every.state[:n], obs, every.outcomes[:n], ended)

    def told(self, rows: IntArray | slice) -> dict[str, npt.NDArray[Any]]:
        """``outside_support``: a feature leaves the range that the batch shows, so the model is extrapolating."""
        obs = self.obs[rows]
        return {"outside_support": np.any((obs < self._low) | (obs > self._high), axis=1)}


def _padded(ask: Callable[..., Float32Array], *arrays: npt.NDArray[Any]) -> Float32Array:
    """What a model says of rows, asked for a multiple of :data:`ROWS`."""
    n = len(arrays[0])
    return ask(*(_whole(array) for array in arrays))[:n]


def _whole(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array with its first row repeated until the number of rows is a multiple of :data:`ROWS`."""
    missing = -len(array) % ROWS
    return np.concatenate([array, np.repeat(array[:1], missing, axis=0)]) if missing else array


class CounterfactualEnv(CohortEnv):
    """A batch of histories that go on as an outcome model predicts (``CIRLCounterfactual-v0``).

    ## Description

    A partially observed process made of a batch of episodes and an outcome model, and of nothing else: a history of the
    batch goes on as the model predicts, h' = (h, a, phi(h, a)). It never reaches the process that made the batch, so
    learning in it is offline. Without arguments the batch is one of the simulator's, packaged with a model that was
    fitted to it (examples/make_packaged_run.py).

    ## Action Space

    ``Discrete(A)``, the actions of the batch. Where rules hold (``forbid``) not all are always allowed: then
    ``action_masks()`` (as sb3-contrib asks for it) and ``info["action_mask"]`` (as Gymnasium's
    ``action_space.sample(mask)`` takes it) tell which are, and ``step`` refuses the others with a ValueError.

    ## Observation Space

    A float32 ``Box`` of shape (D + A,): the features in raw units, then the one-hot previous action.

    ========  =========================  ========================  =======================
    Num       Observation                Min                       Max
    ========  =========================  ========================  =======================
    0..D-1    feature                    least of model and batch  most of model and batch
    D..D+A-1  1 for the previous action  0                         1
    ========  =========================  ========================  =======================

    The last A are all 0 where no action came before. The limits are those of ``model.bounds`` and of the batch's own
    observations, one float32 step wider. ``info["outside_support"]`` is True where a feature leaves the range that the
    batch shows: there the model is extrapolating.

    ## Rewards

    ``w . phi(h, a)`` with phi the model's expected outcome, scaled by the feature map (paper, equation 1); also when
    the observation is sampled. ``info["phi"]`` holds phi(h, a), float64 ``[d]``, of the d features that the map weighs
    (all D, unless it or the run says otherwise). The weights of a run are those that it found. With ``model`` and
    ``batch``, or a ``feature_map`` of other outcomes than the run's, and without ``weights`` the reward is 0: what it
    is, is then the question.

    ## Starting State

    The first observation of an episode drawn at random, or what the options below say. ``info`` names the ``episode``
    (its id) and the ``step`` at which it begins.

    ## Episode End

    *Terminated* as ``end`` says. *Truncated* when the history, counted from its episode's own beginning, has as many
    actions as the time limit, unless it is terminated. The limit is ``horizon``, or
    ``gymnasium.make(..., max_episode_steps=50)``; -1 removes it.

    ## Options

    Of ``gymnasium.make`` and the constructor for every episode, of ``reset(options={...})`` for one; ``reset``'s
    ``info`` names those that were given.

    - ``episode`` and ``step``: begin at h_t of an episode of the batch, given by its position or, as text, its id; the
      step is 0 if left out.
    - ``patient``: begin with this first observation ``[D]``.
    - ``history``: begin after these observations and actions: a pair (obs ``[k+1, D]``, actions ``[k]``), or a batch of
      one episode.
    - ``outcome``: observe the ``"expected"`` outcome (default), or a ``"sampled"`` one: the expected one with noise of
      ``model.noise_scale``.
    - ``weights``: ``[d]`` finite, with an L1 norm of at most 1.
    - ``horizon`` (in ``reset``): fewer actions than the time limit.

    ## Further Arguments

    - ``run``: a folder that ``cirl demo`` or ``cirl explain`` has written; or
    - ``model`` and ``batch``: an :class:`~cirl_gym.data.outcome_model.OutcomeModel`, and where episodes begin and
      which observations count as seen.
    - ``feature_map``: says which features are outcomes and scales them to phi (default: the run's, or the batch's
      ranges of all features). Where ``Given(action)`` or ``Switched()`` are among its observed features ``of``, they
      are added to those of the batch and foreseen exactly (:mod:`cirl_gym.data.known`).
    - ``end``: ``"learned"`` (default) draws from ``model.end_probability``; ``"never"``; or a rule, a function from
      observations ``[n, D]`` in raw units to ``[n]`` bool.
    - ``horizon``: the time limit in actions (default: the batch's longest episode).
    - ``observation``: ``"flat"`` (default) or ``"dict"``.
    - ``previous_action``: show the previous action (default True).
    - ``forbid``: rules of the batch's actions (:mod:`cirl_gym.data.rules`), such as
      ``["1 when Above(side_effects, 5)"]`` (default: those of the run, or of a model with rules;
      ``[]``: none, and then there is no ``action_masks``).
    - ``render_mode``: ``"ansi"``, ``"rgb_array"`` or ``"human"``.

    ## Version History

    - v0: first version.
    """

    def __init__(
        self,
        model: OutcomeModel | None = None,
        batch: Batch | None = None,
        *,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        **arguments: Unpack[CounterfactualArguments],
    ) -> None:
        cohort = CounterfactualCohort(1, model, batch, max_episode_steps=max_episode_steps, **arguments)
        self.model, self.batch = with_rules(cohort.source.model, cohort.rules), cohort.source.batch
        super().__init__(cohort, render_mode)


make_counterfactual_env: Callable[..., CounterfactualEnv] = entry_point(CounterfactualEnv)


class CounterfactualVectorEnv(CohortVectorEnv):
    """n :class:`CounterfactualEnv` stepped together, the outcome model asked once a step for all of them.

    All arguments are described there, and ``autoreset_mode`` at :class:`~cirl_gym.envs.forms.CohortVectorEnv`. With n
    rows ``episode`` and ``step`` may also be ``[n]``, ``patient`` ``[n, D]``, ``weights`` ``[n, d]``, and ``history`` a
    batch of n episodes.

    Raises:
        ValueError: an argument is not possible, or ``horizon`` and ``max_episode_steps`` contradict each other.
    """

    def __init__(
        self,
        num_envs: int = 1,
        max_episode_steps: int | None = None,
        *,
        model: OutcomeModel | None = None,
        batch: Batch | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        **arguments: Unpack[CounterfactualArguments],
    ) -> None:
        cohort = CounterfactualCohort(num_envs, model, batch, max_episode_steps=max_episode_steps, **arguments)
        self.model, self.batch = with_rules(cohort.source.model, cohort.rules), cohort.source.batch
        super().__init__(cohort, autoreset_mode)
