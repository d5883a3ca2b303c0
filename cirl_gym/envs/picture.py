"""Gymnasium's render modes: an episode so far as a line of text, as a picture, or in a window.

A picture has a panel per feature with its limit, and a strip of actions below the panels. Same input, same bytes,
whatever matplotlib was set to, and whatever was drawn before. What stays the same from one step to the next (axes,
limits, names) is drawn once; then only what has happened is added. So a picture takes a few hundredths of a second, and
an episode's pictures do not flicker. matplotlib (pictures) and pygame (windows) are imported when something is drawn.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cirl_gym.data.features import FeatureMap
from cirl_gym.types import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Picture: TypeAlias = npt.NDArray[np.uint8]

DPI = 100

# Colours by Okabe and Ito, which people with every kind of colour vision can tell apart; the yellow ones are darkened.
CURVES = ("#0072B2", "#009E73", "#7A5C00", "#CC79A7")
LIMIT, BEYOND, GREY, FAINT = "#D55E00", "#FBE9DF", "#555555", "#E4E4E4"
ACTIONS = ("#E8E8E8", "#333333", "#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#0072B2")
"""Action 0 is the palest, as it mostly means to do nothing. More actions than colours: from pale to dark by number."""

WIDTH = 640
TOP, BOTTOM, LEFT, RIGHT, BETWEEN = 30, 68, 52, 14, 50
"""Pixels: the borders around the panels, and the gap between columns of panels (their numbers stand in it)."""
STRIP, NAME, VALUE = 14, 25, 56
"""Pixels: height of the strip of actions, and of the line above a panel; width of the current value in that line."""
CHUNK = 10
"""Where no horizon is known, or it has passed, the time axis grows by so many steps at once."""


@dataclass(frozen=True)
class EpisodeSoFar:
    """What there is to show of an episode after k actions.

    Raises:
        ValueError: lengths do not fit together, or a value is not finite.
    """

    feature_map: FeatureMap
    """Names of the D observed features; the ranges of its outcomes are the least that the axes of a picture show."""
    obs: FloatArray
    """``[k+1, D]`` observations, raw units."""
    actions: tuple[int, ...]
    """The k actions, each in 0..A-1."""
    action_names: tuple[str, ...]
    """What each of the A actions means."""
    earned: float
    """Sum of the rewards so far, undiscounted."""
    limits: npt.ArrayLike = np.nan
    """``[D]`` raw values at which the process ends, NaN for a feature that has none; or one number for all."""
    horizon: int | None = None
    """The most actions that the episode can have; None: not known."""

    def __post_init__(self) -> None:
        d = len(self.feature_map.of)
        obs = np.array(self.obs, dtype=np.float64)
        limits = np.array(self.limits, dtype=np.float64)
        limits = np.full(d, limits) if limits.ndim == 0 else limits
        actions = tuple(int(action) for action in self.actions)
        if obs.shape != (len(actions) + 1, d) or not np.isfinite(obs).all():
            raise ValueError(
                f"EpisodeSoFar: obs must be finite numbers [{len(actions) + 1}, {d}], got shape {obs.shape}"
            )
        if limits.shape != (d,) or np.isinf(limits).any():
            raise ValueError(f"EpisodeSoFar: limits must be {d} numbers (NaN: none), got {limits}")
        if not all(0 <= action < len(self.action_names) for action in actions):
            raise ValueError(f"EpisodeSoFar: actions must lie in 0..{len(self.action_names) - 1}, got {actions}")
        if not np.isfinite(self.earned):
            raise ValueError(f"EpisodeSoFar: the reward so far must be finite, got {self.earned}")
        for name, value in (("obs", obs), ("limits", limits), ("actions", actions)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "action_names", tuple(str(name) for name in self.action_names))


def line(episode: EpisodeSoFar) -> str:
    """The current step as one line: what was done last, every feature with its limit, and the reward so far.

    ``step  2/20  treat  tumour 27.50 (limit 50)  side_effects 1.20 (limit 15)  reward so far -0.424``
    """
    k = len(episode.actions)
    step = f"step {k:2d}" if episode.horizon is None else f"step {k:2d}/{episode.horizon}"
    names = ("start", *episode.action_names)
    did = names[episode.actions[-1] + 1 if k else 0].ljust(max(map(len, names)))
    parts = [step, did]
    for name, value, limit in zip(episode.feature_map.of, episode.obs[-1], np.asarray(episode.limits), strict=True):
        parts.append(f"{name} {value:.2f}" + ("" if np.isnan(limit) else f" (limit {limit:g})"))
    # Adding 0.0 turns the -0.0 of a reward that rounds to nothing into 0.0.
    return "  ".join([*parts, f"reward so far {round(episode.earned, 3) + 0.0:.3f}"]) + "\n"


@dataclass(frozen=True)
class Frame:
    """The panels of a picture, one per feature."""

    features: tuple[str, ...]
    action_names: tuple[str, ...]
    low: tuple[float, ...]
    """``[d]`` lower end of every panel."""
    high: tuple[float, ...]
    """``[d]`` upper end of every panel."""
    limits: tuple[float | None, ...]
    """``[d]``."""
    span: int
    """Steps that the time axis shows."""

    @classmethod
    def of(cls, episode: EpisodeSoFar) -> Frame:
        """Panels that show the ranges of the feature map, the limits, and every observation so far."""
        phi, first, limits = episode.feature_map, episode.obs[0], np.asarray(episode.limits)
        # At least ranges and limits; of a feature without range its first value.
        ends = np.full((3, len(limits)), np.nan)
        for i, name in enumerate(phi.features):
            if name in phi.of:  # the range of a computed outcome is not its column's
                ends[:2, phi.of.index(name)] = phi.low[i], phi.high[i]
        ends[2] = limits
        bare = np.isnan(ends[:2]).all(axis=0)
        size = np.maximum(0.1 * np.abs(first[bare]), 1.0)
        ends[:2, bare] = first[bare] - size, first[bare] + size
        low, high = np.nanmin(ends, axis=0), np.nanmax(ends, axis=0)
        # Wider by halves, so that an episode which leaves the range does not change the axis at every step.
        half = (high - low) / 2
        low = low - half * np.ceil(np.maximum(low - episode.obs.min(axis=0), 0) / half)
        high = high + half * np.ceil(np.maximum(episode.obs.max(axis=0) - high, 0) / half)
        margin = 0.08 * (high - low)
        k, span = len(episode.actions), episode.horizon
        if span is None or k > span:
            span = max(-(-k // CHUNK), 1) * CHUNK
        return cls(
            episode.feature_map.of,
            episode.action_names,
            tuple((low - margin).tolist()),
            tuple((high + margin).tolist()),
            tuple(None if np.isnan(limit) else float(limit) for limit in limits),
            span,
        )

    @property
    def columns(self) -> int:
        """Panels beside each other."""
        d = len(self.features)
        return 1 if d <= 3 else 2 if d <= 6 else 3

    @property
    def rows(self) -> int:
        """Panels above each other."""
        return -(-len(self.features) // self.columns)

    @property
    def panel(self) -> tuple[int, int]:
        """Width and height of a panel in pixels."""
        width = (WIDTH - LEFT - RIGHT - (self.columns - 1) * BETWEEN) // self.columns
        tall = {1: 210, 2: 120, 3: 80} if self.columns == 1 else {2: 90}
        return width, tall.get(self.rows, 56)

    @property
    def height(self) -> int:
        """Height of the picture in pixels."""
        return TOP + self.rows * (NAME + self.panel[1]) + BOTTOM


class _Drawing:
    """A figure with a frame drawn once, and the artists that move."""

    def __init__(self, frame: Frame) -> None:
        from matplotlib import colormaps
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self.frame = frame
        self._gap = 0.08 if frame.span * 8 <= frame.panel[0] else 0.0
        n = len(frame.action_names)
        self._colours: list[Any] = list(ACTIONS[:n])
        if n > len(ACTIONS):
            self._colours = list(colormaps["viridis_r"](np.linspace(0.05, 1.0, n)))
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

    def picture(self, episode: EpisodeSoFar) -> Picture:
        """The frame, and on it what has happened."""
        self._canvas.restore_region(self._background)
        k = len(episode.actions)
        steps = f"step {k}" if episode.horizon is None else f"step {k} of {episode.horizon}"
        did = f"   last action: {_shortened(episode.action_names[episode.actions[-1]], 30)}" if k else ""
        self._titles[0].set_text(steps + did)
        self._titles[1].set_text(f"reward so far {_number(episode.earned, 2)}")
        moving: list[Any] = list(self._titles)
        for i, (curve, tip, value, decimals) in enumerate(self._panels):
            curve.set_data(range(k + 1), episode.obs[:, i])
            tip.set_data([k], episode.obs[-1:, i])
            value.set_text(_number(float(episode.obs[-1, i]), decimals))
            moving += [curve, tip, value]
        for strip in self._strips:
            # The mark of the action between t and t + 1.
            ends = [(t + self._gap, t + 1 - self._gap) for t in range(k)]
            strip.set_verts([np.array([(a, 0.0), (b, 0.0), (b, 1.0), (a, 1.0)]) for a, b in ends])
            strip.set_facecolor([self._colours[action] for action in episode.actions])
            moving.append(strip)
        for artist in moving:
            self._figure.draw_artist(artist)
        return np.asarray(self._canvas.buffer_rgba())[..., :3].copy()

    def _panel(self, k: int) -> tuple[Any, Any, Any, int]:
        """A feature's axes, name and limit.

        Returns:
            Its curve, the dot at the curve's end, the current value as text, and that one's decimals.
        """
        frame = self.frame
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
        colour = CURVES[k % len(CURVES)]
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

        frame = self.frame
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
        whole = self.frame.height
        axes = self._figure.add_axes((left / WIDTH, 1 - (top + height) / whole, width / WIDTH, height / whole))
        axes.set_xlim(-0.01 * self.frame.span, 1.01 * self.frame.span)
        axes.locator_params(axis="x", integer=True, nbins=10 if self.frame.columns == 1 else 5)
        axes.tick_params(labelsize=8, labelcolor=GREY, color=GREY)
        for spine in axes.spines.values():
            spine.set_color("#AAAAAA")
        return axes

    def _text(self, x: float, y: float, text: str = "", **style: Any) -> Any:
        """Text that begins (or ends: ``ha="right"``) x pixels from the left, its baseline y pixels from the top."""
        return self._figure.text(x / WIDTH, 1 - y / self.frame.height, text, **{"size": 8.5, "color": GREY, **style})

    def _width(self, text: Any) -> float:
        extent = text.get_window_extent(self._canvas.get_renderer())
        return float(extent.width)

    def _fit(self, text: Any, room: float) -> None:
        """Shorten a text until it takes no more than so many pixels."""
        whole: str = text.get_text()
        # Measuring takes time, so it begins near the end.
        most = min(len(whole), int(len(whole) * room / self._width(text)) + 3)
        text.set_text(_shortened(whole, most))
        while most > 1 and self._width(text) > room:
            most -= 1
            text.set_text(_shortened(whole, most))

    def _legend(self) -> None:
        """What the colours of the actions mean: of each or, where they go from pale to dark, of the first and last."""
        from matplotlib.patches import Rectangle

        names, height = self.frame.action_names, self.frame.height
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
        if self.frame.columns > 2 and any(limit is not None for limit in self.frame.limits):
            self._text(WIDTH - RIGHT, y, "dashed: limit", ha="right", color=LIMIT)


def _number(value: float, decimals: int) -> str:
    """With so many decimals (in words of few signs where that would be a long row of digits)."""
    # Adding 0.0 turns the -0.0 of what rounds to nothing into 0.0.
    plain = decimals <= 4 and abs(value) < 1e6
    rounded = f"{round(value, decimals) + 0.0:.{decimals}f}" if plain else f"{value:.3g}"
    return rounded.replace("-", "\N{MINUS SIGN}")


def _shortened(text: str, most: int) -> str:
    """Not longer than ``most`` characters."""
    return text if len(text) <= most else text[: max(most - 1, 1)].rstrip() + "\N{HORIZONTAL ELLIPSIS}"


class Renderer:
    """What an environment draws with: one of Gymnasium's render modes.

    The last picture's frame is there for the next. A copy (``pickle``, ``deepcopy``) draws the same and begins without
    a figure and a window.

    Args:
        mode: ``"ansi"``, ``"rgb_array"`` or ``"human"``.
        fps: the most pictures per second of a window; showing one waits until it is due.

    Raises:
        ValueError: the mode is unknown.
    """

    MODES = ("ansi", "rgb_array", "human")

    def __init__(self, mode: str, fps: float) -> None:
        if mode not in self.MODES:
            raise ValueError(f"render_mode must be one of {', '.join(map(repr, self.MODES))} or None, got {mode!r}")
        self.mode, self.fps = mode, fps
        self._drawing: _Drawing | None = None
        self._pygame: ModuleType | None = None
        self._screen: Any = None
        self._clock: Any = None

    def render(self, episode: EpisodeSoFar) -> str | Picture | None:
        """The episode as the mode wants it: :func:`line`, :meth:`picture`, or None once a window shows the picture.

        Raises:
            ImportError: the mode is ``"human"`` and pygame is not installed.
        """
        if self.mode == "ansi":
            return line(episode)
        picture = self.picture(episode)
        if self.mode == "rgb_array":
            return picture
        self.show(picture)
        return None

    def picture(self, episode: EpisodeSoFar) -> Picture:
        """``[H, 640, 3]`` uint8; H depends on the number of features alone."""
        import matplotlib

        frame = Frame.of(episode)
        # As matplotlib is delivered, whatever the user's own is set to; theirs is put back afterwards.
        with matplotlib.rc_context(), warnings.catch_warnings():
            # A sign that the font lacks is drawn as a box.
            warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
            matplotlib.rcdefaults()
            matplotlib.rcParams["text.parse_math"] = False  # a dollar sign in a name is a dollar sign
            if self._drawing is None or frame != self._drawing.frame:
                self._drawing = _Drawing(frame)
            return self._drawing.picture(episode)

    def show(self, picture: Picture) -> None:
        """Show a picture in a window, which opens with the first.

        Raises:
            ImportError: pygame is not installed; the message says what to install.
        """
        if self._pygame is None:
            try:
                import pygame as module
            except ImportError as error:
                raise ImportError('render_mode="human" needs pygame: pip install "cirl-gym[human]"') from error
            self._pygame = module
        pygame, size = self._pygame, (picture.shape[1], picture.shape[0])
        if self._screen is None or self._screen.get_size() != size:
            pygame.display.init()
            self._screen = pygame.display.set_mode(size)
            pygame.display.set_caption("CIRL")
            self._clock = pygame.time.Clock()
        # pygame counts columns first.
        pygame.surfarray.blit_array(self._screen, picture.swapaxes(0, 1))
        pygame.event.pump()
        pygame.display.flip()
        self._clock.tick(self.fps)

    def close(self) -> None:
        """Take the window away, if there is one; the next picture opens another."""
        if self._screen is not None and self._pygame is not None:
            self._pygame.display.quit()
        self._screen = self._clock = None

    def __getstate__(self) -> dict[str, Any]:
        """Without figure and window."""
        return {**self.__dict__, "_drawing": None, "_pygame": None, "_screen": None, "_clock": None}
