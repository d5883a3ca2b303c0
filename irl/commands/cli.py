"""The command line: ``cirl demo``, ``explain TABLE``, ``why RUN PATIENT STEP``, ``tune TABLE`` and all others."""

from __future__ import annotations

import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module, metadata
from typing import Any

COMMANDS = {
    "demo": ("DemoOptions", "irl.commands.explain"),
    "explain": ("ExplainOptions", "irl.commands.tables"),
    "case-study": ("CaseStudyOptions", "irl.commands.case_study"),
    "why": ("WhyOptions", "irl.commands.why"),
    "tune": ("TuneOptions", "irl.commands.tables"),
    "diagnose": ("DiagnoseOptions", "irl.commands.diagnose"),
    "compare": ("CompareOptions", "irl.commands.compare"),
    "baselines": ("BaselinesOptions", "irl.commands.baselines"),
    "benchmark": ("BenchmarkOptions", "irl.commands.benchmark"),
    "expert": ("ExpertOptions", "irl.commands.expert"),
}
"""The options of each command and the module whose ``command`` takes them; it is imported when the command is given."""
DEBUG = "--debug"
"""Anywhere among the arguments: where an error came from is shown too."""
VERSION = "--version"
"""As the first argument: which release this is."""
NARROW = 40
"""Characters of a line of help at the least."""
SHARED = ("TuneOptions", "WhyOptions")
"""Commands of which several may work in one folder, or that write nothing; so does a report of what is there."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status.

    0; 2 for bad input; 1 for a fault that nobody foresaw; 130 when interrupted and 143 when terminated.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug, own = DEBUG in given, [argument for argument in given if argument != DEBUG]
    try:
        # From here on Ctrl-C has its answer, while the rest is still being imported too.
        from irl.commands.terminal import leave_at_once, steady, stoppable

        with steady(), stoppable():
            status = _answered(own, debug)
        if arguments is None:
            leave_at_once()
        return status
    except KeyboardInterrupt:
        return 130


def _answered(arguments: Sequence[str], debug: bool) -> int:
    """Run a command; whatever it ends with is one line and an exit status."""
    from cirl_gym.files import escaped
    from irl.commands.terminal import Terminated

    try:
        _run(arguments)
    except KeyboardInterrupt as error:
        told = "stopped; what was not finished left nothing that could be taken for a result."
        print(f"cirl: {told}", file=sys.stderr)
        return 143 if isinstance(error, Terminated) else 130
    except Exception as error:
        if debug:
            traceback.print_exc()
        expected = isinstance(error, ValueError | OSError | ImportError | MemoryError)
        told = str(error) or type(error).__name__
        if isinstance(error, MemoryError):
            told = f"not enough memory: {told}"
        if not expected:
            told = (
                f"{type(error).__name__}: {told} (nobody foresaw this: cirl {DEBUG} with the same command shows where)"
            )
        print(f"cirl: error: {escaped(told)}", file=sys.stderr)
        return 2 if expected else 1
    return 0


def _run(arguments: Sequence[str]) -> None:
    if list(arguments[:1]) == [VERSION]:
        print(f"cirl {metadata.version('cirl-gym')}")
        return
    import tyro

    from cirl_gym.files import held
    from irl.commands import options

    kinds: dict[str, Callable[..., Any]] = {name: getattr(options, kind) for name, (kind, _) in COMMANDS.items()}
    with _room_for_help():
        chosen: Any = tyro.extras.subcommand_cli_from_dict(
            kinds,
            prog="cirl",
            description="What were they trading off? Counterfactual inverse reinforcement learning. "
            f"With {DEBUG}, an error shows where it came from; {VERSION} alone says which release this is.",
            args=arguments,
            config=(tyro.conf.FlagCreatePairsOff,),
        )
    home = next(module for kind, module in COMMANDS.values() if kind == type(chosen).__name__)
    if type(chosen).__name__ in SHARED or getattr(chosen, "report", None) is not None:
        import_module(home).command(chosen)
        return
    with held(chosen.run if chosen.out is None else chosen.out):
        import_module(home).command(chosen)


@contextmanager
def _room_for_help() -> Iterator[None]:
    """The parser's help comes to no end where hardly a word fits a line: inside, lines have 40 characters at least."""
    before = os.environ.get("COLUMNS")
    if shutil.get_terminal_size().columns < NARROW:
        os.environ["COLUMNS"] = str(NARROW)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("COLUMNS", None)
        else:
            os.environ["COLUMNS"] = before
