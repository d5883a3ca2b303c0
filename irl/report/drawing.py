"""The report's pictures as inline SVG: same input, same bytes; text stays text; no global state of matplotlib."""

from __future__ import annotations

import io
import re
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal
from xml.etree import ElementTree

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.projections.polar import PolarAxes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from cirl_gym.data.batch import Batch
from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.types import FloatArray
from irl.report.section import percent, signed, typeset
from irl.result.effects import Effect
from irl.result.result import Accuracy, AgreementOverTime, HeldOutLikelihood, Result

# Colours by Okabe and Ito (the yellow ones darkened), which people with every kind of colour vision can tell apart;
# marker and dash go along, and the lengths differ, so that many actions still look different.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#7A5C00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":")
BLUE, ORANGE, BAND, GREY = COLOURS[0], COLOURS[1], "#C9DDEC", "#666666"
WIDTH = 6.0
"""Inches; an SVG unit is 1/72 of one. Narrow, so that the text is still readable when a phone shrinks the picture."""
ALONE = "preferences alone (CIRL)"
CORNERS = 3
"""A radar needs as many."""
_NEARLY = 0.01
"""So near to an end of what signs allow, a weight is at it."""
FONT = "DejaVu Sans"
"""Comes with matplotlib and is wide: what fits when measured with it fits in a reader's other fonts."""


@dataclass(frozen=True)
class WhatIf:
    """One history, and the outcomes that the model predicts if one action is taken at every step from now on.

    Raises:
        ValueError: shapes or names do not agree, or a number is not finite.
    """

    title: str
    features: tuple[str, ...]
    observed: FloatArray
    """``[t + 1, d]`` observations so far, raw units."""
    actions: tuple[str, ...]
    """``[t]`` names of the actions so far."""
    futures: Mapping[str, FloatArray]
    """By action's name ``[steps, d]`` predicted observations, raw units; shorter where the model expects an end."""
    units: tuple[str, ...] | None = None
    """``[d]`` units; None where they are not known."""

    def __post_init__(self) -> None:
        d = len(self.features)
        for name, values in {
            "observed": self.observed,
            **{f"futures[{k!r}]": v for k, v in self.futures.items()},
        }.items():
            if values.ndim != 2 or values.shape[1] != d or len(values) == 0 or not np.isfinite(values).all():
                raise ValueError(
                    f"WhatIf.{name} must be [steps, {d}] finite numbers with steps >= 1, got shape {values.shape}"
                )
        if not self.futures:
            raise ValueError("WhatIf.futures must have one future for each action")
        if len(self.actions) != len(self.observed) - 1:
            raise ValueError(f"WhatIf: {len(self.observed)} observations need one action less, got {len(self.actions)}")
        if self.units is not None and len(self.units) != d:
            raise ValueError(f"WhatIf.units must be {d} texts, got {len(self.units)}")

    @property
    def labels(self) -> tuple[str, ...]:
        """``[d]`` names with units."""
        units = self.units or ("",) * len(self.features)
        return tuple(f"{name} [{unit}]" if unit else name for name, unit in zip(self.features, units, strict=True))


def imagine(
    model: OutcomeModel,
    batch: Batch,
    steps: int = 8,
    outcomes: Sequence[str] | None = None,
    decision: tuple[int, int] | None = None,
) -> WhatIf:
    """One held-out history, and its expected futures if each action were taken at every step from then on.

    A future stops where the model holds an end for more likely than not.

    Args:
        model: predicts them.
        batch: held-out episodes.
        steps: length of the futures.
        outcomes: names of the features to show; default: all.
        decision: row of the episode, and the step of the first action that is imagined; default: the longest episode
            (the first of several), cut at its middle, so that there is a past to see.
    """
    longest = int(batch.lengths.argmax())
    episode, t = decision or (longest, int(batch.lengths[longest]) // 2)
    now = model.encode(batch.take(np.array([episode])))[0, t]
    shown = batch.features if outcomes is None else tuple(outcomes)
    columns = [batch.features.index(name) for name in shown]
    futures = {}
    for action, name in enumerate(batch.action_names):
        states, future = now[None], []
        for _ in range(steps):
            outcome = model.predict(states)[:, action]
            future.append(outcome[0, columns].astype(np.float64))
            if model.end_probability(states)[0, action] > 0.5:
                break
            states = model.advance(states, np.array([action]), outcome)
        futures[name] = np.stack(future)
    return WhatIf(
        title=f"Episode {batch.ids[episode]} after {t} steps",
        features=shown,
        observed=batch.obs[episode, : t + 1][:, columns].astype(np.float64),
        actions=tuple(batch.action_names[a] for a in batch.actions[episode, :t]),
        futures=futures,
    )


def fold_name(name: str, width: int, lines: int = 3) -> str:
    """A name broken at blanks and underscores into a few short lines; of one that is too long the last words are left
    out, with an ellipsis. Only a single word of more than twice the width is broken itself.
    """
    text = printable(name).replace("_", "_ ")
    words = [
        part for word in text.split() for part in (textwrap.wrap(word, width) if len(word) > 2 * width else [word])
    ]
    parts = textwrap.wrap(" ".join(words), width, break_long_words=False, break_on_hyphens=False)
    folded = [part.replace("_ ", "_") for part in parts] or [""]
    return "\n".join(folded if len(folded) <= lines else [*folded[:lines][:-1], f"{folded[lines - 1]} …"])


def left_open(result: Result) -> frozenset[str]:
    """Features of which average outcomes allow any weight that the known signs do."""
    signs = result.config.get("signs") or {}
    if not isinstance(signs, Mapping):
        signs = dict(zip(result.features, signs, strict=True))
    found = set()
    for name, (low, high) in result.identified_set.ranges.items():
        sign = signs.get(name, 0)
        least, most = (0.0 if sign > 0 else -1.0), (0.0 if sign < 0 else 1.0)
        if low <= least + _NEARLY and high >= most - _NEARLY:
            found.add(name)
    return frozenset(found)


def printable(text: str) -> str:
    """Without the characters that XML forbids."""
    return "".join(character if character.isprintable() else " " for character in text)


def svg(
    name: str,
    label: str,
    height: float,
    draw: Callable[..., None],
    *,
    grid: Literal["x", "y", "both"] = "y",
    shape: tuple[int, int] = (1, 1),
    **layout: Any,
) -> str:
    """Draw under fixed settings, whatever the reader's own matplotlib is set to.

    ``draw`` is given the axes of all panels, in ``shape`` of rows and columns; the first has the labels of the legend,
    if there is one. ``label`` is for those who do not see the picture, ``height`` is in inches.
    """
    with matplotlib.rc_context(), warnings.catch_warnings():
        # Glyphs that the measuring font lacks are drawn by the browser's fonts.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        matplotlib.rcdefaults()
        settings: dict[Any, Any] = {"svg.hashsalt": name, "svg.fonttype": "none", "text.parse_math": False}
        matplotlib.rcParams.update(settings | {"font.family": FONT, "font.size": 10.0})
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        panels: list[Axes] = list(figure.subplots(*shape, squeeze=False, **layout).ravel())
        draw(*panels)
        for axes in panels:
            for side in {"top", "right"} & set(axes.spines):
                axes.spines[side].set_visible(False)
            axes.grid(axis=grid, color="#E3E3E3", lw=0.7)
            axes.set_axisbelow(True)
        handles, labels = panels[0].get_legend_handles_labels()
        # Each label once.
        if entries := dict(zip(labels, handles, strict=True)):
            columns = min(len(entries), 4)
            figure.legend(entries.values(), entries, loc="outside lower center", ncols=columns, frameon=False)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return _inline(text.getvalue(), name, typeset(label))


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


def weights_on(axes: Axes, result: Result, names: Sequence[str], colour: str = BLUE, band: str = BAND) -> None:
    """Weights of the outcomes ``names``, 90 % intervals, identified set unless it is all, and the truth if known."""
    place, rows = [result.features.index(name) for name in names], np.arange(len(names))
    weights = [result.weights[i] for i in place]
    open_ones = left_open(result)
    for row, name in enumerate(names):
        low, high = result.identified_set.ranges[name]
        if name not in open_ones:
            axes.barh(row, high - low, left=low, height=0.56, color=band, label="average outcomes allow")
        axes.plot(result.intervals[name], [row, row], color=colour, lw=2.5, label="90 % interval")
    axes.plot(weights, rows, "o", color=colour, ms=7, label="weight")
    truth = [result.true_weights[i] for i in place] if result.true_weights else []
    if truth:
        axes.plot(truth, rows, "D", ms=9, mec=ORANGE, mfc="none", mew=1.8, label="truth")
    axes.axvline(0, color="black", lw=0.8)
    axes.set_yticks(rows, [fold_name(name, 24) for name in names])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    spans = [result.intervals[name] for name in names]
    spans += [result.identified_set.ranges[name] for name in names if name not in open_ones]
    ends = [0.0, *weights, *truth, *(end for span in spans for end in span)]
    pad = 0.05 * (max(ends) - min(ends))
    axes.set_xlim(min(ends) - pad, max(ends) + pad)
    axes.set_xlabel("weight")


def weights_svg(result: Result) -> str:
    """Weights that may be read, their 90 % intervals, identified set, and the truth where it is known."""
    names = [name for name in result.features if name not in result.uninterpreted]
    weights = dict(zip(result.features, result.weights, strict=True))
    label = "Weights: " + "; ".join(
        f"{name} {weights[name]:.2f} ({result.intervals[name][0]:.2f} to {result.intervals[name][1]:.2f})"
        for name in names
    )
    height = sum(0.42 if fold_name(name, 24).count("\n") < 2 else 0.6 for name in names)
    return svg("weights", label, 1.0 + height, lambda axes: weights_on(axes, result, names), grid="x")


def radar_on(axes: PolarAxes, result: Result, names: Sequence[str], colour: str = BLUE) -> None:
    """Sizes of the weights of outcomes on spokes (paper, figure 4), the first upward and the others clockwise.

    A name stands outside with its weight, and on each spoke are the sizes in the 90 % interval: of one that holds 0,
    from 0 to the farther end.
    """
    place = [result.features.index(name) for name in names]
    titles = [f"{fold_name(name, 18)}\n{signed(result.weights[i], 2)}" for name, i in zip(names, place, strict=True)]
    angles = np.linspace(0, 2 * np.pi, len(names), endpoint=False)
    axes.set_theta_offset(np.pi / 2)
    axes.set_theta_direction(-1)
    axes.set_xticks(angles, titles)
    axes.tick_params(axis="x", pad=10)
    axes.tick_params(axis="y", labelcolor=GREY)
    for label, angle in zip(axes.get_xticklabels(), angles, strict=True):
        side = np.sin(angle)  # to the right of the middle, or to the left
        label.set_horizontalalignment("center" if abs(side) < 0.1 else "left" if side > 0 else "right")
    for angle, name in zip(angles, names, strict=True):
        low, high = result.intervals[name]
        ends = [0.0 if low * high <= 0 else min(abs(low), abs(high)), max(abs(low), abs(high))]
        axes.plot([angle, angle], ends, color=colour, lw=5, alpha=0.35, solid_capstyle="butt", label="90 % interval")

    def around(weights: Sequence[float], form: str, **how: Any) -> None:
        sizes = [abs(weights[i]) for i in (*place, place[0])]
        axes.plot(np.append(angles, angles[0]), sizes, form, ms=5, **how)

    around(result.weights, "-o", color=colour, lw=1.8, label="size of the weight")
    axes.fill(angles, [abs(result.weights[i]) for i in place], color=colour, alpha=0.12)
    if result.true_weights:
        around(result.true_weights, "--D", color=ORANGE, mfc="none", label="truth")
    axes.spines["polar"].set_visible(False)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
    axes.set_ylim(0, None)


def radar_svg(result: Result) -> str:
    """Sizes of the weights that may be read, with 90 % intervals, around a circle."""
    names = [name for name in result.features if name not in result.uninterpreted]
    sizes = dict(zip(result.features, map(abs, result.weights), strict=True))
    label = "Sizes of weights: " + "; ".join(f"{name} {sizes[name]:.2f}" for name in names)
    draw = partial(radar_on, result=result, names=names)
    return svg("radar", label, 5.0, draw, grid="both", subplot_kw={"projection": "polar"})


def margins_svg(result: Result) -> str:
    """The margin after every round of the loop."""
    margins = [entry.margin for entry in result.rounds]

    def draw(axes: Axes) -> None:
        axes.plot([entry.k for entry in result.rounds], margins, "-o", color=BLUE, ms=4)
        axes.set_ylim(0, 1.08 * max(margins, default=1.0) or 1.0)
        axes.set_xlabel("round")
        axes.set_ylabel("margin")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))

    said = f"from {margins[0]:.3g} to {margins[-1]:.3g} in {len(margins)} rounds" if margins else "no rounds"
    return svg("margins", f"Margin of the loop: {said}", 2.6, draw)


def predicted_bars(found: HeldOutLikelihood, habits: bool) -> dict[str, float]:
    """Accuracy of the predicted experts, and of references that know no preferences, on the same decisions.

    Without ``habits``, which are then no more than frequencies, there is no habit among them.
    """
    return {
        "predicted experts (CIRL)": found.cirl.accuracy,
        **({"habit alone": found.habit.accuracy} if habits else {}),
        "gradient boosting": found.boosting.accuracy,
        "behaviour cloning": found.cloning.accuracy,
        "last-action table": found.last_action.accuracy,
        "most frequent action, foreseen": found.frequencies.accuracy,
    }


def acting_bars(accuracy: Accuracy) -> dict[str, float]:
    """Accuracy of the policy of the preferences alone, and of others that act, on held-out episodes."""
    return {
        ALONE: accuracy.cirl,
        "behaviour cloning, acting": accuracy.cloning,
        "most frequent action": accuracy.majority,
        "last action again": accuracy.repeat_last_action,
    }


def accuracy_svg(result: Result) -> str:
    """Accuracy of the predicted experts and of the preferences alone, each beside its references, and the ceiling."""
    accuracy = result.accuracy
    above = {} if result.likelihood is None else predicted_bars(result.likelihood, result.habits is not None)
    below = acting_bars(accuracy)
    bars = [*above.items(), *below.items()]
    # The two groups are about different decisions: a gap parts them.
    places = [*range(len(above)), *(len(above) + 0.6 * bool(above) + i for i in range(len(below)))]
    first = {0, len(above)}

    def draw(axes: Axes) -> None:
        colours = ["#7FB2D6" if i in first else "#D3DCE3" for i in range(len(bars))]
        axes.barh(places, [value for _, value in bars], height=0.6, color=colours)
        for place, (_, value) in zip(places, bars, strict=True):
            axes.text(0.015, place, percent(value), va="center")
        axes.set_yticks(places, [name for name, _ in bars])
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
        axes.set_xlabel("decisions met")
        if accuracy.ceiling is not None:
            low = [places[len(above)] - 0.45, places[-1] + 0.45]
            label = f"ceiling {percent(accuracy.ceiling)}"
            axes.plot([accuracy.ceiling] * 2, low, color=ORANGE, ls="--", lw=1.6, label=label)

    ceiling = "" if accuracy.ceiling is None else f"; ceiling {percent(accuracy.ceiling)}"
    label = "Accuracy: " + "; ".join(f"{name} {percent(value)}" for name, value in bars) + ceiling
    return svg("accuracy", label, 1.1 + 0.34 * len(bars), draw, grid="x")


def course_on(axes: Axes, what_if: WhatIf, feature: int) -> None:
    """One feature: what was observed, then the prediction under each action."""
    now = len(what_if.observed) - 1
    names = list(dict.fromkeys([*what_if.futures, *what_if.actions]))
    styles = {name: (COLOURS[i % 6], MARKERS[i % 7], DASHES[i % 4]) for i, name in enumerate(names)}
    past = what_if.observed[:, feature]
    axes.plot(past, color="black", lw=1.2, label="observed")
    for step, action in enumerate(what_if.actions):
        axes.plot(step, past[step], styles[action][1], color=styles[action][0], ms=5)
    for action, future in what_if.futures.items():
        color, marker, dash = styles[action]
        path = [past[now], *future[:, feature]]
        steps = np.arange(now, now + len(path))
        axes.plot(steps, path, dash, color=color, lw=1.8)
        axes.plot(steps[-1], path[-1], marker, color=color, ms=8, clip_on=False)
        axes.plot([], [], dash, marker=marker, color=color, lw=1.8, ms=6, label=f"if {printable(action)}")
    axes.axvline(now, color=GREY, ls=":", lw=1)
    axes.plot(now, past[now], "o", mfc="white", mec="black", ms=6)
    axes.margins(y=0.1)


def what_if_svg(what_if: WhatIf) -> str:
    """One panel per feature: what was observed, then the prediction under each action."""
    d, now = len(what_if.features), len(what_if.observed) - 1
    columns = 1 if d <= 2 else 2
    lines = -(-d // columns)

    def panel(axes: Axes, feature: int) -> None:
        course_on(axes, what_if, feature)
        axes.set_title(fold_name(what_if.labels[feature], 60 // columns), loc="left", fontsize=10)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8 // columns + 2, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4))

    def draw(*panels: Axes) -> None:
        for feature in range(d):
            panel(panels[feature], feature)
        for empty in panels[d:]:
            empty.set_axis_off()
        for last in panels[max(d - columns, 0) : d]:
            last.set_xlabel("step")
            last.tick_params(labelbottom=True)

    under = ", ".join(what_if.futures)
    label = f"Observed course up to step {now} and predicted courses under {under}, for {', '.join(what_if.labels)}"
    return svg(
        "what-if", label, 0.6 + (2.0 if columns == 1 else 1.6) * lines, draw, shape=(lines, columns), sharex=True
    )


def agreement_svg(over_time: AgreementOverTime) -> str:
    """Share of decisions met at every step, above how many episodes are still going on."""

    def draw(axes: Axes, left: Axes) -> None:
        axes.plot(over_time.cirl, "-o", color=BLUE, ms=4, label=ALONE)
        axes.plot(over_time.cloning, "--s", color=ORANGE, ms=4, label="behaviour cloning")
        axes.set_ylim(0, 1.03)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
        axes.set_ylabel("met")
        left.bar(range(len(over_time.episodes)), over_time.episodes, color=GREY)
        left.set_ylabel("episodes")
        left.set_xlabel("step")
        left.xaxis.set_major_locator(MaxNLocator(integer=True))
        left.yaxis.set_major_locator(MaxNLocator(nbins=2, integer=True))

    ends = f"{percent(over_time.cirl[0])} at step 0, {percent(over_time.cirl[-1])} at step {len(over_time.cirl) - 1}"
    return svg(
        "agreement",
        f"Decisions met over time by the learnt weights: {ends}",
        3.4,
        draw,
        shape=(2, 1),
        sharex=True,
        height_ratios=(3, 1),
    )


def effect_svg(effect: Effect, number: int) -> str:
    """One action's effect on the next value, by the current level; ``number`` tells the page's pictures apart."""

    def draw(axes: Axes) -> None:
        axes.axhline(0, color=GREY, lw=1)
        for part in effect.by_level:
            if part.interval is not None:
                axes.fill_between(part.level, *part.interval, color=BAND)
            axes.plot(part.level, (part.effect, part.effect), color=BLUE, lw=2)
        axes.set_xlabel("current level")
        axes.set_ylabel("effect on the next value")
        axes.set_title(fold_name(f"{effect.action} on {effect.outcome}", 60, 1), fontsize=10)

    parts = (f"{part.effect:+.3g} from {part.level[0]:.4g} to {part.level[1]:.4g}" for part in effect.by_level)
    label = f"Effect of {effect.action} on {effect.outcome} by level: {', '.join(parts)}"
    return svg(f"effect{number}", label, 2.4, draw)


def regret_svg(result: Result) -> str:
    """The experts' regret for every pair of weights, what still counts as equally well, and the reported pair.

    The weights lie on a line that goes round the corners at which one of them is zero.
    """
    found = result.identified_set
    points = np.array(found.profile)
    w, regret = points[:, :2], points[:, 2]
    along = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(w, axis=0)).sum(axis=1))])
    limit = max(found.minimum, 0.0) + found.tolerance
    corners = np.flatnonzero((np.abs(w) < 1e-9).any(axis=1))

    def draw(axes: Axes) -> None:
        axes.plot(along, regret, color=BLUE, lw=2, label="regret")
        axes.fill_between(along, 0, 1, where=regret <= limit, color=BAND, transform=axes.get_xaxis_transform())
        axes.axhline(limit, color=ORANGE, ls="--", lw=1.4, label="counts as equally well")
        here = int(np.abs(w - np.array(result.weights)).sum(axis=1).argmin())
        axes.plot(along[here], regret[here], "o", color=BLUE, ms=7, label="reported weights")
        first, second = (fold_name(name, 24) for name in result.features)
        axes.set_xticks(along[corners], [f"{first} {signed(a, 0)}\n{second} {signed(b, 0)}" for a, b in w[corners]])
        axes.set_ylabel("regret")

    best = w[int(regret.argmin())]
    return svg("regret", f"Regret of all pairs of weights, least at {signed(best[0])}, {signed(best[1])}", 3.0, draw)
