"""Action rules as text: ``dialysis unless Above(creatinine, 3)`` (:mod:`cirl_gym.action_rules`).

Names that are no plain words stand in quotes within a condition, but not in front of it, where the action's name is
whatever stands before ``when`` or ``unless``.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Sequence

from cirl_gym.action_rules import ActionRule, ActionRules, After, Condition
from cirl_gym.batch import Batch
from cirl_gym.outcome_features import Above, Below, Outside
from cirl_gym.outcome_text import read_outcome

FORM = (
    "ACTION when CONDITION or ACTION unless CONDITION, where a condition is Above(NAME, limit), Below(NAME, limit), "
    "Outside(NAME, low, high) or After(ACTION), or several of them joined by and"
)
"""How a rule is written."""


def read_rules(texts: Sequence[str], features: Sequence[str], action_names: Sequence[str]) -> ActionRules | None:
    """The rules that texts name, in their order; None if there is no text.

    Args:
        texts: rules, see :data:`FORM`.
        features: names of the observed features.
        action_names: names of the actions.

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
        name = text[: cuts[0].start()].strip()
        raise ValueError(f"rule {text!r}: there is no action {name!r}; the actions are {', '.join(action_names)}")
    conditions = _conditions(text, text[cut.end() :].strip())
    return ActionRule(text[: cut.start()].strip(), conditions, unless=cut[1] == "unless")


def _conditions(text: str, said: str) -> tuple[Condition, ...]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a strange escape in a quoted name is a mistake, not a matter for a warning
            body = ast.parse(said, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise _unreadable(text, "its brackets, commas or quotes are not in order") from error
    parts = body.values if isinstance(body, ast.BoolOp) and isinstance(body.op, ast.And) else [body]
    return tuple(_condition(text, said, part) for part in parts)


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
