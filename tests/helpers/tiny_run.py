"""Whole runs of a few seconds: every stage does its work, only far too little of it to find anything out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from agents.as_printed.training import HistoryTrainingConfig
from agents.policies.cloning import CloningConfig
from agents.successor.agent import SuccessorConfig
from cirl_gym.data.batch import Batch
from cirl_gym.outcome_models.fitting import OutcomeModelConfig
from cirl_gym.tables.columns import infer_columns
from cirl_gym.tables.files import read_table
from cirl_gym.worlds.tumour import TumourParameters
from irl.checks.quality import QualityConfig
from irl.commands.cli import main
from irl.pipeline import Fit, fit
from irl.preferences.inference import PosteriorConfig
from irl.settings import DemoConfig, ExplainConfig, FitConfig
from irl.stages import Stages, stages
from irl.study import Study

ICU_TABLE = Path(__file__).resolve().parents[2] / "examples" / "icu_like.csv"
"""The synthetic table that ships with the repository."""

AGENT = SuccessorConfig(episodes=100, gradient_steps=5, batch_size=64, width=2, hidden=(16,))
POSTERIOR = PosteriorConfig(decisions=100, plans=3, near_plans=2, draws=50)
RUN_CLI = "import sys; from irl.commands.cli import main; sys.exit(main(sys.argv[1:]))"
"""What the console script does, for ``python -c``."""


def tiny_fit(**changes) -> FitConfig:
    cloning = CloningConfig(hidden=4)
    config = FitConfig(
        model="ar",
        outcome=OutcomeModelConfig.quick(),
        agent=AGENT,
        cloning=replace(cloning, training=replace(cloning.training, epochs=2)),
        posterior=POSTERIOR,
        quality=QualityConfig(weights=4, starts=2, limit=None),
        rounds=3,
        repeats=2,
        starts=20,
    )
    return replace(config, **changes)


def tiny_demo(**changes) -> DemoConfig:
    config = DemoConfig(
        episodes=80,
        test_episodes=20,
        parameters=TumourParameters(horizon=6),
        expert=replace(AGENT, weights_per_history=1),
        fit=tiny_fit(),
    )
    return replace(config, **changes)


FEW = HistoryTrainingConfig(hidden=4, batch_size=4, iterations=2, target_every=1)
"""Trainings of the loop as the paper prints it."""


def tiny_printed() -> DemoConfig:
    """Policies and their mu trained anew in every round, as the paper does."""
    return tiny_demo(fit=tiny_fit(solver="drqn", mu="mu_learning", histories=FEW, rounds=1))


def fitted(
    train: Batch, validation: Batch, config: FitConfig, signs=(-1.0, -1.0), seed: int = 0, run: Stages | None = None
) -> Fit:
    """A fit to the simulator's patients, over its full ranges; nobody watches unless ``run`` is given."""
    ranges, watch = TumourParameters().feature_map, run or stages(9, quiet=True)
    return fit(Study(train, validation, ranges, np.array(signs, dtype=float), config, seed, watch))


def tiny_explain(frame: pd.DataFrame, features: Sequence[str], **changes) -> ExplainConfig:
    config = ExplainConfig(infer_columns(frame, features=features), fit=tiny_fit())
    return replace(config, **changes)


def icu_stays(stays: int = 60) -> pd.DataFrame:
    """The first stays of the synthetic table, every cell as text, the index counting the lines of the file."""
    frame = read_table(ICU_TABLE)
    return frame[frame["stay_id"].isin(frame["stay_id"].unique()[:stays])]


def make_the_command_line_tiny(monkeypatch) -> None:
    """What ``irl.commands.cli.main`` runs takes seconds; options not about how much work is done still count."""

    def fit_config(gamma, quick, forbid):
        return tiny_fit(gamma=gamma, forbid=forbid)

    def demo_config(config):
        tiny = tiny_demo()
        return replace(config, episodes=tiny.episodes, test_episodes=20, parameters=tiny.parameters, expert=tiny.expert)

    monkeypatch.setattr("irl.commands.options._usual_fit", fit_config)
    monkeypatch.setattr("irl.settings.FOLDS", 2)
    monkeypatch.setattr(DemoConfig, "quick", demo_config)


def refused(capsys, *arguments) -> str:
    """The message of a command that must fail as bad input fails."""
    assert main([str(argument) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("cirl: error: ")
    assert "Traceback" not in captured.err + captured.out
    assert captured.err.count("cirl: error") == 1
    return captured.err.removeprefix("cirl: error: ").rstrip("\n")
