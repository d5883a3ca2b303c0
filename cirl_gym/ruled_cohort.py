"""A cohort whose actions are not always all allowed: the masks of both environments (:mod:`cirl_gym.action_rules`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cirl_gym.action_rule_text import read_rules
from cirl_gym.action_rules import ActionRules
from cirl_gym.cohort import Cohort, CohortStep
from cirl_gym.features import FeatureMap
from cirl_gym.layout import Layout
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray


class RuledCohort:
    """Any :class:`~cirl_gym.cohort.Cohort`, which refuses what rules forbid and tells what they leave.

    What it tells of a beginning and of a step has one entry more: ``action_mask`` ``[.., A]`` int8, 1 where an action
    is allowed next, as Gymnasium's ``Discrete.sample(mask)`` takes it. Actions of a given beginning are not looked at.

    Args:
        cohort: n processes.
        rules: of the same observed features and number of actions.
    """

    def __init__(self, cohort: Cohort, rules: ActionRules) -> None:
        self._cohort, self.rules = cohort, rules
        self._allowed = rules.allowed(cohort.obs, cohort.previous)

    @property
    def allowed(self) -> BoolArray:
        """``[n, A]`` which actions are allowed now, at least one of each row."""
        return self._allowed.copy()

    @property
    def layout(self) -> Layout:
        """The cohort's."""
        return self._cohort.layout

    @property
    def feature_map(self) -> FeatureMap:
        """The cohort's."""
        return self._cohort.feature_map

    @property
    def weights(self) -> FloatArray:
        """``[d]`` the cohort's."""
        return self._cohort.weights

    @property
    def obs(self) -> Float32Array:
        """``[n, d]`` the current observation, raw units."""
        return self._cohort.obs

    @property
    def previous(self) -> IntArray:
        """``[n]`` the previous action; -1 before the first."""
        return self._cohort.previous

    @property
    def steps(self) -> IntArray:
        """``[n]`` number of actions of the current episode."""
        return self._cohort.steps

    @property
    def limits(self) -> IntArray:
        """``[n]`` number of actions after which watching ends."""
        return self._cohort.limits

    @property
    def action_names(self) -> tuple[str, ...]:
        """What each of the A actions means."""
        return self._cohort.action_names

    @property
    def limit_lines(self) -> FloatArray | None:
        """``[d]`` the cohort's."""
        return self._cohort.limit_lines

    def read(self, options: Mapping[str, Any]) -> Any:
        """See :meth:`~cirl_gym.cohort.Cohort.read`."""
        return self._cohort.read(options)

    def use(self, rows: Iterable[int], generators: Iterable[np.random.Generator]) -> None:
        """See :meth:`~cirl_gym.cohort.Cohort.use`."""
        self._cohort.use(rows, generators)

    def begin(self, rows: IntArray, chosen: Any = None) -> dict[str, npt.NDArray[Any]]:
        """See :meth:`~cirl_gym.cohort.Cohort.begin`."""
        told = self._cohort.begin(rows, chosen)
        return {**told, "action_mask": self._masks()[rows]}

    def step(self, actions: IntArray, going: BoolArray) -> CohortStep:
        """See :meth:`~cirl_gym.cohort.Cohort.step`.

        Raises:
            ValueError: a row that is going takes a forbidden action, or as the cohort says; everything is then as it
                was.
        """
        wrong = np.flatnonzero(going & ~self._allowed[np.arange(len(actions)), actions])
        if len(wrong):
            name = self.rules.action_names[actions[wrong[0]]]
            said = "; ".join(rule.name for rule in self.rules.rules if rule.action == name)
            of_row = f" of row {wrong[0]}" if len(actions) > 1 else ""
            raise ValueError(f"action {name!r}{of_row} is forbidden now ({said}); action_masks() tells what is allowed")
        result = self._cohort.step(actions, going)
        return result._replace(infos={**result.infos, "action_mask": self._masks()})

    def _masks(self) -> npt.NDArray[np.int8]:
        """``[n, A]`` what is allowed after the current observations, looked at anew."""
        self._allowed = self.rules.allowed(self._cohort.obs, self._cohort.previous)
        return self._allowed.astype(np.int8)


def rules_given(forbid: Sequence[str], features: Sequence[str], action_names: Sequence[str]) -> ActionRules | None:
    """The rules that an environment was given as ``forbid``; None if there are none.

    Raises:
        ValueError: it is one text instead of several, or see :func:`~cirl_gym.action_rule_text.read_rules`.
    """
    if isinstance(forbid, str):
        raise ValueError(f"forbid must be a list of rules, got the text {forbid!r}")
    return read_rules(forbid, features, action_names)


def ruled(cohort: Cohort, rules: ActionRules | None) -> Cohort:
    """The cohort in which the rules hold; without rules as it is."""
    return cohort if rules is None else RuledCohort(cohort, rules)


def check_ruled(cohort: Cohort) -> RuledCohort:
    """The cohort, if rules hold in it.

    Raises:
        AttributeError: every action is always allowed. So an environment's attribute ``action_masks`` is there only
            with rules: agents that know of masks (sb3-contrib's, DRQN) look for it and would ask at every step.
    """
    if not isinstance(cohort, RuledCohort):
        raise AttributeError("no rules were given (forbid=...), so there is no action_masks: every action is allowed")
    return cohort
