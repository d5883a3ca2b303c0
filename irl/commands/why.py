"""``cirl why RUN PATIENT STEP``: what tipped a decision of a held-out patient."""

from __future__ import annotations

import torch

from irl.commands.options import WhyOptions
from irl.commands.terminal import console
from irl.report.terminal import show
from irl.report.why import report_of_why
from irl.run import Run
from irl.studies.why import Why


def command(options: WhyOptions) -> Why:
    """Explain a decision of a run, and print it; nothing is written.

    Raises:
        ValueError: the folder is not a whole run's, or there is no such patient or step.
    """
    torch.set_num_threads(1)
    run = Run(options.run)
    found = run.why(options.patient, options.step)
    show(report_of_why(run.result, found), console())
    return found
