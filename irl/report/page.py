"""One self-contained HTML page: pictures, what they say in plain words, and the same numbers as tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from irl.report import rows
from irl.report import rows as held_out_rows
from irl.report import rows as time_rows
from irl.report.drawing import accuracy_svg, agreement_svg, margins_svg, regret_svg, weights_svg, what_if_svg
from irl.report.what_if import WhatIf
from irl.result.result import Result
from irl.result.sentences import SAME_PATIENTS, TRADE_OFF


def render(result: Result, what_if: WhatIf | None = None) -> str:
    """The page as text. It loads nothing from anywhere, and every name from a table is escaped.

    Args:
        result: what the run found.
        what_if: one history with its predicted courses; None leaves the section out.
    """
    return render_page(
        "page.html",
        result=result,
        weights_picture=Markup(weights_svg(result)),
        weights_head=rows.weight_head(result),
        weights_rows=rows.weight_rows(result),
        readings_head=rows.reading_head(result),
        readings_rows=rows.reading_rows(result),
        regret_picture=Markup(regret_svg(result)) if result.identified_set.profile else None,
        held_out_rows=held_out_rows,
        agreement_picture=Markup(agreement_svg(result.agreement)) if result.agreement else None,
        time_rows=time_rows,
        trade_off=TRADE_OFF,
        same_patients=SAME_PATIENTS,
        accuracy_picture=Markup(accuracy_svg(result)),
        accuracy_rows=rows.accuracy_rows(result),
        return_rows=rows.return_rows(result),
        margins_picture=Markup(margins_svg(result)),
        stopped=rows.stopped(result),
        round_rows=rows.round_rows(result),
        what_if=what_if,
        what_if_picture=Markup(what_if_svg(what_if)) if what_if else None,
        what_if_rows=rows.what_if_rows(what_if) if what_if else [],
        run_rows=rows.run_rows(result),
        table_rows=rows.flat(result.table or {}),
        config_rows=rows.flat(result.config),
    )


def render_page(template: str, **content: Any) -> str:
    """A template of this folder with its content, in the style that all pages share; names in it are escaped."""
    folder = Path(__file__).parent
    environment = Environment(loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.filters["breakable"] = breakable
    style = Markup((folder / "style.css").read_text(encoding="utf-8"))
    return environment.get_template(template).render(style=style, **content)


def breakable(name: str) -> Markup:
    """A name, escaped, that a narrow screen may break after an underscore."""
    return escape(name).replace("_", Markup("_<wbr>"))
