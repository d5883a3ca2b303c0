"""How well held-out decisions are foreseen as rows of text, for the console and the page alike."""

from __future__ import annotations

from irl.report.rows import Rows, percent, signed
from irl.result import Result

LIKELIHOOD_HEAD = ["policy", "mean", "standard error"]
AGREEMENT_HEAD = ["step", "episodes", "learnt weights (CIRL)", "behaviour cloning"]
FORESEEN_BY = {
    "cirl": "learnt weights (CIRL)",
    "averaged": "averaged over the posterior",
    "cloning": "behaviour cloning",
    "frequencies": "frequency of each action",
    "chance": "pure chance",
    "expert": "the experts' own chances",
}


def likelihood_rows(result: Result) -> Rows:
    """What foresees the decisions, the mean log-probability, its standard error; the experts' own where known."""
    rows: Rows = []
    for name, words in FORESEEN_BY.items():
        said = None if result.likelihood is None else getattr(result.likelihood, name)
        if said is not None:
            rows.append([words, signed(said.mean), f"{said.standard_error:.3f}"])
    return rows


def agreement_rows(result: Result) -> Rows:
    """Step, episodes that are still going on, and how many of their decisions each policy meets."""
    over_time = result.agreement
    if over_time is None:
        return []
    columns = zip(over_time.episodes, over_time.cirl, over_time.cloning, strict=True)
    return [[str(t), str(n), percent(cirl), percent(cloning)] for t, (n, cirl, cloning) in enumerate(columns)]
