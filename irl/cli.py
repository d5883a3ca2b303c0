"""The command line: ``cirl demo``, ``cirl explain TABLE`` and ``cirl expert``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

if TYPE_CHECKING:
    from irl.settings import FitConfig

Model = Literal["ar", "crn", "mb_h"]


def demo(
    out: Path = Path("runs/demo"),
    seed: int = 0,
    weights: tuple[float, float] = (-0.3, -0.7),
    gamma: float = 0.99,
    kappa: float = 100.0,
    episodes: int = 10_000,
    model: Model | None = None,
    quick: bool = False,
) -> None:
    """Simulate experts whose preferences are known, recover them from their decisions alone, compare.

    Args:
        out: Folder for result.json, config.json, report.html and the models.
        seed: Everything that is drawn.
        weights: True reward weights of (tumour, side effects); L1 norm above 0 and at most 1.
        gamma: Discount factor, 0 to 1.
        kappa: Inverse temperature of the experts; the larger, the fewer mistakes.
        episodes: Episodes that are seen.
        model: Outcome model: linear law, or the network that corrects it (default: crn; with --quick: ar).
        quick: A first look in about a minute, with wider errors.
    """
    from irl import commands
    from irl.settings import DemoConfig

    config = DemoConfig(weights=weights, kappa=kappa, episodes=episodes, seed=seed)
    config = config.quick() if quick else config
    commands.demo(replace(config, fit=_fit_config(gamma, model, quick)), out)


def explain(
    table: tyro.conf.Positional[Path],
    id: str | None = None,
    time: str | None = None,
    action: str | None = None,
    features: tuple[str, ...] = (),
    group: str | None = None,
    lower_is_better: tuple[str, ...] = (),
    sign: tuple[str, ...] = (),
    end: Literal["terminated", "truncated"] | None = None,
    last_row: Literal["observation", "drop_action"] = "observation",
    duplicates: Literal["error", "first", "last", "mean"] = "error",
    lag: tuple[str, ...] = (),
    gamma: float = 0.99,
    model: Model | None = None,
    seed: int = 0,
    quick: bool = False,
    out: Path = Path("runs/explain"),
) -> None:
    """Say what the experts behind a table of decisions were trading off.

    The table (CSV or Parquet) has one row per episode and time step: what was observed, then the action taken. The
    last row of an episode has no action. Columns that are not named are found by their content, or asked for.

    Args:
        table: CSV, gzipped CSV or Parquet file.
        id: Column that names the episode (a hospital stay).
        time: Column of the time step, a number or a date.
        action: Column of the action.
        features: Columns of what was observed; default: all other columns, if they are numbers.
        group: Column that says whose episode it is (a patient with several stays); default: found, if there is one.
        lower_is_better: Features that nobody can want to be higher: their weights are negative.
        sign: Features whose weight has a known sign, as NAME=-1 or NAME=+1.
        end: How episodes end, if the table has no columns terminated and truncated.
        last_row: What the last row of an episode is, where not all agree.
        duplicates: What to do with differing rows of one (id, time).
        lag: Features that describe the time after the row's action (a dose given), moved to the next row.
        gamma: Discount factor, 0 to 1.
        model: Outcome model: linear law, or the network that corrects it (default: crn; with --quick: ar).
        seed: Everything that is drawn.
        quick: A first look in a fraction of the time, with wider errors.
        out: Folder for result.json, config.json, report.html and the models.
    """
    from cirl_gym.table_file import read_table
    from cirl_gym.table_infer import infer_columns
    from cirl_gym.table_schema import TableOptions
    from irl import commands
    from irl.settings import ExplainConfig

    frame = read_table(table)
    columns = infer_columns(frame, id=id, time=time, action=action, features=features or None, group=group)
    options = TableOptions(end=end, last_row=last_row, duplicates=duplicates, lag=lag)
    signs = known_signs(columns.features, lower_is_better, sign)
    commands.explain(frame, ExplainConfig(columns, options, signs, seed, _fit_config(gamma, model, quick)), out)


def expert(
    out: Path = Path("runs/expert"),
    weights: tuple[float, float] = (-0.3, -0.7),
    gamma: float = 0.99,
    algorithm: Literal["successor", "drqn", "recurrent_ppo"] = "successor",
    patients: int = 20,
    seed: int = 0,
    scale: float = 1.0,
) -> None:
    """Train an expert in the simulator and compare it with the exact optimum.

    Args:
        out: Folder for the trained expert.
        weights: Reward weights of (tumour, side effects); L1 norm above 0 and at most 1.
        gamma: Discount factor, 0 to 1.
        algorithm: Successor features (half a minute), recurrent Q-learning, or RecurrentPPO of sb3-contrib.
        patients: Starts on which it is judged, without noise; the optimum takes about a second each.
        seed: Everything that is drawn.
        scale: Share of the usual training.
    """
    from agents.solvers import Setting
    from irl import expert_command

    setting = Setting(weights, gamma)
    expert_command.expert(setting, algorithm, out, patients=patients, seed=seed, scale=scale)


def _fit_config(gamma: float, model: Model | None, quick: bool) -> FitConfig:
    from irl.settings import FitConfig

    config = FitConfig(gamma=gamma)
    config = config.quick() if quick else config
    return config if model is None else replace(config, model=model)


def known_signs(features: Sequence[str], lower_is_better: Sequence[str], sign: Sequence[str]) -> dict[str, int]:
    """What ``--lower-is-better`` and ``--sign`` say, by feature.

    Raises:
        ValueError: a name is not a feature, an entry is not NAME=-1 or NAME=+1, or two entries contradict each other.
    """
    entries = [(name, "-1", "--lower-is-better") for name in lower_is_better]
    for entry in sign:
        name, found, value = entry.rpartition("=")
        if not found or value not in ("-1", "1", "+1"):
            raise ValueError(f"--sign takes NAME=-1 or NAME=+1, got {entry!r}")
        entries.append((name, value, "--sign"))
    signs: dict[str, int] = {}
    for name, value, option in entries:
        if name not in features:
            raise ValueError(f"{option}: {name!r} is not a feature; the features are {', '.join(features)}")
        if signs.setdefault(name, int(value)) != int(value):
            raise ValueError(f"{option}: {name!r} is given two different signs")
    return signs


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0, 2 for bad input, 130 when interrupted."""
    try:
        tyro.extras.subcommand_cli_from_dict(
            {"demo": demo, "explain": explain, "expert": expert},
            prog="cirl",
            description="What were they trading off? Counterfactual inverse reinforcement learning.",
            args=arguments,
            config=(tyro.conf.FlagCreatePairsOff,),
        )
    except (ValueError, OSError) as error:
        print(f"cirl: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("cirl: stopped; there is no result.json, so nothing will be taken for a result.", file=sys.stderr)
        return 130
    return 0
