"""Runs that several files look at, and that nobody changes."""

from __future__ import annotations

import pytest
from tiny_run import tiny_demo

from irl.commands.explain import demo


@pytest.fixture(scope="session")
def demo_run(tmp_path_factory):
    """The folder of a whole run of :func:`tiny_demo`."""
    folder = tmp_path_factory.mktemp("demo")
    demo(tiny_demo(), folder)
    return folder
