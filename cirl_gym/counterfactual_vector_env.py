"""``CIRLCounterfactual-v0`` for many histories at once: the outcome model is asked once per step for all of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from cirl_gym.batch import Batch
from cirl_gym.counterfactual_cohort import counterfactual_cohort
from cirl_gym.counterfactual_options import CounterfactualOptions
from cirl_gym.features import FeatureMap
from cirl_gym.layout import Form
from cirl_gym.outcome_models.masked import with_rules
from cirl_gym.ruled_cohort import ruled
from cirl_gym.source import EndRule, chosen_source
from cirl_gym.types import OutcomeModel
from cirl_gym.vector_env import AutoresetMode, CohortVectorEnv, check_num_envs

if TYPE_CHECKING:
    from typing_extensions import Unpack


class CounterfactualVectorEnv(CohortVectorEnv):
    """n :class:`~cirl_gym.counterfactual_env.CounterfactualEnv` stepped together; arguments are described there.

    Args:
        num_envs: n.
        max_episode_steps: the time limit; -1 for none. Default: ``horizon``, or else the batch's longest episode.
        model: an outcome model, with ``batch``.
        batch: where episodes begin.
        run: a folder of ``cirl demo`` or ``cirl explain``, instead of model and batch.
        feature_map: scales outcomes to phi.
        end: how a process ends.
        horizon: the time limit in actions.
        observation: ``"flat"`` or ``"dict"``.
        previous_action: show the previous action.
        forbid: rules; where some hold there is ``action_masks()`` ``[n, A]``.
        autoreset_mode: see :class:`~cirl_gym.vector_env.CohortVectorEnv`.
        **options: ``episode`` and ``step`` also as ``[n]``, ``patient`` also as ``[n, D]``, ``weights`` as ``[n, d]``,
            ``history`` also as a batch of n episodes.

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
        run: str | os.PathLike[str] | None = None,
        feature_map: FeatureMap | None = None,
        end: Literal["learned", "never"] | EndRule = "learned",
        horizon: int | None = None,
        observation: Literal["flat", "dict"] = "flat",
        previous_action: bool = True,
        forbid: Sequence[str] | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        **options: Unpack[CounterfactualOptions],
    ) -> None:
        check_num_envs(num_envs)
        source = chosen_source(model, batch, run, feature_map, end, forbid)
        form = Form(observation, previous_action)
        cohort = counterfactual_cohort(num_envs, source, form, horizon, max_episode_steps, options)
        super().__init__(ruled(cohort, source.rules), num_envs, autoreset_mode)
        self.model, self.batch = with_rules(source.model, source.rules), source.batch
        self.rules = source.rules
