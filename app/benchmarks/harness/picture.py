"""Draw the panels of a report: horizontal bars, or lines over a size."""

from __future__ import annotations

import importlib.util
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path

from ...errors import UsageError
from ...system.files import replacing
from .report import Lines, Panel, show

FORMATS = (".png", ".svg", ".pdf")

_COLUMNS = 3
_LINES_HEIGHT = 8  # in bars, if no panel has bars
_TITLE_WIDTH = 9  # characters of the title for an inch
_ROOM = 0.3  # for the numbers, as a share of the longest bar
_OURS, _PEER, _INK = "#1f6fb4", "#b9bec4", "#333333"
# Colours of lines that colour-blind readers can tell apart (Okabe and Ito 2008).
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_MARKERS = "os^vDPX"
_PEER_LINE = "#7d848b"


def check(path: str) -> None:
    """Check the suffix of a picture's file, and that matplotlib is installed.

    Args:
        path: The value of --plot.

    Raises:
        UsageError: The file name has another suffix, or matplotlib is missing.
    """
    if Path(path).suffix.lower() not in FORMATS:
        raise UsageError(f"--plot={path}: give a name that ends in {', '.join(FORMATS)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(f"--plot={path}: matplotlib is missing; pip install matplotlib")


def draw(panels: Sequence[Panel | Lines], title: str, caption: str, path: str) -> None:
    """Draw panels, and write the picture, in the format of the file's suffix.

    Args:
        panels: The panels, in a grid of up to three columns. Without any, a title and a caption
            are drawn.
        title: The title.
        caption: The text below, after a remark if there are dots for single runs.
        path: The file to write; see `check`.

    Raises:
        UsageError: The path is a folder or a device.
        RunError: The file cannot be written.
    """
    from matplotlib.figure import Figure  # optional

    # There is no panel if all sides were left out. Four panels are two rows of two.
    columns = 2 if len(panels) == 4 else min(_COLUMNS, max(1, len(panels)))
    rows = max(1, math.ceil(len(panels) / columns))
    lines = [panel for panel in panels if isinstance(panel, Lines)]
    barred = [panel for panel in panels if isinstance(panel, Panel)]
    sides = max((len(panel.values) for panel in barred), default=_LINES_HEIGHT)
    size = (3.6 * columns, rows * (0.75 + 0.36 * sides) + 0.9)  # inches
    figure = Figure(figsize=size, layout="constrained")
    title = textwrap.fill(title, int(_TITLE_WIDTH * size[0]))
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=_INK)
    if any(len(runs) > 1 for panel in barred for runs in panel.runs.values()):
        caption = f"Dots: single runs. {caption}"
    figure.supxlabel(caption, x=0.01, ha="left", fontsize=7, color=_INK)
    grid = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    scale = _log_scale(panels)
    for axes, panel in zip(grid, panels, strict=False):
        if isinstance(panel, Lines):
            _lines(axes, panel, _styles(lines))
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


def _log_scale(panels: Sequence[Panel | Lines]) -> tuple[float, float] | None:
    """Return the limits that all logarithmic panels of bars share, or None if there is none.

    The lower limit is a power of ten; above the longest bar there is room for its number.
    """
    shown = [
        value
        for panel in panels
        if isinstance(panel, Panel) and panel.log
        for runs in (panel.values.values(), *panel.runs.values())
        for value in runs
    ]
    if not shown:
        return None
    low = 10 ** math.floor(math.log10(min(shown)) - 0.1)  # a power of ten below the least bar
    return low, max(shown) * (max(shown) / low) ** _ROOM


def _bars(axes, panel: Panel, sides: int, log_scale: tuple[float, float] | None) -> None:
    """Draw the bars of a panel, with a dot for each of several runs and the median as text.

    Bars are as thick in all panels: `sides` is the largest number of bars of a panel.
    """
    names, values = list(panel.values), list(panel.values.values())
    positions = range(len(names))
    colours = [_OURS] * panel.ours + [_PEER] * (len(names) - panel.ours)
    if log_scale:
        axes.set_xscale("log")
    start = log_scale[0] if log_scale else 0
    axes.barh(positions, [value - start for value in values], 0.62, start, color=colours)
    for number, name in enumerate(names):
        if len(panel.runs[name]) > 1:  # single runs
            dots = panel.runs[name]
            axes.plot(dots, [number] * len(dots), ".", color=_INK, markersize=3, clip_on=False)
        end = max(panel.values[name], *panel.runs[name], 0)
        text = f"  {show(panel.measure, panel.values[name])}"
        axes.text(end, number, text, va="center", fontsize=9, color=_INK)
    better = f" ({panel.measure.better} is better)" if panel.measure.better else ""
    remark = " (log scale)" if panel.log else better
    title = (panel.title or panel.measure.title) + remark
    axes.set_title(title, loc="left", fontsize=8, color=_INK)
    axes.set_yticks(list(positions), names, fontsize=9, color=_INK)
    axes.set_ylim(sides - 0.5, -0.5)
    shown = [value for name in names for value in (0, panel.values[name], *panel.runs[name])]
    room = _ROOM * (max(shown) - min(shown) or 1)
    axes.set_xlim(*(log_scale or (min(shown), max(shown) + room)))
    axes.set_xticks([])
    axes.set_xticks([], minor=True)
    _frame(axes, ["left"])


def _styles(panels: Sequence[Lines]) -> dict[str, dict[str, str]]:
    """Return colour, line style and marker of each side, the same in all panels; peers are grey."""
    peers = frozenset().union(*(panel.peers for panel in panels))
    names = list(dict.fromkeys(name for panel in panels for name in panel.values))
    names.sort(key=lambda name: name in peers)
    styles = {}
    for number, name in enumerate(names):
        again, colour = divmod(number, len(_COLOURS))
        styles[name] = {
            "color": _PEER_LINE if name in peers else _COLOURS[colour],
            "linestyle": "--" if name in peers else "-:"[again % 2],
            "marker": _MARKERS[number % len(_MARKERS)],
        }
    return styles


def _lines(axes, lines: Lines, styles: dict[str, dict[str, str]]) -> None:
    """Draw the lines of a panel on logarithmic scales, with a tick for each size."""
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
    if high < 100 * low:  # powers of ten would be too few labels
        axes.yaxis.get_major_locator().set_params(subs=(1, 2, 5))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.tick_params(axis="y", labelsize=8, labelcolor=_INK)
    axes.set_yticks([], minor=True)
    axes.grid(axis="y", color=_PEER, lw=0.3)
    axes.set_xlabel(lines.size, fontsize=8, color=_INK)
    _frame(axes, ["bottom"])


def _frame(axes, sides: list[str]) -> None:
    """Remove the ticks and the frame of a panel but for the given sides."""
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.spines[sides].set_visible(True)
    axes.spines[sides].set_color(_PEER)
