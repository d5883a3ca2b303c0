"""Whether ``cirl explain`` says the same of one table whatever is drawn: verdicts, weights, held-out figures.

    python benchmarks/seeds_agree.py TABLE [options of cirl explain] [--seeds 10] [--out runs/seeds_agree]

Each seed's run is a folder of its own, and one that holds a result.json is read, not repeated. A line is printed for
each; then how often the point estimate of one seed lies in the interval of another, and what the decisions' held-out
log-likelihood and accuracy are beside the best of what knows no preferences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from semi_synthetic import check_folder
from tyro.conf import Positional

from irl.commands.options import ExplainOptions
from irl.commands.tables import command
from irl.result.result import Foreseen, HeldOutLikelihood, Result

RIVALS = ("last_action", "boosting", "cloning")
_OF_A_RUN = ("out", "seeds", "seed", "fresh")


@dataclass(frozen=True)
class Options(ExplainOptions):
    """Repeat ``cirl explain`` over seeds and compare what it says."""

    table: Positional[Path] = Path("examples/icu_like.csv")
    seeds: int = 10
    """Runs, from ``--seed`` on."""
    out: Path = Path("runs/seeds_agree")


def explained(asked: Options, seed: int) -> Result:
    """The result of a seed, read or computed; what the run prints goes to a file beside its folder."""
    out = asked.out / f"seed_{seed}"
    if not (out / "result.json").is_file():
        own = {name: value for name, value in vars(asked).items() if name != "seeds"}
        with (asked.out / f"seed_{seed}.txt").open("w", encoding="utf-8") as printed, redirect_stdout(printed):
            command(ExplainOptions(**{**own, "seed": seed, "out": out}))
    return Result.read(out / "result.json")


def held_out(result: Result) -> HeldOutLikelihood:
    """Which every result of this version has."""
    assert result.likelihood is not None
    return result.likelihood


def best_rival(result: Result) -> tuple[str, Foreseen]:
    """What foresees decisions best without preferences, by name."""
    likelihood = held_out(result)
    return max(((name, getattr(likelihood, name)) for name in RIVALS), key=lambda pair: pair[1].mean)


def row(result: Result) -> str:
    """One seed in a line."""
    weights = "; ".join(
        f"{name} {weight:+.3f} [{low:+.3f}, {high:+.3f}]"
        for name, weight, (low, high) in zip(result.features, result.weights, _intervals(result), strict=True)
    )
    likelihood, (rival, its) = held_out(result), best_rival(result)
    added, kappa = likelihood.beyond_habit, result.kappa
    assert kappa is not None
    return (
        f"seed {result.seed:<2} {result.verdict}: {added.mean:+.4f} ({added.standard_error:.4f}); {weights}; "
        f"kappa {kappa.mean:.1f} [{kappa.interval[0]:.1f}, {kappa.interval[1]:.1f}]; "
        f"log-likelihood {likelihood.cirl.mean:.4f}, {rival} {its.mean:.4f}; "
        f"accuracy {likelihood.cirl.accuracy:.4f}, last-action table {likelihood.last_action.accuracy:.4f}"
        + ("" if result.sampler.converged else "; NOT CONVERGED")
    )


def agreement(results: Sequence[Result]) -> tuple[int, int]:
    """How many point estimates of one run lie in the interval of another, of how many."""
    points = np.array([result.weights for result in results])
    low, high = np.moveaxis(np.array([_intervals(result) for result in results]), -1, 0)
    inside = (low[None] <= points[:, None]) & (points[:, None] <= high[None])
    others = ~np.eye(len(results), dtype=np.bool_)
    return int(inside[others].sum()), int(inside[others].size)


def summary(results: Sequence[Result]) -> list[str]:
    """What all seeds together say."""
    (verdict, often), *_ = Counter(result.verdict for result in results).most_common(1)
    lines = [f"verdict: {verdict} in {often} of {len(results)} seeds"]
    if len(results) > 1:
        hits, pairs = agreement(results)
        lines.append(f"point estimates in another seed's interval: {hits} of {pairs} ({hits / pairs:.3f})")
    behind = np.array([held_out(result).cirl.mean - best_rival(result)[1].mean for result in results])
    met = np.array([held_out(r).cirl.accuracy - held_out(r).last_action.accuracy for r in results])
    added = np.array([held_out(result).beyond_habit.mean for result in results])
    errors = np.mean([held_out(result).cirl.standard_error for result in results])
    return [
        *lines,
        f"beyond habit, log-likelihood a decision: {added.mean():+.4f} on average, {added.min():+.4f} to "
        f"{added.max():+.4f}",
        f"log-likelihood minus the best of {', '.join(RIVALS)}: {behind.mean():+.4f} on average, {behind.min():+.4f} "
        f"to {behind.max():+.4f} (standard error of the log-likelihood {errors:.4f})",
        f"accuracy minus the last-action table's: {met.mean():+.4f} on average, {met.min():+.4f} to {met.max():+.4f}",
        f"sampler converged in {sum(result.sampler.converged for result in results)} of {len(results)} seeds",
    ]


def _intervals(result: Result) -> list[tuple[float, float]]:
    return [result.intervals[name] for name in result.features]


def main() -> None:
    asked = tyro.cli(Options, config=(tyro.conf.FlagCreatePairsOff,))
    check_folder({name: value for name, value in vars(asked).items() if name not in _OF_A_RUN}, asked.out)
    results = []
    for seed in range(asked.seed, asked.seed + asked.seeds):
        results.append(explained(asked, seed))
        print(row(results[-1]), flush=True)
    print("\n".join(summary(results)))


if __name__ == "__main__":
    main()
