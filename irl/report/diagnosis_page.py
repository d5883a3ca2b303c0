"""A diagnosis as one self-contained HTML page."""

from __future__ import annotations

from markupsafe import Markup

from irl.diagnosis import Diagnosis
from irl.report import diagnosis_rows as rows
from irl.report.diagnosis_plots import calibration_svg, errors_svg
from irl.report.diagnosis_verdicts import verdicts
from irl.report.page import render_page


def render_diagnosis(found: Diagnosis) -> str:
    """The page as text. It loads nothing from anywhere, and every name from a table is escaped."""
    return render_page(
        "diagnostics.html",
        found=found,
        verdicts=verdicts(found),
        rows=rows,
        flipped=None if found.counterfactual is None else found.counterfactual.flipped,
        errors_picture=Markup(errors_svg(found)),
        calibration_picture=Markup(calibration_svg(found)),
    )
