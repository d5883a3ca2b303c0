"""How a picture of a report looks, and how it becomes part of a page."""

from __future__ import annotations

import io
import re
import textwrap
import warnings
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Colours by Okabe and Ito (the yellow ones darkened), which people with every kind of colour vision can tell apart;
# marker and dash go along, and the lengths differ, so that many actions still look different.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#7A5C00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":")
BLUE, ORANGE, BAND, GREY = COLOURS[0], COLOURS[1], "#C9DDEC", "#666666"
WIDTH = 6.0
"""Inches; an SVG unit is 1/72 of one. Narrow, so that the text is still readable when a phone shrinks the picture."""
FONT = "DejaVu Sans"
"""Comes with matplotlib and is wide: what fits when measured with it fits in a reader's other fonts."""


def fold_name(name: str, width: int, lines: int = 2) -> str:
    """A name broken at blanks and underscores into a few short lines; what is too long ends in an ellipsis."""
    parts = textwrap.wrap(printable(name).replace("_", "_ "), width, break_long_words=True)
    folded = [part.replace("_ ", "_") for part in parts] or [""]
    if len(folded) > lines:
        folded = [*folded[: lines - 1], folded[lines - 1][: width - 1].rstrip() + "…"]
    return "\n".join(folded)


def printable(text: str) -> str:
    """Without the characters that XML forbids."""
    return "".join(character if character.isprintable() else " " for character in text)


def tidy(axes: Axes, grid: str) -> None:
    """Two spines less, and thin lines across ``"x"`` or ``"y"``."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x" if grid == "x" else "y", color="#E3E3E3", lw=0.7)
    axes.set_axisbelow(True)


def legend(figure: Figure, axes: Axes) -> None:
    """Below the picture, each label once."""
    handles, labels = axes.get_legend_handles_labels()
    entries = dict(zip(labels, handles, strict=True))
    columns = min(len(entries), 4)
    figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=columns, frameon=False)


def svg(name: str, label: str, height: float, draw: Callable[[Figure], None]) -> str:
    """Draw under fixed settings, whatever the reader's own matplotlib is set to.

    Args:
        name: of the picture on its page.
        label: what it shows, for those who do not see it.
        height: inches.
        draw: puts it on a figure.
    """
    with matplotlib.rc_context(), warnings.catch_warnings():
        # Glyphs that the measuring font lacks are drawn by the browser's fonts.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        matplotlib.rcdefaults()
        settings: dict[Any, Any] = {"svg.hashsalt": name, "svg.fonttype": "none", "text.parse_math": False}
        matplotlib.rcParams.update(settings | {"font.family": FONT, "font.size": 10.0})
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        draw(figure)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return _inline(text.getvalue(), name, printable(label))


def _inline(document: str, name: str, label: str) -> str:
    """An SVG document as an element of a page: names of its own, no namespaces, no global style, any width."""
    root = ElementTree.fromstring(document)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for key, value in list(element.attrib.items()):
            del element.attrib[key]
            short = key.rpartition("}")[2]
            named = f"{name}-{value}" if short == "id" else re.sub(r"^#|(?<=url\()#", f"#{name}-", value)
            element.attrib[short] = named.replace(f"'{FONT}'", f"'{FONT}', Verdana, Arial, sans-serif")
    for definitions in root.findall("defs"):
        for style in definitions.findall("style"):
            definitions.remove(style)
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.attrib |= {"role": "img", "aria-label": label, "stroke-linejoin": "round", "class": f"picture {name}"}
    return ElementTree.tostring(root, encoding="unicode")
