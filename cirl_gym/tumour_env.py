"""``CIRLTumour-v0`` for one patient (paper, section 5.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from cirl_gym.layout import Form
from cirl_gym.parameters import TumourParameters
from cirl_gym.ruled_cohort import ruled
from cirl_gym.single_env import CohortEnv
from cirl_gym.time_limit import asked_of_make
from cirl_gym.tumour_cohort import tumour_cohort, tumour_rules
from cirl_gym.tumour_options import TumourOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
    - ``forbid``: rules of actions "0" and "1" (:mod:`cirl_gym.action_rules`), such as
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
