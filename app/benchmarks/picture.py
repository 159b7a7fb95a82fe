"""A report as a picture: a panel of horizontal bars, or of a curve, for each measure."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path

from app.benchmarks.report import Curve, Panel, show
from app.errors import UsageError
from app.files import replacing

FORMATS = (".png", ".svg", ".pdf")

_COLUMNS = 3
_CURVE_HEIGHT = 5  # in bars, where there are none
_ROOM = 0.3  # of the length of the longest bar, for the numbers
_OURS, _PEER, _INK = "#1f6fb4", "#b9bec4", "#333333"


def check(path: str) -> None:
    """Raises UsageError when no picture can be drawn to --plot=path."""
    if Path(path).suffix.lower() not in FORMATS:
        raise UsageError(f"--plot={path}: give a name that ends in {', '.join(FORMATS)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(f"--plot={path}: matplotlib is missing; pip install matplotlib")


def draw(panels: Sequence[Panel | Curve], title: str, caption: str, path: str) -> None:
    """Writes the picture. RunError when it cannot be written."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # optional
    from matplotlib.figure import Figure

    columns = min(_COLUMNS, max(1, len(panels)))  # all sides may have been left out
    rows = max(1, math.ceil(len(panels) / columns))
    bars = [len(panel.values) for panel in panels if isinstance(panel, Panel)]
    sides = max(bars, default=_CURVE_HEIGHT)
    size = (3.6 * columns, rows * (0.75 + 0.36 * sides) + 0.9)  # inches
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=_INK)
    if any(len(runs) > 1 for panel in panels for runs in panel.runs.values()):
        caption = f"Dots: single runs. {caption}"
    figure.supxlabel(caption, x=0.01, ha="left", fontsize=7, color=_INK)
    grid = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    scale = _log_scale(panels)
    for axes, panel in zip(grid, panels, strict=False):
        if isinstance(panel, Curve):
            _curve(axes, panel)
        else:
            _bars(axes, panel, sides, scale if panel.log else None)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    with replacing(path) as temporary:
        figure.savefig(temporary, format=Path(path).suffix[1:].lower(), dpi=150)


def _log_scale(panels: Sequence[Panel | Curve]) -> tuple[float, float] | None:
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


def _frame(axes, sides: list[str]) -> None:
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.spines[sides].set_visible(True)
    axes.spines[sides].set_color(_PEER)
