"""The options of ``cirl baselines``."""

from __future__ import annotations

from pathlib import Path

import tyro


def baselines(
    run: tyro.conf.Positional[Path],
    methods: tuple[str, ...] = (),
    seed: int | None = None,
    quick: bool = False,
    out: Path | None = None,
) -> None:
    """Let the paper's methods learn from the episodes of a run, and compare them in one table.

    Methods: cirl (with the run's outcome model), oracle (with the simulator in its place), mb_h, mb_x, ar, crn, rmsn
    (with an outcome model of that kind), dsfn, dsfn_h (without one), cloning. What is done is kept: a command that was
    stopped goes on when it is given again.

    Args:
        run: Folder that cirl demo or cirl explain left.
        methods: Which are compared; default: cirl, oracle (of a simulated run), mb_h, mb_x, dsfn, dsfn_h, cloning.
        seed: Everything that the methods draw; default: the run's.
        quick: A first look in a fraction of the time, with wider errors.
        out: Folder for baselines.json and the finished rows; default: the run's.
    """
    from irl.baselines_command import BaselinesConfig, baselines_run

    baselines_run(run, BaselinesConfig(methods, seed, quick), out)
