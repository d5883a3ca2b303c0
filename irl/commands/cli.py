"""The command line: ``cirl demo``, ``explain TABLE``, ``tune TABLE``, ``diagnose RUN``, ``compare A B``, ``expert``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from irl.commands.baselines import baselines
from irl.commands.options import (
    AS_FAST,
    AS_FOUND,
    AS_USUAL,
    AT_ALL_TIMES,
    ModelArguments,
    SolverArguments,
    TableArguments,
    TimeArguments,
)

if TYPE_CHECKING:
    from irl.settings import FitConfig

TunedModel = Literal["crn", "rmsn", "mb_h", "mb_x"]


def demo(
    out: Path = Path("runs/demo"),
    seed: int = 0,
    weights: tuple[float, float] = (-0.3, -0.7),
    gamma: float = 0.99,
    kappa: float = 100.0,
    episodes: int = 10_000,
    outcome_model: tyro.conf.OmitArgPrefixes[ModelArguments] = AS_USUAL,
    policies: tyro.conf.OmitArgPrefixes[SolverArguments] = AS_FAST,
    times: tyro.conf.OmitArgPrefixes[TimeArguments] = AT_ALL_TIMES,
    forbid: tuple[str, ...] = (),
    quick: bool = False,
    fresh: bool = False,
) -> None:
    """Simulate experts whose preferences are known, recover them from their decisions alone, compare.

    Args:
        out: Folder for result.json, config.json, report.html and the models.
        seed: Everything that is drawn.
        weights: True reward weights of (tumour, side effects); L1 norm above 0 and at most 1.
        gamma: Discount factor, 0 to 1.
        kappa: Inverse temperature of the experts; the larger, the fewer mistakes.
        episodes: Episodes that are seen.
        outcome_model: What predicts the outcomes.
        policies: How the max-margin loop finds policies.
        times: Whether preferences change with time, and how far ahead the experts look.
        forbid: What the experts may not do, such as "1 when Above(side_effects, 4)".
        quick: A first look in about a minute, with wider errors.
        fresh: Begin anew, even if the same command was stopped before and could go on.
    """
    from irl.commands import run as commands
    from irl.result.resuming import remove
    from irl.settings import DemoConfig

    config = DemoConfig(weights=weights, kappa=kappa, episodes=episodes, seed=seed)
    config = config.quick() if quick else config
    config = replace(
        config, fit=times.put_into(policies.put_into(outcome_model.put_into(_fit_config(gamma, quick, forbid))))
    )
    if fresh:
        remove(out)
    commands.demo(config, out)


def explain(
    table: tyro.conf.Positional[Path],
    columns: tyro.conf.OmitArgPrefixes[TableArguments] = AS_FOUND,
    outcomes: tuple[str, ...] = (),
    lower_is_better: tuple[str, ...] = (),
    sign: tuple[str, ...] = (),
    gamma: float = 0.99,
    outcome_model: tyro.conf.OmitArgPrefixes[ModelArguments] = AS_USUAL,
    policies: tyro.conf.OmitArgPrefixes[SolverArguments] = AS_FAST,
    times: tyro.conf.OmitArgPrefixes[TimeArguments] = AT_ALL_TIMES,
    forbid: tuple[str, ...] = (),
    seed: int = 0,
    quick: bool = False,
    fresh: bool = False,
    out: Path = Path("runs/explain"),
) -> None:
    """Say what the experts behind a table of decisions were trading off.

    The table (CSV or Parquet) has one row per episode and time step: what was observed, then the action taken. The
    last row of an episode has no action. Columns that are not named are found by their content, or asked for.

    Args:
        table: CSV, gzipped CSV or Parquet file.
        columns: How the table is read.
        outcomes: What is weighed: features, or Outside(NAME, 36, 38), Above(NAME, 12), Below(NAME, 92), Change(NAME),
            Product(NAME, NAME); default: all features that are not static. The others are only seen and predicted.
        lower_is_better: Outcomes that nobody can want to be higher: their weights are negative.
        sign: Outcomes whose weight has a known sign, as NAME=-1 or NAME=+1.
        gamma: Discount factor, 0 to 1.
        outcome_model: What predicts the outcomes.
        policies: How the max-margin loop finds policies.
        times: Whether preferences change with time, and how far ahead the experts look.
        forbid: What the experts could not do: "ACTION when CONDITION" or "ACTION unless CONDITION", each a text of its
            own. Conditions: Above(NAME, 3), Below(NAME, 3), Outside(NAME, 3, 4), After(ACTION), joined by and.
        seed: Everything that is drawn.
        quick: A first look in a fraction of the time, with wider errors.
        fresh: Begin anew, even if the same command was stopped before and could go on.
        out: Folder for result.json, config.json, report.html and the models.
    """
    from irl.commands import run as commands
    from irl.result.resuming import remove
    from irl.settings import ExplainConfig, chosen_outcomes

    frame, found, options = columns.read(table)
    signs = known_signs(chosen_outcomes(found, outcomes), lower_is_better, sign)
    fit = times.put_into(policies.put_into(outcome_model.put_into(_fit_config(gamma, quick, forbid))))
    config = ExplainConfig(found, options, signs, seed, fit, outcomes)
    if fresh:
        remove(out)
    commands.explain(frame, config, out)


def tune(
    data: tyro.conf.Positional[Path],
    columns: tyro.conf.OmitArgPrefixes[TableArguments] = AS_FOUND,
    model: TunedModel = "crn",
    trials: int | None = None,
    sampler: Literal["random", "tpe"] = "random",
    prune: bool = True,
    alone: bool = False,
    storage: str | None = None,
    study: str | None = None,
    seed: int = 0,
    out: Path = Path("runs/tune"),
) -> None:
    """Search for the settings of an outcome model that predict best what happened next.

    The values that are tried are the paper's. A search that was stopped goes on when the same command is given again.

    Args:
        data: A table, as for cirl explain, or a batch.npz.
        columns: How the table is read.
        model: Outcome model.
        trials: How many settings are tried, those of earlier commands counted (default: 20, as in the paper).
        sampler: At random, none twice, or led by what was found (Optuna's TPE).
        prune: Stop trials that do worse than half of the others.
        alone: Without the linear law that the network otherwise corrects, as in the paper.
        storage: A journal file, an SQLite file (.db), or the URL of a database that machines share, as SQLAlchemy takes
            it (default: study.journal in the folder).
        study: Name of the study in the storage (default: the model's).
        seed: Everything that is drawn.
        out: Folder for tuning.json.
    """
    from cirl_gym.outcome_models.fitting import OutcomeModelConfig
    from cirl_gym.tuning.tuning import TuningConfig
    from irl.commands import tune as tune_command

    start = OutcomeModelConfig(base=not alone)
    config = TuningConfig(model, trials=trials, sampler=sampler, prune=prune, seed=seed, start=start)
    tune_command.tune(data, columns, config, storage, study, out)


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
    from irl.commands import expert as expert_command

    setting = Setting(weights, gamma)
    expert_command.expert(setting, algorithm, out, patients=patients, seed=seed, scale=scale)


def diagnose(
    run: tyro.conf.Positional[Path],
    out: Path | None = None,
    patients: int = 500,
    steps: int | None = None,
    seed: int = 0,
) -> None:
    """Say how far the outcome model of a run can be believed, on patients that it has not seen.

    Args:
        run: Folder that cirl demo or cirl explain left.
        out: Folder for diagnostics.json and diagnostics.html; default: the run's.
        patients: Held-out episodes, at most; of a simulated run they are drawn anew.
        steps: Look at most so many steps ahead; default: as far as the episodes go.
        seed: Everything that is drawn.
    """
    from irl.commands.diagnose import diagnose_run

    diagnose_run(run, out, patients=patients, seed=seed, steps=steps)


def compare(
    a: tyro.conf.Positional[Path],
    b: tyro.conf.Positional[Path],
    rescale: bool = False,
    out: Path = Path("runs/compare"),
) -> None:
    """Say by how much the weights of two runs of the same features differ, and how sure that is.

    The runs are taken as independent: no patient is in both. Weights are per range of a feature; ranges that differ a
    little are brought to one.

    Args:
        a: Folder that cirl demo or cirl explain left.
        b: Another such folder; its weights are taken from those of the first.
        rescale: Compare even if the ranges of a feature have less than 90 % in common.
        out: Folder for comparison.json.
    """
    from irl.commands.compare import compare_runs

    compare_runs(a, b, out, rescale=rescale)


def _fit_config(gamma: float, quick: bool, forbid: tuple[str, ...]) -> FitConfig:
    from irl.settings import FitConfig

    config = FitConfig(gamma=gamma, forbid=forbid)
    return config.quick() if quick else config


def known_signs(outcomes: Sequence[str], lower_is_better: Sequence[str], sign: Sequence[str]) -> dict[str, int]:
    """What ``--lower-is-better`` and ``--sign`` say, by outcome.

    Raises:
        ValueError: a name is not an outcome, an entry is not NAME=-1 or NAME=+1, or two entries contradict each other.
    """
    from cirl_gym.data.outcomes import read_outcome

    entries = [(name, "-1", "--lower-is-better") for name in lower_is_better]
    for entry in sign:
        name, found, value = entry.rpartition("=")
        if not found or value not in ("-1", "1", "+1"):
            raise ValueError(f"--sign takes NAME=-1 or NAME=+1, got {entry!r}")
        entries.append((name, value, "--sign"))
    signs: dict[str, int] = {}
    for text, value, option in entries:
        name = read_outcome(text, outcomes).name
        if name not in outcomes:
            raise ValueError(f"{option}: {name!r} is not an outcome; the outcomes are {', '.join(outcomes)}")
        if signs.setdefault(name, int(value)) != int(value):
            raise ValueError(f"{option}: {name!r} is given two different signs")
    return signs


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0, 2 for bad input, 130 when interrupted."""
    try:
        tyro.extras.subcommand_cli_from_dict(
            {
                "demo": demo,
                "explain": explain,
                "tune": tune,
                "diagnose": diagnose,
                "compare": compare,
                "baselines": baselines,
                "expert": expert,
            },
            prog="cirl",
            description="What were they trading off? Counterfactual inverse reinforcement learning.",
            args=arguments,
            config=(tyro.conf.FlagCreatePairsOff,),
        )
    except (ValueError, OSError, ImportError) as error:
        print(f"cirl: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("cirl: stopped; what was not finished left nothing that could be taken for a result.", file=sys.stderr)
        return 130
    return 0
