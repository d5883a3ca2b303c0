"""Which actions a history leaves: rules such as ``dialysis unless Above(creatinine, 3)``, and the masks that follow.

A rule forbids one action by what was observed last and by the action before:

    surgery when Below(platelets, 50)                while the last reading is below 50
    0 when After(1) and Above(lactate, 2)            after action 1, while lactate is above 2
    extubate unless After(ventilate)                 but after ventilate

Experts who may not do everything choose from what is left, and so must the policies that are compared with them: that
an action was not taken where it was forbidden says nothing of preferences. Rules hold in their order; one that would
forbid the last action that is left gives way, so that something is always allowed.

Names that are no plain words stand in quotes within a condition, but not in front of it, where the action's name is
whatever stands before ``when`` or ``unless``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cirl_gym.data.batch import Batch
from cirl_gym.data.outcomes import Above, Below, Outside, action_text, no_action, parsed, read_outcome
from cirl_gym.types import BoolArray, Float32Array, IntArray

FORM = (
    "ACTION when CONDITION or ACTION unless CONDITION, where a condition is Above(NAME, limit), Below(NAME, limit), "
    "Outside(NAME, low, high) or After(ACTION), or several of them joined by and"
)
"""How a rule is written."""


@dataclass(frozen=True)
class After:
    """The action before was this one; at the first step there was none."""

    action: str

    @property
    def name(self) -> str:
        """As it is written."""
        return f"After({action_text(self.action)})"


Condition: TypeAlias = Above | Below | Outside | After
"""What can be asked of a history. A range holds where the last reading is above, below or outside it."""


@dataclass(frozen=True)
class ActionRule:
    """One action is forbidden while all conditions hold, or, with ``unless``, while not all of them do.

    Raises:
        ValueError: there is no condition.
    """

    action: str
    """The action's name."""
    conditions: tuple[Condition, ...]
    unless: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "conditions", tuple(self.conditions))
        if not self.conditions:
            raise ValueError(f"the rule for action {self.action!r} needs a condition")

    @property
    def name(self) -> str:
        """As it is written."""
        said = " and ".join(condition.name for condition in self.conditions)
        return f"{self.action} {'unless' if self.unless else 'when'} {said}"


@dataclass(frozen=True)
class ActionRules:
    """Rules for histories of given features and actions; see the module's text.

    Raises:
        ValueError: there is no rule, or one speaks of a feature or action that there is not; the message names it.
    """

    rules: tuple[ActionRule, ...]
    features: tuple[str, ...]
    """Names of the D observed features."""
    action_names: tuple[str, ...]
    """Names of the A actions."""

    def __post_init__(self) -> None:
        for name in ("rules", "features", "action_names"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not self.rules:
            raise ValueError("action rules: there is no rule")
        for rule in self.rules:
            for action in (rule.action, *(c.action for c in rule.conditions if isinstance(c, After))):
                if action not in self.action_names:
                    raise ValueError(f"rule {rule.name!r}: {no_action(action, self.action_names)}")
            for condition in rule.conditions:
                if not isinstance(condition, After) and condition.column not in self.features:
                    raise ValueError(
                        f"rule {rule.name!r}: {condition.column!r} is not a feature; the features are "
                        f"{', '.join(self.features)}"
                    )

    def allowed(self, obs: Float32Array, previous: IntArray) -> BoolArray:
        """Allowed actions ``[.., A]`` after last observations ``[.., D]``, raw units, and actions before ``[..]``.

        ``previous`` is -1 where there was none. At least one action is allowed everywhere.
        """
        allowed: BoolArray = np.ones((*obs.shape[:-1], len(self.action_names)), dtype=np.bool_)
        for rule in self.rules:
            action = self.action_names.index(rule.action)
            held: BoolArray = np.ones(obs.shape[:-1], dtype=np.bool_)
            for condition in rule.conditions:
                if isinstance(condition, After):
                    held &= previous == self.action_names.index(condition.action)
                    continue
                x = obs[..., self.features.index(condition.column)]
                # Readings are float32: so must a limit be, or 0.7 would be below 0.7.
                if isinstance(condition, Above):
                    held &= x > np.float32(condition.limit)
                elif isinstance(condition, Below):
                    held &= x < np.float32(condition.limit)
                else:
                    held &= (x < np.float32(condition.low)) | (x > np.float32(condition.high))
            forbids = held != rule.unless
            others = np.delete(allowed, action, axis=-1).any(axis=-1)
            allowed[..., action] &= ~(forbids & others)
        return allowed

    def allowed_next(self, observation: Float32Array) -> BoolArray:
        """The same ``[n, A]`` from what a policy sees, ``[n, D + A]``: features and the one-hot action before."""
        d = len(self.features)
        hot = observation[:, d:]
        return self.allowed(observation[:, :d], np.where(hot.any(axis=1), hot.argmax(axis=1), -1))

    def allowed_along(self, batch: Batch) -> BoolArray:
        """``[N, T+1, A]`` what is allowed after h_0..h_T, whatever was taken; at least one also on padding."""
        first = np.full((len(batch), 1), -1, dtype=np.int64)
        return self.allowed(batch.obs, np.concatenate([first, batch.actions], axis=1))

    def masked(self, batch: Batch) -> Batch:
        """The same episodes, with what was allowed at every step.

        Raises:
            ValueError: the batch has other features or actions, or an action was taken that is forbidden; the message
                names episode and step.
        """
        if (batch.features, batch.action_names) != (self.features, self.action_names):
            raise ValueError(
                f"the rules are for features {self.features} and actions {self.action_names}, the batch has "
                f"{batch.features} and {batch.action_names}"
            )
        allowed = self.allowed_along(batch)[:, :-1]
        taken = np.take_along_axis(allowed, batch.actions[..., None], axis=2)[..., 0]
        if not taken[batch.mask].all():
            episode, step = (int(i) for i in np.argwhere(~taken & batch.mask)[0])
            action = batch.action_names[batch.actions[episode, step]]
            rules = "; ".join(rule.name for rule in self.rules if rule.action == action)
            count = int((~taken & batch.mask).sum())
            raise ValueError(
                f"episode {batch.ids[episode]!r}, step {step}: action {action!r} was taken although it is forbidden "
                f"({rules}); {count} of {batch.n_steps} actions are"
            )
        return replace(batch, allowed=allowed)


def among_allowed(scores: npt.NDArray[np.floating], allowed: BoolArray | None) -> npt.NDArray[np.floating]:
    """Scores ``[.., A]`` with minus infinity where an action is not ``allowed`` ``[.., A]``; None: all are."""
    return scores if allowed is None else np.where(allowed, scores, -np.inf)


def read_rules(texts: Sequence[str], features: Sequence[str], action_names: Sequence[str]) -> ActionRules | None:
    """The rules that texts, written as :data:`FORM` says, name, in their order; None if there is no text.

    Raises:
        ValueError: a text cannot be read, or speaks of a feature or action that there is not.
    """
    if not texts:
        return None
    rules = tuple(_read(text, action_names) for text in texts)
    return ActionRules(rules, tuple(features), tuple(action_names))


def masked(batch: Batch, texts: Sequence[str]) -> Batch:
    """The same episodes, with what the rules left to choose from at every step; without rules as they are.

    Raises:
        ValueError: as :func:`read_rules`; or an action was taken that is forbidden.
    """
    rules = read_rules(texts, batch.features, batch.action_names)
    return batch if rules is None else rules.masked(batch)


def rules_for(batch: Batch, texts: Sequence[str]) -> ActionRules | None:
    """The rules under which a batch's decisions were made.

    Raises:
        ValueError: as :func:`read_rules`; or the batch does not say what they left to choose from, or does although
            there are none.
    """
    if bool(texts) != (batch.allowed is not None):
        raise ValueError("rules of what is forbidden and a batch that says what was allowed belong together")
    return read_rules(texts, batch.features, batch.action_names)


def _read(text: str, action_names: Sequence[str]) -> ActionRule:
    # A name can hold the words themselves: of all places where the text can be cut, the one behind an action's name.
    cuts = list(re.finditer(r"\s(when|unless)\s", text))
    cut = next((found for found in cuts if text[: found.start()].strip() in action_names), None)
    if cut is None:
        if not cuts:
            raise _unreadable(text, "it has neither when nor unless")
        raise ValueError(f"rule {text!r}: {no_action(text[: cuts[0].start()].strip(), action_names)}")
    said = text[cut.end() :].strip()
    try:
        body = parsed(said)
    except ValueError as error:
        raise _unreadable(text, str(error)) from error
    parts = body.values if isinstance(body, ast.BoolOp) and isinstance(body.op, ast.And) else [body]
    conditions = tuple(_condition(text, said, part) for part in parts)
    return ActionRule(text[: cut.start()].strip(), conditions, unless=cut[1] == "unless")


def _condition(text: str, said: str, node: ast.expr) -> Condition:
    segment = ast.get_source_segment(said, node) or ""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "After":
        if len(node.args) != 1 or node.keywords:
            raise _unreadable(text, "After takes one action")
        argument = node.args[0]
        quoted = isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        return After(argument.value if quoted else ast.get_source_segment(said, argument) or "")  # type: ignore[attr-defined]
    try:
        found = read_outcome(segment, ())
    except ValueError as error:
        raise ValueError(f"rule {text!r}: {error}") from error
    if not isinstance(found, Above | Below | Outside):
        raise _unreadable(text, f"{segment!r} is no condition")
    return found


def _unreadable(text: str, why: str) -> ValueError:
    return ValueError(f"rule {text!r} cannot be read: {why}; a rule is written {FORM}")
