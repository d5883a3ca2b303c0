"""What a fit costs as a batch grows: processor seconds of every stage, memory, and the power by which each grows.

    python benchmarks/fit_sizes.py [--episodes 1000 10000 100000] [--steps 20 50 100] [--features 5 10 25]
        [--actions 2 8 20] [--jobs 1] [--out runs/fit_sizes]

Episodes are those of the simulator's expert, fitted as ``cirl demo`` does. The others are sizes of a table of 10,000
rows (20 steps, 5 features, all weighed, and 2 actions where nothing else is said), fitted as ``cirl explain --quick``
does. Each size runs in a process of its own, whose peak memory holds the libraries as well (about 400 MB); what is in
the folder is not measured again. (The stages of a table are timed by the wall.) The power is that between the smallest
and the largest size: 1 where twice as much takes twice as long.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import tyro
from irl_speed import SETTING, SIGNS, seen

from cirl_gym import Batch
from cirl_gym.files import read_json, write_json
from irl import explain
from irl.pipeline import fit
from irl.settings import FitConfig
from irl.stages import stages
from irl.study import Study

Axis = Literal["episodes", "steps", "features", "actions"]
ROWS = 10_000
WIDTH = 2
"""Of the search by which the simulated expert acts: what is measured is the fit."""


@dataclass(frozen=True)
class Options:
    """What a fit costs as a batch grows."""

    episodes: tuple[int, ...] = (1_000, 10_000, 100_000)
    steps: tuple[int, ...] = (20, 50, 100)
    features: tuple[int, ...] = (5, 10, 25)
    actions: tuple[int, ...] = (2, 8, 20)
    jobs: int = 1
    """Processes of a fit of a table."""
    out: Path = Path("runs/fit_sizes")
    one: tuple[Axis, int] | None = None
    """Measure one size alone, in this process."""


def table(steps: int, features: int, actions: int) -> Batch:
    """Episodes of about 10,000 decisions; the higher the first feature, the more often the last action repeats."""
    rng, n = np.random.default_rng(0), max(ROWS // steps, 30)
    obs, chosen = np.zeros((n, steps + 1, features), dtype=np.float32), np.zeros((n, steps), dtype=np.int64)
    obs[:, 0], effects = rng.normal(size=(n, features)), rng.normal(scale=0.3, size=(actions, features))
    for t in range(steps):
        again = rng.random(n) < 1 / (1 + np.exp(-1 - obs[:, t, 0]))
        chosen[:, t] = np.where(again & (t > 0), chosen[:, t - 1], rng.integers(actions, size=n))
        obs[:, t + 1] = 0.8 * obs[:, t] + effects[chosen[:, t]] + 0.5 * rng.normal(size=(n, features))
    whole, none = np.full(n, steps), np.zeros(n, dtype=np.bool_)
    names = tuple(f"x{i}" for i in range(features)), tuple(f"a{i}" for i in range(actions))
    return Batch(obs, chosen, whole, none, ~none, *names, tuple(str(i) for i in range(n)))


def measured(axis: Axis, size: int, jobs: int) -> dict[str, Any]:
    """Processor seconds by stage and in all, and peak memory, of one size; a refusal is what it says."""
    if axis == "episodes":
        batch = seen(size, Path("runs/experts"), WIDTH)
    else:
        batch = table(**{"steps": 20, "features": 5, "actions": 2, axis: size})
    began, refused = time.process_time(), None
    with stages(0, quiet=True, clock=time.process_time) as run:
        if axis == "episodes":
            train, validation = batch.split(0.1, np.random.default_rng(0))
            how = FitConfig(gamma=SETTING.gamma).whole(SETTING.parameters.horizon)
            fit(Study(train, validation, SETTING.parameters.feature_map, SIGNS, how, 0, run))
        else:
            try:
                with TemporaryDirectory() as folder:
                    found = explain(batch, quick=True, jobs=jobs, out=Path(folder) / "run", progress=False)
                    run.seconds.update(found.result.seconds)
            except ValueError as error:
                refused = str(error)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {"cpu": time.process_time() - began, "seconds": run.seconds, "megabytes": peak, "refused": refused}


def told(axis: Axis, found: dict[int, dict[str, Any]]) -> None:
    """The table of one axis, and powers."""
    for size, one in found.items():
        parts = ", ".join(f"{name} {seconds:.1f}" for name, seconds in one["seconds"].items())
        said = f"refused: {one['refused']}" if one["refused"] else parts
        print(f"{axis} {size:,}: {one['cpu']:.0f} s, {one['megabytes']:,} MB ({said})", flush=True)
    ends = [(size, one) for size, one in found.items() if not one["refused"]]
    if len(ends) < 2:
        return
    (few, less), (many, more) = ends[0], ends[-1]

    def power(before: float, after: float) -> str:
        return f"{np.log(max(after, 0.1) / max(before, 0.1)) / np.log(many / few):.2f}"

    by_stage = (f"{name} {power(less['seconds'].get(name, 0.1), took)}" for name, took in more["seconds"].items())
    print(f"{axis}: power {power(less['cpu'], more['cpu'])} in all; {', '.join(by_stage)}", flush=True)


def main() -> None:
    options = tyro.cli(Options, description=__doc__)
    if options.one is not None:
        axis, size = options.one
        write_json(options.out / f"{axis}_{size}.json", measured(axis, size, options.jobs))
        return
    for axis in ("episodes", "steps", "features", "actions"):
        found: dict[int, dict[str, Any]] = {}
        for size in sorted(getattr(options, axis)):
            path = options.out / f"{axis}_{size}.json"
            if not path.is_file():
                how = ["--one", axis, str(size), "--jobs", str(options.jobs), "--out", str(options.out)]
                subprocess.run([sys.executable, __file__, *how], check=True)
            found[size] = read_json(path)
        told(axis, found)


if __name__ == "__main__":
    main()
