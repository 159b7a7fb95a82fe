"""A report as a picture: a panel of horizontal bars, or of curves, for each measure."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path

from ...errors import UsageError
from ...system.files import replacing
from .report import Curve, Lines, Panel, show

FORMATS = (".png", ".svg", ".pdf")

_COLUMNS = 3
_CURVE_HEIGHT = 5  # in bars, where there are none
_LINES_HEIGHT = 8
_ROOM = 0.3  # of the length of the longest bar, for the numbers
_OURS, _PEER, _INK = "#1f6fb4", "#b9bec4", "#333333"
# Of lines, told apart by colour-blind readers as well (Okabe and Ito 2008), and by their markers.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_MARKERS = "os^vDPX"
_PEER_LINE = "#7d848b"


def check(path: str) -> None:
    """Raises UsageError when no picture can be drawn to --plot=path."""
    if Path(path).suffix.lower() not in FORMATS:
        raise UsageError(f"--plot={path}: give a name that ends in {', '.join(FORMATS)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(f"--plot={path}: matplotlib is missing; pip install matplotlib")


def draw(panels: Sequence[Panel | Curve | Lines], title: str, caption: str, path: str) -> None:
    """Writes the picture. RunError when it cannot be written."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # optional
    from matplotlib.figure import Figure

    # All sides may have been left out. Four panels make two pairs.
    columns = 2 if len(panels) == 4 else min(_COLUMNS, max(1, len(panels)))
    rows = max(1, math.ceil(len(panels) / columns))
    bars = [len(panel.values) for panel in panels if isinstance(panel, Panel)]
    lines = [panel for panel in panels if isinstance(panel, Lines)]
    sides = max(bars, default=_LINES_HEIGHT if lines else _CURVE_HEIGHT)
    size = (3.6 * columns, rows * (0.75 + 0.36 * sides) + 0.9)  # inches
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=_INK)
    dotted = [panel for panel in panels if not isinstance(panel, Lines)]
    if any(len(runs) > 1 for panel in dotted for runs in panel.runs.values()):
        caption = f"Dots: single runs. {caption}"
    figure.supxlabel(caption, x=0.01, ha="left", fontsize=7, color=_INK)
    grid = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    scale = _log_scale(panels)
    for axes, panel in zip(grid, panels, strict=False):
        if isinstance(panel, Lines):
            _lines(axes, panel, _styles(lines))
        elif isinstance(panel, Curve):
            _curve(axes, panel)
        else:
            _bars(axes, panel, sides, scale if panel.log else None)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    if lines:
        handles = {handle.get_label(): handle for axes in figure.axes for handle in axes.lines}
        figure.legend(
            handles=list(handles.values()), loc="outside right center", fontsize=8, frameon=False
        )
    with replacing(path) as temporary:
        figure.savefig(temporary, format=Path(path).suffix[1:].lower(), dpi=150)


def _log_scale(panels: Sequence[Panel | Curve | Lines]) -> tuple[float, float] | None:
    """Limits of the logarithmic panels: powers of ten below the least bar, and room for numbers."""
    shown = [
        value
        for panel in panels
        if isinstance(panel, Panel) and panel.log
        for runs in (panel.values.values(), *panel.runs.values())
        for value in runs
    ]
    if not shown:
        return None
    low = 10 ** math.floor(math.log10(min(shown)) - 0.1)  # so that no bar is too short to see
    return low, max(shown) * (max(shown) / low) ** _ROOM


def _bars(axes, panel: Panel, sides: int, log_scale: tuple[float, float] | None) -> None:
    """sides: the most that a panel has, so that bars are as thick in all of them."""
    names, values = list(panel.values), list(panel.values.values())
    places = range(len(names))
    colours = [_OURS] * panel.ours + [_PEER] * (len(names) - panel.ours)
    if log_scale:
        axes.set_xscale("log")
    start = log_scale[0] if log_scale else 0
    axes.barh(places, [value - start for value in values], 0.62, start, color=colours)
    for place, name in enumerate(names):
        if len(panel.runs[name]) > 1:  # the single runs about their median
            dots = panel.runs[name]
            axes.plot(dots, [place] * len(dots), ".", color=_INK, markersize=3, clip_on=False)
        end = max(panel.values[name], *panel.runs[name], 0)
        text = f"  {show(panel.measure, panel.values[name])}"
        axes.text(end, place, text, va="center", fontsize=9, color=_INK)
    better = f" ({panel.measure.better} is better)" if panel.measure.better else ""
    remark = " (log scale)" if panel.log else better
    title = (panel.title or panel.measure.title) + remark
    axes.set_title(title, loc="left", fontsize=8, color=_INK)
    axes.set_yticks(list(places), names, fontsize=9, color=_INK)
    axes.set_ylim(sides - 0.5, -0.5)
    shown = [value for name in names for value in (0, panel.values[name], *panel.runs[name])]
    room = _ROOM * (max(shown) - min(shown) or 1)
    axes.set_xlim(*(log_scale or (min(shown), max(shown) + room)))
    axes.set_xticks([])
    axes.set_xticks([], minor=True)
    _frame(axes, ["left"])


def _curve(axes, curve: Curve) -> None:
    sizes, values = list(curve.values), list(curve.values.values())
    axes.set_xscale("log")
    axes.plot(sizes, values, "o-", color=_OURS, clip_on=False)
    for size, value in curve.values.items():
        dots = curve.runs[size]
        if len(dots) > 1:  # the single runs about their median
            axes.plot([size] * len(dots), dots, ".", color=_INK, markersize=3, clip_on=False)
        place, shift = (size, max(value, *dots)), (0, 6)
        text = show(curve.measure, value)
        axes.annotate(text, place, shift, textcoords="offset points", ha="center", fontsize=9)
    axes.set_title(curve.title, loc="left", fontsize=8, color=_INK)
    highest = max(value for dots in (values, *curve.runs.values()) for value in dots)
    axes.set_ylim(0, highest * (1 + _ROOM))
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=8, color=_INK)
    axes.set_xticks([], minor=True)
    axes.set_xlabel(curve.size, fontsize=8, color=_INK)
    axes.set_yticks([])
    _frame(axes, ["bottom"])


def _styles(panels: Sequence[Lines]) -> dict[str, dict[str, str]]:
    """How each side is drawn, the same in all panels."""
    peers = frozenset().union(*(panel.peers for panel in panels))
    names = list(dict.fromkeys(name for panel in panels for name in panel.values))
    names.sort(key=lambda name: name in peers)
    found = {}
    for place, name in enumerate(names):
        again, colour = divmod(place, len(_COLOURS))
        found[name] = {
            "color": _PEER_LINE if name in peers else _COLOURS[colour],
            "linestyle": "--" if name in peers else "-:"[again % 2],
            "marker": _MARKERS[place % len(_MARKERS)],
        }
    return found


def _lines(axes, lines: Lines, styles: dict[str, dict[str, str]]) -> None:
    for name, values in lines.values.items():
        axes.plot(
            list(values), list(values.values()), label=name, markersize=4, lw=1.2, **styles[name]
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    sizes = sorted({size for values in lines.values.values() for size in values})
    axes.set_title(lines.title, loc="left", fontsize=8, color=_INK)
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=8, color=_INK)
    axes.set_xticks([], minor=True)
    low, high = axes.get_ylim()
    if high < 100 * low:  # powers of ten alone would be too few
        axes.yaxis.get_major_locator().set_params(subs=(1, 2, 5))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.tick_params(axis="y", labelsize=8, labelcolor=_INK)
    axes.set_yticks([], minor=True)
    axes.grid(axis="y", color=_PEER, lw=0.3)
    axes.set_xlabel(lines.size, fontsize=8, color=_INK)
    _frame(axes, ["bottom"])


def _frame(axes, sides: list[str]) -> None:
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.spines[sides].set_visible(True)
    axes.spines[sides].set_color(_PEER)
