"""The documentation as a site: ``make docs`` writes it to docs/_build."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

from sphinx.ext.napoleon import GoogleDocstring

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

project = "cirl-gym"
version = release = installed_version("cirl-gym")

extensions = ["sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "myst_parser"]
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]

# Pages are Markdown and can be read as such: what they link to by heading is found here too.
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath"]

autosummary_generate = True
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = "cirl-gym"


ATTRIBUTES = ("attribute", "data", "property")
_kept: dict[str, list[str]] = {}


def setup(app: Any) -> None:
    """Docstrings are changed before napoleon (priority 500) reads them, and after."""
    app.connect("autodoc-process-docstring", _before, priority=400)
    app.connect("autodoc-process-docstring", _after, priority=600)


def _before(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Headings, which Gymnasium's environments write in Markdown, are rubrics; attributes are kept from napoleon.

    It would take what stands before a colon for a type, and read no sections. They are read as a function's.
    """
    if what in ATTRIBUTES:
        _kept[name], lines[:] = list(lines), []
    lines[:] = [f".. rubric:: {line[3:]}" if line.startswith("## ") else line for line in lines]


def _after(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if what in ATTRIBUTES:
        lines[:] = GoogleDocstring(_kept.pop(name), app.config, app, "function", name, obj, options).lines()
