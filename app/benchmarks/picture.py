"""A report as a picture: horizontal bars, a panel for each measure."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path

from app.benchmarks.report import Panel, show
from app.errors import UsageError
from app.files import replacing

FORMATS = (".png", ".svg", ".pdf")

_COLUMNS = 3
_OURS, _PEER, _INK = "#1f6fb4", "#b9bec4", "#333333"


def check(path: str) -> None:
    """Raises UsageError when no picture can be drawn to --plot=path."""
    if Path(path).suffix.lower() not in FORMATS:
        raise UsageError(f"--plot={path}: give a name that ends in {', '.join(FORMATS)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(f"--plot={path}: matplotlib is missing; pip install matplotlib")


def draw(panels: Sequence[Panel], title: str, caption: str, path: str) -> None:
    """Writes the picture; the first side of a panel is ours. RunError when it cannot be written."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # optional
    from matplotlib.figure import Figure

    columns = min(_COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    sides = max(len(panel.values) for panel in panels)
    size = (3.6 * columns, rows * (0.75 + 0.36 * sides) + 0.9)  # inches
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=_INK)
    if any(len(runs) > 1 for panel in panels for runs in panel.runs.values()):
        caption = f"Dots: single runs. {caption}"
    figure.supxlabel(caption, x=0.01, ha="left", fontsize=7, color=_INK)
    grid = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for axes, panel in zip(grid, panels, strict=False):
        _bars(axes, panel)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    with replacing(path) as temporary:
        figure.savefig(temporary, format=Path(path).suffix[1:].lower(), dpi=150)


def _bars(axes, panel: Panel) -> None:
    names, values = list(panel.values), list(panel.values.values())
    places = range(len(names))
    axes.barh(places, values, height=0.62, color=[_OURS] + [_PEER] * (len(names) - 1))
    for place, name in enumerate(names):
        if len(panel.runs[name]) > 1:  # the single runs about their median
            dots = panel.runs[name]
            axes.plot(dots, [place] * len(dots), ".", color=_INK, markersize=3, clip_on=False)
        end = max(panel.values[name], *panel.runs[name], 0)
        text = f"  {show(panel.measure, panel.values[name])}"
        axes.text(end, place, text, va="center", fontsize=9, color=_INK)
    better = f" ({panel.measure.better} is better)" if panel.measure.better else ""
    axes.set_title(panel.measure.title + better, loc="left", fontsize=8, color=_INK)
    axes.set_yticks(list(places), names, fontsize=9, color=_INK)
    axes.invert_yaxis()
    shown = [value for name in names for value in (0, panel.values[name], *panel.runs[name])]
    room = 0.3 * (max(shown) - min(shown) or 1)  # for the numbers
    axes.set_xlim(min(shown), max(shown) + room)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.spines["left"].set_visible(True)
    axes.spines["left"].set_color(_PEER)
