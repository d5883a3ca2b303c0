"""An episode so far as a picture: a panel per feature with its limit, and a strip of actions below the panels.

Same input, same bytes, whatever matplotlib was set to, and whatever was drawn before.

What stays the same from one step to the next (axes, limits, names) is drawn once and kept; a frame only adds what has
happened. So a frame takes a few hundredths of a second, and an episode's pictures do not flicker.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cirl_gym.course import Course
from cirl_gym.picture_frame import BETWEEN, LEFT, NAME, RIGHT, STRIP, TOP, VALUE, WIDTH, Frame
from cirl_gym.types import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Picture: TypeAlias = npt.NDArray[np.uint8]

DPI = 100

# Colours by Okabe and Ito, which people with every kind of colour vision can tell apart; the yellow ones are darkened.
COURSES = ("#0072B2", "#009E73", "#7A5C00", "#CC79A7")
LIMIT, BEYOND, GREY, FAINT = "#D55E00", "#FBE9DF", "#555555", "#E4E4E4"
ACTIONS = ("#E8E8E8", "#333333", "#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#0072B2")
"""Action 0 is the palest, as it mostly means to do nothing. More actions than colours: from pale to dark by number."""


class Sheet:
    """Draws pictures; the last picture's frame is kept for the next. A copy draws the same and begins without one."""

    def __init__(self) -> None:
        self._frame: Frame | None = None
        self._drawing: _Drawing | None = None

    def picture(self, course: Course) -> Picture:
        """``[H, 640, 3]`` uint8; H depends on the number of features alone."""
        frame = Frame.of(course)
        with _fixed_settings():
            if self._drawing is None or frame != self._frame:
                self._frame, self._drawing = frame, _Drawing(frame)
            return self._drawing.picture(course)

    def __getstate__(self) -> dict[str, Any]:
        """Without the figure."""
        return {"_frame": None, "_drawing": None}


class _Drawing:
    """A figure with a frame drawn once, and the artists that move."""

    def __init__(self, frame: Frame) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self._frame = frame
        self._gap = 0.08 if frame.span * 8 <= frame.panel[0] else 0.0
        self._colours = _action_colours(len(frame.action_names))
        self._figure = Figure(figsize=(WIDTH / DPI, frame.height / DPI), dpi=DPI, facecolor="white")
        # Parts of matplotlib's canvas are without types.
        canvas: Any = FigureCanvasAgg(self._figure)
        self._canvas = canvas
        self._panels = [self._panel(k) for k in range(len(frame.features))]
        self._strips = [self._strip(column) for column in range(frame.columns)]
        self._titles = [
            self._text(LEFT, 19, size=10, animated=True),
            self._text(WIDTH - RIGHT, 19, size=10, weight="bold", ha="right", animated=True),
        ]
        self._legend()
        # What is animated is left out here.
        self._canvas.draw()
        self._background = self._canvas.copy_from_bbox(self._figure.bbox)

    def picture(self, course: Course) -> Picture:
        """The frame, and on it what has happened."""
        self._canvas.restore_region(self._background)
        k = len(course.actions)
        steps = f"step {k}" if course.horizon is None else f"step {k} of {course.horizon}"
        did = f"   last action: {_shortened(course.action_names[course.actions[-1]], 30)}" if k else ""
        self._titles[0].set_text(steps + did)
        self._titles[1].set_text(f"reward so far {_number(course.earned, 2)}")
        moving: list[Any] = list(self._titles)
        for i, (curve, tip, value, decimals) in enumerate(self._panels):
            curve.set_data(range(k + 1), course.obs[:, i])
            tip.set_data([k], course.obs[-1:, i])
            value.set_text(_number(float(course.obs[-1, i]), decimals))
            moving += [curve, tip, value]
        for strip in self._strips:
            strip.set_verts([_cell(t, self._gap) for t in range(k)])
            strip.set_facecolor([self._colours[action] for action in course.actions])
            moving.append(strip)
        for artist in moving:
            self._figure.draw_artist(artist)
        return np.asarray(self._canvas.buffer_rgba())[..., :3].copy()

    def _panel(self, k: int) -> tuple[Any, Any, Any, int]:
        """A feature's axes, name and limit.

        Returns:
            Its curve, the dot at the curve's end, the current value as text, and that one's decimals.
        """
        frame = self._frame
        row, column = divmod(k, frame.columns)
        width, height = frame.panel
        left = LEFT + column * (width + BETWEEN)
        top = TOP + NAME + row * (NAME + height)
        low, high, limit = frame.low[k], frame.high[k], frame.limits[k]
        decimals = max(int(2 - np.floor(np.log10(high - low))), 0)
        axes = self._axes(left, top, width, height)
        axes.set_ylim(low, high)
        axes.grid(color=FAINT, linewidth=0.6)
        axes.tick_params(labelbottom=False, length=0)
        axes.locator_params(axis="y", nbins=5 if height > 60 else 2)
        # By default a common factor would stand above the axis, where the name is.
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}".replace("-", "\N{MINUS SIGN}"))
        small = frame.columns > 2
        room: float = width - (VALUE - 10 if small else VALUE)
        if limit is not None:
            axes.axhspan(limit, high, color=BEYOND, linewidth=0)
            axes.axhline(limit, color=LIMIT, linewidth=1.4, linestyle="--")
        if limit is not None and not small:
            label = self._text(left + room, top - 6, f"limit {limit:g}", ha="right", color=LIMIT)
            room -= self._width(label) + 8
        colour = COURSES[k % len(COURSES)]
        style = {"color": colour, "weight": "bold" if frame.columns == 1 else "normal", "size": 8 if small else 8.5}
        self._fit(self._text(left, top - 6, frame.features[k].replace("_", " "), **style), room)
        dots = "o" if frame.span * 6 <= width else ""
        curve = axes.plot([], [], color=colour, linewidth=1.8, marker=dots, markersize=3, animated=True)[0]
        tip = axes.plot([], [], color=colour, marker="o", markersize=6, clip_on=False, animated=True)[0]
        value = self._text(left + width, top - 6, weight="bold", ha="right", color=colour, animated=True)
        return curve, tip, value, decimals

    def _strip(self, column: int) -> Any:
        """The strip of actions below a column of panels, with the time axis; returned are its cells."""
        from matplotlib.collections import PolyCollection

        frame = self._frame
        width, height = frame.panel
        top = TOP + frame.rows * (NAME + height) + 6
        axes = self._axes(LEFT + column * (width + BETWEEN), top, width, STRIP)
        axes.set_ylim(0, 1)
        axes.set_yticks([])
        axes.tick_params(length=2, pad=2)
        for side in ("left", "top", "right"):
            axes.spines[side].set_visible(False)
        cells = PolyCollection([], linewidths=0, animated=True)
        axes.add_collection(cells, autolim=False)
        if column == 0:
            self._text(LEFT - 8, top + STRIP - 3, "action", ha="right")
            self._text(LEFT - 8, top + STRIP + 14, "step", ha="right")
        return cells

    def _axes(self, left: float, top: float, width: float, height: float) -> Axes:
        whole = self._frame.height
        axes = self._figure.add_axes((left / WIDTH, 1 - (top + height) / whole, width / WIDTH, height / whole))
        axes.set_xlim(-0.01 * self._frame.span, 1.01 * self._frame.span)
        axes.locator_params(axis="x", integer=True, nbins=10 if self._frame.columns == 1 else 5)
        axes.tick_params(labelsize=8, labelcolor=GREY, color=GREY)
        for spine in axes.spines.values():
            spine.set_color("#AAAAAA")
        return axes

    def _text(self, x: float, y: float, text: str = "", **style: Any) -> Any:
        """Text that begins (or ends: ``ha="right"``) x pixels from the left, its baseline y pixels from the top."""
        return self._figure.text(x / WIDTH, 1 - y / self._frame.height, text, **{"size": 8.5, "color": GREY, **style})

    def _width(self, text: Any) -> float:
        extent = text.get_window_extent(self._canvas.get_renderer())
        return float(extent.width)

    def _fit(self, text: Any, room: float) -> None:
        """Shorten a text until it takes no more than so many pixels."""
        whole: str = text.get_text()
        most = len(whole)
        # Measuring takes time, so it begins near the end.
        most = min(most, int(most * room / self._width(text)) + 3)
        text.set_text(_shortened(whole, most))
        while most > 1 and self._width(text) > room:
            most -= 1
            text.set_text(_shortened(whole, most))

    def _legend(self) -> None:
        """What the colours of the actions mean: of each or, where they go from pale to dark, of the first and last."""
        from matplotlib.patches import Rectangle

        names, height = self._frame.action_names, self._frame.height
        shown = list(enumerate(names))
        if len(names) > len(ACTIONS):
            shown = [shown[0], shown[-1]]
        x, y, room = float(LEFT), height - 11, (WIDTH - LEFT - RIGHT) / len(shown)
        for place, (action, name) in enumerate(shown):
            corner = (x / WIDTH, 1 - y / height)
            box = Rectangle(corner, 10 / WIDTH, 10 / height, facecolor=self._colours[action], edgecolor=GREY, lw=0.5)
            self._figure.add_artist(box)
            label = self._text(x + 15, y, name if place == 0 or len(shown) == len(names) else f"to   {name}")
            self._fit(label, room - 35)
            x += 35 + self._width(label)
        if self._frame.columns > 2 and any(limit is not None for limit in self._frame.limits):
            self._text(WIDTH - RIGHT, y, "dashed: limit", ha="right", color=LIMIT)


def _cell(t: int, gap: float) -> FloatArray:
    """``[4, 2]`` corners of the mark of the action between t and t + 1."""
    return np.array([(t + gap, 0.0), (t + 1 - gap, 0.0), (t + 1 - gap, 1.0), (t + gap, 1.0)])


def _action_colours(n: int) -> list[Any]:
    """A colour for each of n actions."""
    if n <= len(ACTIONS):
        return list(ACTIONS[:n])
    from matplotlib import colormaps

    return list(colormaps["viridis_r"](np.linspace(0.05, 1.0, n)))


def _number(value: float, decimals: int) -> str:
    """With so many decimals (in words of few signs where that would be a long row of digits)."""
    # Adding 0.0 turns the -0.0 of what rounds to nothing into 0.0.
    plain = decimals <= 4 and abs(value) < 1e6
    rounded = f"{round(value, decimals) + 0.0:.{decimals}f}" if plain else f"{value:.3g}"
    return rounded.replace("-", "\N{MINUS SIGN}")


def _shortened(text: str, most: int) -> str:
    """Not longer than ``most`` characters."""
    return text if len(text) <= most else text[: max(most - 1, 1)].rstrip() + "\N{HORIZONTAL ELLIPSIS}"


@contextmanager
def _fixed_settings() -> Iterator[None]:
    """Draw with matplotlib as it is delivered, whatever the user's own is set to; theirs is put back afterwards."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        # A sign that the font lacks is drawn as a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        matplotlib.rcdefaults()
        matplotlib.rcParams["text.parse_math"] = False  # a dollar sign in a name is a dollar sign
        yield
