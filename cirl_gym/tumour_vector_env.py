"""``CIRLTumour-v0`` for many patients at once: a native Gymnasium vector environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from cirl_gym.layout import Form
from cirl_gym.parameters import TumourParameters
from cirl_gym.ruled_cohort import ruled
from cirl_gym.tumour_cohort import tumour_cohort, tumour_rules
from cirl_gym.tumour_options import TumourOptions
from cirl_gym.vector_env import AutoresetMode, CohortVectorEnv, check_num_envs

if TYPE_CHECKING:
    from typing_extensions import Unpack


class TumourVectorEnv(CohortVectorEnv):
    """n :class:`~cirl_gym.tumour_env.TumourEnv` stepped together; everything else is described there.

    An episode that ends by itself at the time limit is terminated and not truncated.

    Args:
        num_envs: n.
        max_episode_steps: the time limit; -1 for none. Default: ``parameters.horizon``.
        parameters: every constant of the simulator.
        observation: ``"flat"`` or ``"dict"``.
        previous_action: show the previous action.
        forbid: rules; there is then ``action_masks()`` ``[n, A]``.
        autoreset_mode: see :class:`~cirl_gym.vector_env.CohortVectorEnv`.
        **options: of :class:`~cirl_gym.tumour_env.TumourEnv`; ``patient`` and ``weights`` also as ``[n, 2]``,
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
