"""``CIRLCounterfactual-v0``: what would happen to the patients of a batch, by any outcome model (paper, appendix C)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from cirl_gym.batch import Batch
from cirl_gym.counterfactual_cohort import counterfactual_cohort
from cirl_gym.counterfactual_options import CounterfactualOptions
from cirl_gym.features import FeatureMap
from cirl_gym.layout import Form
from cirl_gym.outcome_models.masked import with_rules
from cirl_gym.ruled_cohort import ruled
from cirl_gym.single_env import CohortEnv
from cirl_gym.source import EndRule, chosen_source
from cirl_gym.time_limit import asked_of_make
from cirl_gym.types import OutcomeModel

if TYPE_CHECKING:
    from typing_extensions import Unpack


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

    | Num      | Observation                    | Min                       | Max                      |
    |----------|--------------------------------|---------------------------|--------------------------|
    | 0..D-1   | feature                        | least of model and batch  | most of model and batch  |
    | D..D+A-1 | 1 for the previous action      | 0                         | 1                        |

    The last A are all 0 where no action came before. The limits are those of ``model.bounds`` and of the batch's own
    observations, one float32 step wider. ``info["outside_support"]`` is True where a feature leaves the range that the
    batch shows: there the model is extrapolating.

    ## Rewards

    ``w . phi(h, a)`` with phi the model's expected outcome, scaled by the feature map (paper, equation 1); also when
    the observation is sampled. ``info["phi"]`` holds phi(h, a), float64 ``[d]``, of the d features that the map weighs
    (all D, unless it or the run says otherwise). The weights of a run are those that it found. With ``model`` and
    ``batch`` and without ``weights`` the reward is 0: what it is, is then the question.

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
    - ``model`` and ``batch``: an :class:`~cirl_gym.types.OutcomeModel`, and where episodes begin and which observations
      count as seen.
    - ``feature_map``: says which features are outcomes and scales them to phi (default: the run's, or the batch's
      ranges of all features).
    - ``end``: ``"learned"`` (default) draws from ``model.end_probability``; ``"never"``; or a rule, a function from
      observations ``[n, D]`` in raw units to ``[n]`` bool.
    - ``horizon``: the time limit in actions (default: the batch's longest episode).
    - ``observation``: ``"flat"`` (default) or ``"dict"``.
    - ``previous_action``: show the previous action (default True).
    - ``forbid``: rules of the batch's actions (:mod:`cirl_gym.action_rules`), such as
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
        run: str | os.PathLike[str] | None = None,
        feature_map: FeatureMap | None = None,
        end: Literal["learned", "never"] | EndRule = "learned",
        horizon: int | None = None,
        observation: Literal["flat", "dict"] = "flat",
        previous_action: bool = True,
        forbid: Sequence[str] | None = None,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        **options: Unpack[CounterfactualOptions],
    ) -> None:
        source = chosen_source(model, batch, run, feature_map, end, forbid)
        form = Form(observation, previous_action)
        cohort = counterfactual_cohort(1, source, form, horizon, max_episode_steps, options)
        super().__init__(ruled(cohort, source.rules), render_mode)
        self.model, self.batch = with_rules(source.model, source.rules), source.batch
        self.rules = source.rules


def make_counterfactual_env(**arguments: Any) -> CounterfactualEnv:
    """Entry point of ``gymnasium.make``: a :class:`CounterfactualEnv` with the time limit that Gymnasium was asked for.

    Raises:
        ValueError: ``horizon`` is not that limit.
    """
    return CounterfactualEnv(**arguments, max_episode_steps=asked_of_make())


# Gymnasium reads the render modes from the entry point before it calls it.
make_counterfactual_env.metadata = CounterfactualEnv.metadata  # type: ignore[attr-defined]
