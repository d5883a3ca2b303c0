"""``CIRLTumour-v0``: patients in the simulator (paper, section 5.1), one or many at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.known import known_along, known_values
from cirl_gym.data.outcomes import KnownOutcome, Switched, read_outcome
from cirl_gym.data.rollout import numbered_actions
from cirl_gym.envs.forms import CohortEnv, CohortVectorEnv, entry_point
from cirl_gym.envs.options import (
    GivenHistories,
    Start,
    check_arguments,
    history_rows,
    limit_of,
    patient_rows,
    rules_given,
    time_limit,
    weight_rows,
)
from cirl_gym.envs.process import Cohort, Layout
from cirl_gym.types import BoolArray, FloatArray, IntArray, Step
from cirl_gym.vector_api import AutoresetMode
from cirl_gym.worlds import tumour
from cirl_gym.worlds.tumour import RowConstants, TumourParameters, TumourState

if TYPE_CHECKING:
    from typing_extensions import Unpack

ACTION_NAMES = ("wait", "treat")
_NUMBERED = numbered_actions(tumour.N_ACTIONS)
"""What rules and outcomes call them, as batches of the simulator do."""
DEFAULT_WEIGHTS = (-0.3, -0.7)
"""One of the paper's three trade-offs between tumour volume and side effects (section 5.1)."""


class TumourOptions(TypedDict, total=False):
    """What the constructor takes for every episode and ``reset`` for one; described at :class:`TumourEnv`."""

    patient: npt.ArrayLike | None
    """(x0, z0)."""
    history: Batch | tuple[npt.ArrayLike, npt.ArrayLike] | None
    """A batch of one episode, or (obs ``[k+1, 2]``, actions ``[k]``)."""
    noise: bool | npt.ArrayLike | None
    """False for none, or standard deviations (tumour, side effects)."""
    weights: npt.ArrayLike | None
    """(w1, w2), L1 norm at most 1."""


class TumourArguments(TumourOptions, total=False):
    """What both forms take beside."""

    observation: Literal["flat", "dict"]
    previous_action: bool
    forbid: Sequence[str]
    feature_map: FeatureMap | None


OPTIONS = (*TumourOptions.__annotations__, "horizon", "parameters")
"""What ``reset`` takes."""
FIXED = ("order", "lags", "tumour_max", "side_max", "horizon")
"""Parameters that belong to the environment, not to an episode: the state's size, the spaces, phi, the time limit."""


@dataclass(frozen=True)
class TumourStart(Start):
    """What ``reset`` was asked for, checked, for each of n patients."""

    parameters: TumourParameters


class TumourCohort(Cohort[TumourStart]):
    """n patients.

    Every beginning and every step takes two standard normal numbers of a row's stream; a beginning also where the
    patient is given, so that a seed's noise is the same with any patient.

    Arguments are described at :class:`TumourEnv`; ``options`` are what ``reset`` begins with where it is given no
    others. Rules call actions "0" and "1", as batches of the simulator do: a rule is the same text everywhere.

    Raises:
        TypeError: an option is unknown.
        ValueError: an argument is not possible, or ``parameters.horizon`` and ``max_episode_steps`` contradict.
    """

    def __init__(
        self,
        n: int,
        parameters: TumourParameters | None = None,
        *,
        observation: Literal["flat", "dict"] = "flat",
        previous_action: bool = True,
        forbid: Sequence[str] = (),
        feature_map: FeatureMap | None = None,
        max_episode_steps: int | None = None,
        **options: Unpack[TumourOptions],
    ) -> None:
        check_arguments(options, TumourOptions.__annotations__)
        self.parameters = parameters = parameters or TumourParameters()
        own = parameters.horizon
        stated = None if own == TumourParameters.horizon else f"TumourParameters.horizon={own}"
        self._limit = time_limit(own, stated, max_episode_steps)
        phi = feature_map or parameters.feature_map
        self._known = _known_of(phi)
        more = len(self._known)
        self.limit_lines = np.append(parameters.limits, np.full(more, np.nan))
        high = np.append(parameters.highest, np.ones(more)).astype(np.float32)
        super().__init__(
            n,
            Layout(np.zeros_like(high), high, tumour.N_ACTIONS, observation, previous_action),
            phi,
            ACTION_NAMES,
            rules_given(forbid, phi.of, _NUMBERED),
            OPTIONS,
            options,
            (2, "normal"),
        )
        self.state: TumourState = tumour.initial_state(parameters, np.zeros((n, 2)))
        self.obs = np.zeros((n, 2 + more), dtype=np.float32, order="F")
        # The same for all until somebody asks for something else.
        self._constants: tumour.Constants = self.default.parameters

    def start(self, given: dict[str, Any]) -> TumourStart:
        """See :meth:`~cirl_gym.envs.process.Cohort.start`."""
        n, base, histories = self.n, self.parameters, None
        parameters = _parameters(base, given)
        usual = dict(zip(tumour.FEATURES, DEFAULT_WEIGHTS, strict=True))
        asked = given.get("weights", [usual.get(name, 0.0) for name in self.feature_map.features])
        weights = weight_rows(asked, n, self.feature_map.features)
        if "patient" in given:
            histories = patient_rows(given["patient"], n, 2)
            _check_going(base, "patient", histories)
        elif "history" in given:
            histories = history_rows(given["history"], n, 2, tumour.N_ACTIONS)
            _check_going(base, "history", histories)
        least = limit_of(given.get("horizon"), self._limit, histories)
        understood: dict[str, Any] = {"parameters": parameters, "noise": parameters.noise}
        echo = {name: np.array([value] * n) for name, value in understood.items() if name in given}
        per_row = {"weights": weights, "horizon": np.full(n, least, dtype=np.int64)}
        if histories is not None:
            per_row |= {"patient": histories.obs[:, 0], "history": histories.lengths}
        echo |= {"step" if name == "history" else name: rows for name, rows in per_row.items() if name in given}
        return TumourStart(weights, histories, least, echo, parameters)

    def put(self, rows: IntArray, start: TumourStart, numbers: FloatArray) -> dict[str, npt.NDArray[Any]]:
        """See :meth:`~cirl_gym.envs.process.Cohort.put`."""
        first = tumour.first_observations(start.parameters, numbers)
        # The arrays are this object's own: every step makes new ones.
        tumour.restart(self.state, rows, first)
        self.obs[rows] = np.pad(first, ((0, 0), (0, len(self._known))))
        if start.histories is not None:
            self._go_on(rows, start.histories.take(rows))
        if start.parameters is not self._constants:
            if isinstance(self._constants, TumourParameters):
                self._constants = RowConstants.of(self._constants, self.n)
            self._constants.put(rows, start.parameters)
        return {}

    def follow(self, actions: IntArray, numbers: FloatArray, going: BoolArray) -> Step:
        """See :meth:`~cirl_gym.envs.process.Cohort.follow`."""
        noise = np.multiply(self._constants.noise, numbers, order="F")
        step = tumour.follow(self._constants, self.state, actions, noise)
        if not self._known:
            return step
        values = known_values(self._known, actions, self.previous, _NUMBERED)
        obs, outcomes = (np.concatenate([seen, values], axis=1) for seen in (step.obs, step.outcomes))
        return step._replace(obs=obs, outcomes=outcomes)

    def _go_on(self, rows: IntArray, histories: GivenHistories) -> None:
        """Put rows where given histories end."""
        state = tumour.initial_state(self.parameters, histories.obs[:, 0])
        for t in range(histories.actions.shape[1]):
            after = tumour.append(state, histories.actions[:, t], histories.obs[:, t + 1])
            going = t < histories.lengths
            for mine, new in zip(state, after, strict=True):
                mine[going] = new[going]
        for mine, new in zip(self.state, state, strict=True):
            mine[rows] = new
        self.obs[rows, :2] = state.recent[:, 0]
        if self._known:
            values = known_along(self._known, histories.actions, _NUMBERED)
            self.obs[rows, 2:] = values[np.arange(len(rows)), histories.lengths]


def _known_of(phi: FeatureMap) -> tuple[KnownOutcome, ...]:
    """What phi reads beside the simulator's two features.

    Raises:
        ValueError: it does not begin with these two, or reads something that is not known exactly.
    """
    known = [read_outcome(name, ()) for name in phi.of[2:]]
    if phi.of[:2] != tumour.FEATURES or not all(isinstance(one, KnownOutcome) for one in known):
        raise ValueError(
            f"feature_map must be of {', '.join(tumour.FEATURES)} and then of any Given(action) and Switched(), got "
            f"{', '.join(phi.of)}"
        )
    outcomes = tuple(one for one in known if isinstance(one, KnownOutcome))
    known_values(outcomes or (Switched(),), np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64), _NUMBERED)
    return outcomes


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
    noise = given.get("noise", True)
    if not isinstance(noise, bool | np.bool_):
        try:
            sds = np.broadcast_to(np.asarray(noise, dtype=np.float64), (2,)).tolist()
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"option 'noise' must be True, False, or standard deviations (tumour, side effects), got {noise!r}"
            ) from error
        if not all(0 <= sd < np.inf for sd in sds):
            raise ValueError(f"option 'noise' must be finite and not negative, got {noise!r}")
        parameters = replace(parameters, tumour_noise=sds[0], side_noise=sds[1])
    elif not noise:
        parameters = replace(parameters, tumour_noise=0.0, side_noise=0.0)
    if (parameters.highest > base.highest).any():
        raise ValueError(
            f"option {'noise' if 'noise' in given else 'parameters'!r}: observations could reach "
            f"{parameters.highest.tolist()}, beyond this environment's observation space "
            f"{base.highest.tolist()}; make another environment with these parameters"
        )
    return parameters


def _check_going(base: TumourParameters, name: str, histories: GivenHistories) -> None:
    """Refuse beginnings after which nothing follows."""
    x, z = histories.obs[histories.seen].T
    most_x, most_z = base.limits
    for values, inside, said in (
        (x, (x > 0) & (x < most_x), f"x must lie inside (0, {most_x:g})"),
        (z, (z >= 0) & (z < most_z), f"z must lie inside [0, {most_z:g})"),
    ):
        if not inside.all():
            raise ValueError(f"option {name!r}: {said}, got {values[~inside][0]:g}")


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

    ===  ==============================  ===  ====
    Num  Observation                     Min  Max
    ===  ==============================  ===  ====
    0    tumour volume x                 0    53.5
    1    side effects z                  0    18.5
    2    1 if the previous action was 0  0    1
    3    1 if the previous action was 1  0    1
    ===  ==============================  ===  ====

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
    - ``feature_map``: what is weighed, instead of the two features: computed of them, or known of the actions "0" and
      "1". Its observed features ``of`` are tumour and side_effects and then any of ``Given(0)``, ``Given(1)`` and
      ``Switched()`` (:mod:`cirl_gym.data.known`), which are then observed behind the two. Default weights of what is
      neither of the two are 0.
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
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        **arguments: Unpack[TumourArguments],
    ) -> None:
        cohort = TumourCohort(1, parameters, max_episode_steps=max_episode_steps, **arguments)
        self.parameters = cohort.parameters
        super().__init__(cohort, render_mode)


make_tumour_env: Callable[..., TumourEnv] = entry_point(TumourEnv)


class TumourVectorEnv(CohortVectorEnv):
    """n :class:`TumourEnv` stepped together.

    All arguments are described there, and ``autoreset_mode`` at :class:`~cirl_gym.envs.forms.CohortVectorEnv`. With n
    rows ``patient`` and ``weights`` may also be ``[n, 2]``, and ``history`` a batch of n episodes. An episode that ends
    by itself at the time limit is terminated and not truncated.

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
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        **arguments: Unpack[TumourArguments],
    ) -> None:
        cohort = TumourCohort(num_envs, parameters, max_episode_steps=max_episode_steps, **arguments)
        self.parameters = cohort.parameters
        super().__init__(cohort, autoreset_mode)
