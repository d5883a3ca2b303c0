"""The tables of docs/results.md and of the README, made of the stored outcomes of ``cirl benchmark``.

    python benchmarks/results_page.py

Both pages get the tables that docs/results holds, and each table is printed. The report beside the outcomes is made by
``cirl benchmark report docs/results``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from markdown_tables import renewed, table

from irl.benchmark import paper
from irl.benchmark.figures import against_expert, held_truths, mean_and_interval, values_of
from irl.benchmark.jobs import METHODS, Outcome
from irl.benchmark.parts import SETTINGS
from irl.benchmark.report import read_outcomes

ROOT = Path(__file__).resolve().parents[1]
STORED = ROOT / "docs" / "results"
TITLES = {name: f"{one.weights[0]}, {one.weights[1]}; {one.gamma}" for name, one in SETTINGS.items()}
"""True weights and discount factor of every setting."""
PAGES = (ROOT / "docs" / "results.md", ROOT / "README.md")


def plain(value: float, digits: int) -> str:
    """A number as text; what rounds to 0 has no sign."""
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text


class OfSetting:
    """The outcomes of one setting, by method."""

    def __init__(self, outcomes: Sequence[Outcome], setting: str) -> None:
        self.runs = {
            method: [one for one in outcomes if (one.setting, one.method) == (setting, method)] for method in METHODS
        }

    def mean(self, method: str, measure: Callable[[Outcome], float | None]) -> float:
        """Over seeds."""
        return float(np.mean([value for one in self.runs[method] if (value := measure(one)) is not None]))

    def found(self) -> str:
        """The tumour weights of CIRL."""
        weights = [one.row.weights[0] for one in self.runs["cirl"] if one.row.weights is not None]
        mean, low, high = (plain(value, 3) for value in (np.mean(weights), min(weights), max(weights)))
        return f"{mean} ({low} to {high})"

    def intervals(self) -> tuple[str, str]:
        """Half their mean width, and how many hold the truth."""
        ends = [one.interval for one in self.runs["cirl"] if one.interval is not None]
        held = held_truths(self.runs["cirl"], lambda one: one.interval)["cirl"]
        return plain(float(np.mean([high - low for low, high in ends])) / 2, 3), f"{held.hits} of {held.runs}"

    def sets(self) -> tuple[str, str]:
        """Mean ends of the identified sets, and how many hold the truth."""
        ends = np.mean([one.identified for one in self.runs["cirl"] if one.identified is not None], axis=0)
        held = held_truths(self.runs["cirl"], lambda one: one.identified)["cirl"]
        return " to ".join(plain(end, 2) for end in ends), f"{held.hits} of {held.runs}"

    def accuracies(self, *methods: str) -> list[str]:
        """Of methods, and the ceiling."""
        own = [plain(self.mean(method, lambda one: one.row.accuracy), 3) for method in methods]
        return [*own, plain(self.mean("expert", lambda one: one.ceiling), 3)]

    def returns(self, measure: Callable[[Outcome], float | None]) -> str:
        """Of CIRL, boosting and the expert."""
        return " / ".join(plain(self.mean(method, measure), 4) for method in ("cirl", "boosting", "expert"))


def tables(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Every table by what it is about."""
    settings = {name: OfSetting(outcomes, name) for name in SETTINGS}
    returns = values_of(outcomes, lambda one: one.row.return_)
    behind = {
        setting: {method: {seed: -value for seed, value in runs.items()} for method, runs in methods.items()}
        for setting, methods in against_expert(returns).items()
    }
    accuracies = values_of(outcomes, lambda one: one.row.accuracy)
    weights = values_of(outcomes, lambda one: one.row.weights[0] if one.row.weights else None)
    return {
        "truth": truth(settings),
        "settings": by_setting(settings),
        "behind": by_method("behind the experts' return", behind, 4),
        "accuracy": by_method("accuracy", accuracies, 3),
        "weight": by_method("tumour weight said", weights, 2),
        "paper": beside_paper(settings),
    }


def truth(settings: Mapping[str, OfSetting]) -> str:
    """How often the truth comes back, for the README."""
    head = ("true weights, gamma", "found: mean (least to largest)", "interval", "identified set", "accuracy")
    rows = []
    for name, one in settings.items():
        width, held = one.intervals()
        met, ceiling = one.accuracies("cirl")
        rows.append((TITLES[name], one.found(), f"± {width}, {held}", one.sets()[0], f"{met} of {ceiling}"))
    return table(head, rows)


def by_setting(settings: Mapping[str, OfSetting]) -> str:
    """CIRL and boosting beside the expert."""
    head = (
        "true weights; gamma",
        "tumour weight found: mean (least to largest)",
        "90 % intervals that hold it",
        "half their width",
        "identified sets",
        "accuracy: CIRL / boosting / ceiling",
        "return: CIRL / boosting / expert",
        "discounted",
    )
    rows = []
    for name, one in settings.items():
        width, held = one.intervals()
        met = " / ".join(one.accuracies("cirl", "boosting"))
        earned = one.returns(lambda each: each.row.return_), one.returns(lambda each: each.discounted)
        rows.append((TITLES[name], one.found(), held, width, one.sets()[1], met, *earned))
    return table(head, rows)


def by_method(what: str, values: Mapping[str, Mapping[str, Mapping[int, float]]], digits: int) -> str:
    """Mean over seeds, ± standard error, of every method but the expert; empty where it has none."""
    rows = []
    for method, title in METHODS.items():
        runs = [list(values.get(setting, {}).get(method, {}).values()) for setting in SETTINGS]
        if method != "expert" and any(runs):
            rows.append((title, *(_mean(each, digits) for each in runs)))
    return table((what, *TITLES.values()), rows)


def _mean(values: Sequence[float], digits: int) -> str:
    if not values:
        return ""
    known = mean_and_interval(values)
    error = "" if known is None else f" ± {plain(known[0].standard_error, digits)}"
    return f"{plain(float(np.mean(values)), digits)}{error}"


def beside_paper(settings: Mapping[str, OfSetting]) -> str:
    """CIRL's distance to the experts, the experts' returns, and CIRL's accuracy, there and here."""
    head = (
        "true weights; gamma",
        "paper: CIRL behind its experts",
        "here",
        "paper: experts' return",
        "here",
        "paper: CIRL's accuracy",
        "here",
    )
    theirs, met = paper.means(paper.RETURNS), paper.means(paper.ACCURACIES)
    rows = []
    for name, one in settings.items():
        own, expert = (one.mean(method, lambda each: each.row.return_) for method in ("cirl", "expert"))
        rows.append(
            (
                TITLES[name],
                plain(theirs["expert"][name] - theirs["cirl"][name], 2),
                plain(expert - own, 4),
                plain(theirs["expert"][name], 2),
                plain(expert, 2),
                plain(met["cirl"][name], 3),
                plain(one.mean("cirl", lambda each: each.row.accuracy), 3),
            )
        )
    return table(head, rows)


def main() -> None:
    made = tables(read_outcomes(STORED))
    for page in PAGES:
        page.write_text(renewed(page.read_text(encoding="utf-8"), made), encoding="utf-8")
    for title, one in made.items():
        print(f"\n{title}\n\n{one}")


if __name__ == "__main__":
    main()
