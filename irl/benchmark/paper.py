"""The paper's own figures (Bica et al., ICLR 2021, section 5): tables 2 and 3, by setting, to stand beside ours.

What stands behind a ± is called a standard deviation in the captions, and in the text a standard error over 1,000
trajectories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from irl.benchmark.parts import SETTINGS

Figures: TypeAlias = Mapping[str, Mapping[str, tuple[float, float]]]
"""By method and setting: mean, and what stands behind its ±."""


def _figures(rows: Mapping[str, Sequence[tuple[float, float]]]) -> Figures:
    """The columns are in the order of our settings."""
    return {method: dict(zip(SETTINGS, row, strict=True)) for method, row in rows.items()}


RETURNS = _figures(
    {
        "expert": [(-2.72, 0.02), (-3.61, 0.02), (-2.81, 0.01), (-2.65, 0.02), (-2.36, 0.01), (-3.97, 0.03)],
        "cirl": [(-2.89, 0.02), (-3.92, 0.03), (-3.41, 0.05), (-2.79, 0.02), (-2.91, 0.02), (-4.27, 0.03)],
        "mb_h": [(-3.23, 0.02), (-4.10, 0.02), (-4.63, 0.04), (-4.43, 0.04), (-3.54, 0.05), (-4.35, 0.03)],
        "mb_x": [(-3.78, 0.02), (-4.42, 0.05), (-4.90, 0.05), (-4.51, 0.05), (-4.53, 0.05), (-4.54, 0.04)],
        "dsfn": [(-3.56, 0.06), (-4.32, 0.04), (-3.77, 0.05), (-4.11, 0.06), (-3.07, 0.03), (-4.67, 0.07)],
        "dsfn_h": [(-3.31, 0.07), (-4.33, 0.07), (-3.60, 0.07), (-3.95, 0.07), (-3.05, 0.05), (-4.61, 0.05)],
    }
)
"""Table 2: undiscounted returns."""
ACCURACIES = _figures(
    {
        "cirl": [(0.818, 0.0042), (0.755, 0.0051), (0.837, 0.0076), (0.895, 0.0037), (0.732, 0.0043), (0.804, 0.0042)],
        "mb_h": [(0.778, 0.0031), (0.702, 0.0045), (0.714, 0.0069), (0.663, 0.0058), (0.702, 0.0071), (0.756, 0.0052)],
        "mb_x": [(0.625, 0.0041), (0.614, 0.0081), (0.546, 0.0056), (0.524, 0.0063), (0.601, 0.0039), (0.718, 0.0072)],
        "dsfn": [(0.754, 0.0032), (0.684, 0.0021), (0.734, 0.0045), (0.802, 0.0037), (0.708, 0.0024), (0.698, 0.0044)],
        "dsfn_h": [
            (0.763, 0.0037),
            (0.675, 0.0032),
            (0.806, 0.0054),
            (0.804, 0.0056),
            (0.710, 0.0035),
            (0.702, 0.0047),
        ],
    }
)
"""Table 3: shares of the experts' actions that policies meet."""
ICU_ACCURACIES: Mapping[str, tuple[float, float]] = {
    "cirl": (0.834, 0.0017),
    "mb_h": (0.775, 0.0015),
    "mb_x": (0.701, 0.0011),
    "dsfn": (0.735, 0.0025),
    "dsfn_h": (0.753, 0.0019),
}
"""Section 5.2, antibiotics of 6,631 patients of MIMIC-III: shares of the doctors' actions that policies meet."""
DIFFERENCES = (
    "The paper's figures are those of its tables 2 and 3 (Bica et al., ICLR 2021). They are of another simulator and "
    "of other experts, and not to be compared number by number. As printed, side effects fall whatever is done; here "
    "two coefficients of their line are exchanged. As printed, no expert treats with a chance above one half; here "
    "experts act by the softmax of kappa Q. The paper states no kappa, nor the accuracy that its experts' tosses leave "
    "possible. Its experts are recurrent Q-learners; here plans are searched. They earn -2.81 with weights -0.5, -0.5 "
    "and gamma 0.99, and -2.36 with -0.7, -0.3 and gamma 0.5, where the best of all plans earns about -3.31 and -3.29 "
    "here. docs/paper.md has all differences."
)
"""What to know before both are held against each other."""


def means(figures: Figures) -> dict[str, dict[str, float]]:
    """By method and setting, without what stands behind the ±."""
    return {method: {setting: mean for setting, (mean, _) in row.items()} for method, row in figures.items()}


def behind_expert(figures: Figures) -> dict[str, dict[str, float]]:
    """By method and setting, how far returns are behind the experts' in the same table."""
    expert = figures["expert"]
    return {
        method: {setting: expert[setting][0] - mean for setting, (mean, _) in row.items()}
        for method, row in figures.items()
        if method != "expert"
    }
