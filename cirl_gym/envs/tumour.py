"""The options of CIRLTumour-v0, checked: who the patients are, and what differs for an episode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import check_weights, reward
from cirl_gym.data.rollout import numbered_actions
from cirl_gym.data.rules import ActionRules
from cirl_gym.envs.options import check_arguments, history_rows, limit_of, merged, patient_rows, weight_rows
from cirl_gym.envs.process import (
    AHEAD,
    CohortStep,
    Form,
    Histories,
    Layout,
    RowStreams,
    asked_of_make,
    ruled,
    rules_given,
    time_limit,
)
from cirl_gym.envs.single import CohortEnv
from cirl_gym.envs.vector import CohortVectorEnv, check_num_envs
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray
from cirl_gym.vector_api import AutoresetMode
from cirl_gym.worlds import tumour
from cirl_gym.worlds.tumour import TumourParameters, TumourState

if TYPE_CHECKING:
    from typing_extensions import Unpack


DEFAULT_WEIGHTS = (-0.3, -0.7)
"""One of the paper's three trade-offs between tumour volume and side effects (section 5.1)."""


class TumourOptions(TypedDict, total=False):
    """What the constructor takes for every episode and ``reset`` for one; :class:`~cirl_gym.envs.tumour.TumourEnv`."""

    patient: npt.ArrayLike | None
    """(x0, z0)."""
    history: Batch | tuple[npt.ArrayLike, npt.ArrayLike] | None
    """A batch of one episode, or (obs ``[k+1, 2]``, actions ``[k]``)."""
    noise: bool | npt.ArrayLike | None
    """False for none, or standard deviations (tumour, side effects)."""
    weights: npt.ArrayLike | None
    """(w1, w2), L1 norm at most 1."""


OPTIONS = (*TumourOptions.__annotations__, "horizon", "parameters")
"""What ``reset`` takes."""
FIXED = ("order", "lags", "tumour_max", "side_max", "horizon")
"""Parameters that belong to the environment, not to an episode: the state's size, the spaces, phi, the time limit."""


@dataclass(frozen=True)
class TumourStart:
    """What ``reset`` was asked for, checked, for each of n rows."""

    parameters: TumourParameters
    weights: FloatArray
    """``[n, 2]``."""
    histories: Histories | None
    """None: drawn patients."""
    limit: int
    echo: dict[str, npt.NDArray[Any]]
    """``[n, ..]`` the options that were given, as they were understood."""


def tumour_start(given: Mapping[str, Any], base: TumourParameters, limit: int | None, n: int) -> TumourStart:
    """What options ask for, for n rows.

    Args:
        given: options of the constructor and of ``reset``, merged.
        base: the environment's parameters.
        limit: the environment's time limit; None: none.
        n: number of rows.

    Raises:
        ValueError: an option is not possible; the message names it.
    """
    parameters, histories = _parameters(base, given), None
    weights = weight_rows(given.get("weights", DEFAULT_WEIGHTS), n, tumour.FEATURES)
    if "patient" in given:
        histories = patient_rows(given["patient"], n, 2)
        _check_going(base, "patient", histories)
    elif "history" in given:
        histories = history_rows(given["history"], n, 2, tumour.N_ACTIONS)
        _check_going(base, "history", histories)
    least = limit_of(given.get("horizon"), limit, histories)
    understood: dict[str, Any] = {"parameters": parameters, "noise": parameters.noise}
    echo = {name: np.array([value] * n) for name, value in understood.items() if name in given}
    per_row = {"weights": weights, "horizon": np.full(n, least, dtype=np.int64)}
    if histories is not None:
        per_row |= {"patient": histories.obs[:, 0], "history": histories.lengths}
    echo |= {"step" if name == "history" else name: rows for name, rows in per_row.items() if name in given}
    return TumourStart(parameters, weights, histories, least, echo)


def _parameters(base: TumourParameters, given: Mapping[str, Any]) -> TumourParameters:
    parameters = given.get("parameters", base)
    if not isinstance(parameters, TumourParameters):
        raise ValueError(f"option 'parameters' must be TumourParameters, got {parameters!r}")
    for name in FIXED:
        own, asked = getattr(base, name), getattr(parameters, name)
        if own != asked:
            raise ValueError(
                f"option 'parameters': {name} is {own!r} in this environment and cannot become {asked!r} for an "
                "episode; make another environment"
            )
    if "noise" in given:
        parameters = _with_noise(parameters, given["noise"])
    if (parameters.highest > base.highest).any():
        raise ValueError(
            f"option {'noise' if 'noise' in given else 'parameters'!r}: observations could reach "
            f"{parameters.highest.tolist()}, beyond this environment's observation space "
            f"{base.highest.tolist()}; make another environment with these parameters"
        )
    return parameters


def _check_going(base: TumourParameters, name: str, histories: Histories) -> None:
    """Refuse beginnings after which nothing follows."""
    limits = base.limits
    for k, (feature, least) in enumerate((("x", "("), ("z", "["))):
        values = histories.obs[..., k][histories.seen]
        inside = ((values > 0) if least == "(" else (values >= 0)) & (values < limits[k])
        if not inside.all():
            raise ValueError(
                f"option {name!r}: {feature} must lie inside {least}0, {limits[k]:g}), got {values[~inside][0]:g}"
            )


def _with_noise(parameters: TumourParameters, noise: Any) -> TumourParameters:
    if isinstance(noise, bool | np.bool_):
        return parameters if noise else replace(parameters, tumour_noise=0.0, side_noise=0.0)
    try:
        tumour, side = (float(sd) for sd in np.broadcast_to(np.asarray(noise, dtype=np.float64), (2,)))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"option 'noise' must be True, False, or standard deviations (tumour, side effects), got {noise!r}"
        ) from error
    if not (0 <= tumour < np.inf and 0 <= side < np.inf):
        raise ValueError(f"option 'noise' must be finite and not negative, got {noise!r}")
    return replace(parameters, tumour_noise=tumour, side_noise=side)


# MERGED: n patients in the simulator: the core of both forms of CIRLTumour-v0 (paper, section 5.1).

ACTION_NAMES = ("wait", "treat")


@dataclass(frozen=True)
class RowConstants:
    """The :class:`~cirl_gym.worlds.tumour.Constants` of each patient, where they are not the same for all."""

    order: int
    lags: Literal["repeat", "available"]
    effect: FloatArray
    drift: FloatArray
    noise: FloatArray
    highest: FloatArray

    @classmethod
    def of(cls, parameters: TumourParameters, n: int) -> RowConstants:
        """The same for n patients: arrays ``[n, 2]``."""
        rows = {name: np.tile(getattr(parameters, name), (n, 1)) for name in _ROWS}
        return cls(parameters.order, parameters.lags, **rows)

    def put(self, rows: IntArray, parameters: TumourParameters) -> None:
        """Give ``rows [k]`` other constants."""
        for name in _ROWS:
            getattr(self, name)[rows] = getattr(parameters, name)


_ROWS = ("effect", "drift", "noise", "highest")


class TumourCohort:
    """n patients as a :class:`~cirl_gym.envs.process.Cohort`.

    Every beginning and every step takes two standard normal numbers of a row's stream; a beginning also where the
    patient is given, so that a seed's noise is the same with any patient.

    Args:
        n: how many.
        parameters: every constant of the simulator.
        layout: how patients are shown.
        limit: the time limit; None: none.
        defaults: options of ``reset`` that hold where it is given no others.

    Raises:
        ValueError: an option is not possible.
    """

    def __init__(
        self, n: int, parameters: TumourParameters, layout: Layout, limit: int | None, defaults: Mapping[str, Any]
    ) -> None:
        self.parameters = parameters
        self.layout = layout
        self.action_names = ACTION_NAMES
        self.feature_map = parameters.feature_map
        self._n, self._limit, self._defaults = n, limit, dict(defaults)
        self._default = self._start({})
        self._state = tumour.initial_state(parameters, np.zeros((n, 2)))
        self._obs: Float32Array = np.zeros((n, 2), dtype=np.float32, order="F")
        self._constants: TumourParameters | RowConstants = parameters
        self._weights: FloatArray = check_weights(self._default.weights[0], tumour.FEATURES)
        self._base_weights = self._weights
        self.previous: IntArray = np.full(n, -1, dtype=np.int64)
        self.steps: IntArray = np.zeros(n, dtype=np.int64)
        self.limits: IntArray = np.full(n, self._default.limit, dtype=np.int64)
        self._varied = self._default.parameters is not parameters
        self._streams = RowStreams(n, 2, "normal", AHEAD if n > 1 else 1)

    @property
    def weights(self) -> FloatArray:
        """``[2]`` reward weights where ``reset`` asks for no others (read-only)."""
        return self._base_weights

    @property
    def obs(self) -> Float32Array:
        """``[n, 2]`` the current (x, z), raw units."""
        return self._obs.copy()

    @property
    def limit_lines(self) -> FloatArray:
        """``[2]`` (x_max, z_max)."""
        return self.parameters.limits

    def read(self, options: Mapping[str, Any]) -> TumourStart:
        """See :meth:`~cirl_gym.envs.process.Cohort.read`."""
        return self._start(options) if options else self._default

    def _start(self, options: Mapping[str, Any]) -> TumourStart:
        return tumour_start(merged(self._defaults, options, OPTIONS), self.parameters, self._limit, self._n)

    def use(self, rows: Iterable[int], generators: Iterable[np.random.Generator]) -> None:
        """See :meth:`~cirl_gym.envs.process.Cohort.use`."""
        self._streams.use(rows, generators)

    def begin(self, rows: IntArray, chosen: TumourStart | None = None) -> dict[str, npt.NDArray[Any]]:
        """See :meth:`~cirl_gym.envs.process.Cohort.begin`."""
        chosen = chosen or self._default
        drawn = tumour.first_observations(chosen.parameters, self._streams.take(rows))
        # The arrays are this object's own: every step makes new ones.
        tumour.restart(self._state, rows, drawn)
        self._obs[rows] = drawn
        self.previous[rows], self.steps[rows] = -1, 0
        if chosen.histories is not None:
            self._go_on(rows, chosen.histories.take(rows))
        # What is the same for everybody is kept once, until somebody asks for something else.
        self._varied = self._varied or chosen is not self._default
        if self._varied:
            self._set_rows(rows, chosen)
        return {name: values[rows] for name, values in chosen.echo.items()}

    def step(self, actions: IntArray, going: BoolArray) -> CohortStep:
        """See :meth:`~cirl_gym.envs.process.Cohort.step`."""
        noise = np.multiply(self._constants.noise, self._streams.take_all(going), order="F")
        self._state = tumour.transition(self._constants, self._state, actions, noise)
        self.previous = actions.copy()
        self.steps += going
        self._obs = self._state.course[:, 0].astype(np.float32)
        phi = self.feature_map(self._obs)
        terminated = tumour.terminal(self.parameters, self._state)
        truncated = (self.steps >= self.limits) & ~terminated
        return CohortStep(phi, reward(phi, self._weights), terminated, truncated, {})

    def _go_on(self, rows: IntArray, histories: Histories) -> None:
        """Put rows where given histories end."""
        state = tumour.initial_state(self.parameters, histories.obs[:, 0])
        for t in range(histories.actions.shape[1]):
            after = tumour.append(state, histories.actions[:, t], histories.obs[:, t + 1])
            going = t < histories.lengths
            for mine, new in zip(_arrays(state), _arrays(after), strict=True):
                mine[going] = new[going]
        for mine, new in zip(_arrays(self._state), _arrays(state), strict=True):
            mine[rows] = new
        self._obs[rows] = state.course[:, 0]
        self.previous[rows], self.steps[rows] = histories.previous, histories.lengths

    def _set_rows(self, rows: IntArray, chosen: TumourStart) -> None:
        """Constants, weights and limits of rows."""
        if isinstance(self._constants, TumourParameters):
            self._constants = RowConstants.of(self.parameters, self._n)
            self._weights = np.tile(self._weights, (self._n, 1))
        self._constants.put(rows, chosen.parameters)
        self._weights[rows], self.limits[rows] = chosen.weights[rows], chosen.limit


def tumour_cohort(
    n: int,
    parameters: TumourParameters | None,
    form: Form,
    max_episode_steps: int | None,
    options: TumourOptions,
) -> TumourCohort:
    """The cohort of either form of the environment, from the arguments of its constructor.

    Raises:
        TypeError: an option is unknown.
        ValueError: an option is not possible, or ``parameters.horizon`` and ``max_episode_steps`` contradict.
    """
    check_arguments(options, TumourOptions.__annotations__)
    parameters = parameters or TumourParameters()
    own = parameters.horizon
    stated = None if own == TumourParameters.horizon else f"TumourParameters.horizon={own}"
    high = parameters.highest.astype(np.float32)
    layout = Layout(np.zeros_like(high), high, tumour.N_ACTIONS, form)
    return TumourCohort(n, parameters, layout, time_limit(own, stated, max_episode_steps), options)


def tumour_rules(forbid: Sequence[str]) -> ActionRules | None:
    """The rules of either form of the environment, from the argument of its constructor.

    They call actions "0" and "1", as batches of the simulator do: a rule is the same text wherever it is given.

    Raises:
        ValueError: see :func:`~cirl_gym.envs.process.rules_given`.
    """
    return rules_given(forbid, tumour.FEATURES, numbered_actions(tumour.N_ACTIONS))


def _arrays(state: TumourState) -> tuple[npt.NDArray[Any], ...]:
    return state.course, state.doses, state.seen


# MERGED: ``CIRLTumour-v0`` for one patient (paper, section 5.1).


class TumourEnv(CohortEnv):
    """A patient with a growing tumour, to be treated or left alone (``CIRLTumour-v0``).

    ## Description

    A patient with a tumour of volume x is treated or not at every step. Treatment shrinks the tumour over the next p
    steps and raises side effects z; both have memory (order p = 5) and the previous treatments are part of the state,
    so what is observed at one step does not tell what will follow: the process is partially observed.

        x_t = mean(x_{t-1..t-p}) - 2.5 * sum(a_{t-1..t-p}) + 0.5 p + eps        eps ~ N(0, 0.1^2)
        z_t = mean(z_{t-1..t-p}) + 1.0 * sum(a_{t-1..t-p}) - 0.5 p + eta        eta ~ N(0, 0.1^2)

    **The z line is a correction of the printed equation**, which reads ``+ 0.5 sum(a) - p``: with p = 5 that falls by
    at least 2.5 whatever is done, so treatment could never raise side effects. Exchanging the two printed coefficients
    restores what the text says. ``TumourParameters.as_printed()`` gives the printed line. x and z are clipped at 0 from
    below; lags before t = 0 repeat x_0, z_0 without treatment.

    ## Action Space

    ``Discrete(2)``: 0 leaves the patient alone, 1 treats. With ``forbid`` not both are always allowed: then
    ``action_masks()`` (as sb3-contrib asks for it) and ``info["action_mask"]`` (as Gymnasium's
    ``action_space.sample(mask)`` takes it) tell which are, and ``step`` refuses the others with a ValueError.

    ## Observation Space

    A float32 ``Box`` of shape (4,), raw units:

    | Num | Observation                              | Min | Max  |
    |-----|------------------------------------------|-----|------|
    | 0   | tumour volume x                          | 0   | 53.5 |
    | 1   | side effects z                           | 0   | 18.5 |
    | 2   | 1 if the previous action was 0           | 0   | 1    |
    | 3   | 1 if the previous action was 1           | 0   | 1    |

    2 and 3 are both 0 at t = 0. The limits lie beyond x_max and z_max (one step and ten standard deviations of noise),
    so that the state that ended an episode is shown as it is. ``previous_action=False`` leaves [x, z];
    ``observation="dict"`` gives the same numbers as ``obs`` and ``previous_action``.

    ## Rewards

    ``w1 * x_{t+1} / x_max + w2 * z_{t+1} / z_max`` (paper, equation 23), computed from the observed float32 values.
    ``info["phi"]`` holds the two scaled outcomes before weighting, float64.

    ## Starting State

    x_0 ~ N(30, 5) and z_0 ~ N(2, 1) (standard deviations), redrawn until inside (0, x_max) and (0, z_max); or the
    options ``patient`` or ``history``. All random numbers come from ``self.np_random``; a seed's noise is the same with
    any patient.

    ## Episode End

    *Terminated* when x = 0 (cured), x >= x_max = 50, or z >= z_max = 15. *Truncated* after 20 actions, those of a given
    history counted, unless terminated. ``gymnasium.make(id, max_episode_steps=50)`` changes the limit, ``-1`` removes
    it. As with every environment that Gymnasium makes, its wrapper also reports an episode that ends by itself at the
    last step as truncated.

    ## Options

    Of ``gymnasium.make`` and the constructor for every episode, of ``reset(options={...})`` for one; ``reset``'s
    ``info`` names those that were given.

    - ``patient``: (x0, z0), x0 inside (0, x_max), z0 inside [0, z_max).
    - ``history``: what happened before the first action: a pair (obs ``[k+1, 2]``, actions ``[k]``), or a batch of one
      episode. ``info["step"]`` is then k.
    - ``noise``: False for none, or standard deviations (tumour, side effects); not more than those of ``parameters``.
    - ``weights``: (w1, w2), finite, with an L1 norm of at most 1 (default (-0.3, -0.7)).
    - ``horizon`` (``reset`` only): fewer actions than the time limit.
    - ``parameters``: every constant of the simulator (default: the paper's, z line corrected). ``reset`` refuses those
      with another order, limit or time limit, and those that could leave the observation space.

    ## Further Arguments

    - ``observation``: ``"flat"`` (default) or ``"dict"``.
    - ``previous_action``: show the previous action (default True).
    - ``render_mode``: ``"ansi"`` (the current step as a line), ``"rgb_array"`` (the episode so far as a picture) or
      ``"human"`` (the same in a window).
    - ``forbid``: rules of actions "0" and "1" (:mod:`cirl_gym.data.rules`), such as
      ``["1 when Above(side_effects, 5)"]``. Default: none; there is then no ``action_masks``.
    - ``max_episode_steps``: the time limit where Gymnasium does not make the environment (default:
      ``parameters.horizon``).

    ## Version History

    - v0: first version.
    """

    def __init__(
        self,
        parameters: TumourParameters | None = None,
        *,
        observation: Literal["flat", "dict"] = "flat",
        previous_action: bool = True,
        forbid: Sequence[str] = (),
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        **options: Unpack[TumourOptions],
    ) -> None:
        form = Form(observation, previous_action)
        cohort = tumour_cohort(1, parameters, form, max_episode_steps, options)
        self.parameters, self.rules = cohort.parameters, tumour_rules(forbid)
        super().__init__(ruled(cohort, self.rules), render_mode)


def make_tumour_env(**arguments: Any) -> TumourEnv:
    """Entry point of ``gymnasium.make``: a :class:`TumourEnv` whose time limit is the one that Gymnasium was asked for.

    Raises:
        ValueError: ``parameters.horizon`` is not that limit.
    """
    return TumourEnv(**arguments, max_episode_steps=asked_of_make())


# Gymnasium reads the render modes from the entry point before it calls it.
make_tumour_env.metadata = TumourEnv.metadata  # type: ignore[attr-defined]


# MERGED: ``CIRLTumour-v0`` for many patients at once: a native Gymnasium vector environment.


class TumourVectorEnv(CohortVectorEnv):
    """n :class:`~cirl_gym.envs.tumour.TumourEnv` stepped together; everything else is described there.

    An episode that ends by itself at the time limit is terminated and not truncated.

    Args:
        num_envs: n.
        max_episode_steps: the time limit; -1 for none. Default: ``parameters.horizon``.
        parameters: every constant of the simulator.
        observation: ``"flat"`` or ``"dict"``.
        previous_action: show the previous action.
        forbid: rules; there is then ``action_masks()`` ``[n, A]``.
        autoreset_mode: see :class:`~cirl_gym.envs.vector.CohortVectorEnv`.
        **options: of :class:`~cirl_gym.envs.tumour.TumourEnv`; ``patient`` and ``weights`` also as ``[n, 2]``,
            ``history`` also as a batch of n episodes.

    Raises:
        ValueError: an argument is not possible, or ``parameters.horizon`` and ``max_episode_steps`` contradict each
            other.
    """

    def __init__(
        self,
        num_envs: int = 1,
        max_episode_steps: int | None = None,
        *,
        parameters: TumourParameters | None = None,
        observation: Literal["flat", "dict"] = "flat",
        previous_action: bool = True,
        forbid: Sequence[str] = (),
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        **options: Unpack[TumourOptions],
    ) -> None:
        check_num_envs(num_envs)
        form = Form(observation, previous_action)
        cohort = tumour_cohort(num_envs, parameters, form, max_episode_steps, options)
        self.parameters, self.rules = cohort.parameters, tumour_rules(forbid)
        super().__init__(ruled(cohort, self.rules), num_envs, autoreset_mode)
