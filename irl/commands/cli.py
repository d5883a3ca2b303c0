"""The command line: ``cirl demo``, ``explain TABLE``, ``tune TABLE``, ``diagnose RUN``, ``compare A B``, ``expert``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import tyro

from irl.commands import options

COMMANDS: dict[str, tuple[Callable[..., Any], str]] = {
    "demo": (options.DemoOptions, "irl.commands.explain"),
    "explain": (options.ExplainOptions, "irl.commands.explain"),
    "tune": (options.TuneOptions, "irl.commands.tune"),
    "diagnose": (options.DiagnoseOptions, "irl.commands.diagnose"),
    "compare": (options.CompareOptions, "irl.commands.compare"),
    "baselines": (options.BaselinesOptions, "irl.commands.baselines"),
    "expert": (options.ExpertOptions, "irl.commands.expert"),
}
"""The options of each command and the module whose ``command`` takes them; it is imported when the command is given."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0, 2 for bad input, 130 when interrupted."""
    try:
        chosen = tyro.extras.subcommand_cli_from_dict(
            {name: kind for name, (kind, _) in COMMANDS.items()},
            prog="cirl",
            description="What were they trading off? Counterfactual inverse reinforcement learning.",
            args=arguments,
            config=(tyro.conf.FlagCreatePairsOff,),
        )
        home = next(module for kind, module in COMMANDS.values() if kind is type(chosen))
        import_module(home).command(chosen)
    except (ValueError, OSError, ImportError) as error:
        print(f"cirl: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("cirl: stopped; what was not finished left nothing that could be taken for a result.", file=sys.stderr)
        return 130
    return 0
