"""Outcomes as text: a column's name, or ``Outside(temperature, 36, 38)`` (:mod:`cirl_gym.outcome_features`).

A column's name that is no plain word stands in quotes, as in ``Outside("mean arterial pressure", 60, 100)``. A column
whose own name looks like such a text is that column.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from cirl_gym.outcome_features import NUMBERS, Above, Below, Change, Column, OutcomeFeature, Outside, Product

_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Outside, Above, Below, Product, Change)}
FORMS = ", ".join(f"{name}({', '.join(field.name for field in fields(kind))})" for name, kind in _KINDS.items())
"""What can be written beside a column's name."""


def read_outcome(text: str, observed: Sequence[str]) -> OutcomeFeature:
    """The outcome that a text names. What it needs may not be observed: :func:`check_outcomes`.

    Args:
        text: a column's name, or one of :data:`FORMS`.
        observed: names of the observed features; such a name is that column, whatever it looks like.

    Raises:
        ValueError: the text begins as one of :data:`FORMS` and is not whole, or its numbers are not possible.
    """
    head, bracket, _ = text.partition("(")
    kind = _KINDS.get(head.strip())
    if text in observed or kind is None or not bracket:
        return Column(text)
    call = _parsed(text)
    names = [field.name for field in fields(kind)]
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.keywords:
        raise _unreadable(text, f"it must be {head.strip()} with its arguments in brackets, and nothing more")
    if len(call.args) != len(names):
        raise _unreadable(text, f"{head.strip()} takes {len(names)} arguments, not {len(call.args)}")
    outcome: OutcomeFeature = kind(*(_argument(text, node, name) for node, name in zip(call.args, names, strict=True)))
    return outcome


def check_outcomes(outcomes: Sequence[OutcomeFeature], observed: Sequence[str]) -> None:
    """Check that all that outcomes are computed from is observed.

    Raises:
        ValueError: it is not; the message names what is missing and what there is.
    """
    unknown = [outcome.name for outcome in outcomes if isinstance(outcome, Column) and outcome.column not in observed]
    if unknown:
        raise ValueError(
            f"outcome {', '.join(map(repr, unknown))} is not among the observed features: {', '.join(observed)}"
            + hint(*unknown)
        )
    for outcome in outcomes:
        missing = [name for name in outcome.needs if name not in observed]
        if missing:
            lag = isinstance(outcome, Change) and outcome.column in observed
            raise ValueError(
                f"outcome {outcome.name!r} needs {missing[0]!r}, which is not among the observed features: "
                f"{', '.join(observed)}" + ("; cirl_gym.lags.with_lags adds it" if lag else "")
            )


def hint(*unknown: str) -> str:
    """What to add to a message about unknown names: the forms, if one of the names may have been meant as one."""
    return f"; what is not a column's name is written {FORMS}" if any("(" in name for name in unknown) else ""


def _parsed(text: str) -> ast.expr:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a strange escape in a quoted name is a mistake, not a matter for a warning
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise _unreadable(text, "its brackets, commas or quotes are not in order") from error


def _argument(text: str, node: ast.expr, name: str) -> str | float:
    """A column's name, bare or in quotes, or a number, as the argument demands."""
    if name not in NUMBERS:
        if isinstance(node, ast.Name):
            # As it was written: Python's own reading of a name exchanges some letters, such as the micro sign.
            return ast.get_source_segment(text.strip(), node) or node.id
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        raise _unreadable(text, f"{name} must be a column's name, in quotes if it is no plain word")
    minus = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    number = node.operand if isinstance(node, ast.UnaryOp) and minus else node
    if isinstance(number, ast.Constant) and type(number.value) in (int, float):
        value: float = number.value  # type: ignore[assignment]
        return -value if minus else value
    raise _unreadable(text, f"{name} must be a number")


def _unreadable(text: str, why: str) -> ValueError:
    return ValueError(f"outcome {text!r} cannot be read: {why}; what is not a column's name is written {FORMS}")
