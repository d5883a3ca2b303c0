"""Agents of Stable-Baselines3 that can be copied and pickled: without the environment that they were trained in."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.base_class import BaseAlgorithm


class CopiedWithoutEnv(BaseAlgorithm):
    """An agent whose copies (``pickle``, ``deepcopy``) act as it does, and hold neither environment nor episodes.

    They leave out what ``save`` does; to train one further, it needs ``set_env``, as a loaded one does.
    """

    def __getstate__(self) -> dict[str, Any]:
        left_out = set(self._excluded_save_params()) - {"policy", "device"}
        empty = dict.fromkeys(left_out & {"env", "_vec_normalize_env", "replay_buffer", "rollout_buffer"})
        return {name: value for name, value in self.__dict__.items() if name not in left_out} | empty
