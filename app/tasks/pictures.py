"""Pictures of results in Python: chosen words in the plane, and the course of a run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..system import console
from ..system.checked_files import fits
from ..training.metric_names import parse, tag

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Title -> the curves of a panel, by their names in TensorBoard.
_PANELS = {
    "loss": "loss/",
    "perplexity": "perplexity/",
    "scores": "score/",
    "speed": "speed/.*_per_second",
    "learning rate": "train/learning_rate",
}
_WIDTH, _HEIGHT = 4.2, 3.2  # of a panel, in inches


def plot_rows(names: Sequence[str], rows_ND: np.ndarray, axes: Axes | None = None) -> Axes:
    """Draw rows as points with names, by the first two principal components of these rows.

    Args:
        rows_ND: The rows, (N, D) float32.
        axes: Where to draw; None makes a new figure.

    Raises:
        ImportError: matplotlib is not installed.
    """
    axes = axes or _pyplot().subplots(layout="constrained")[1]
    left_NK, sizes_K, _ = np.linalg.svd(rows_ND - rows_ND.mean(axis=0), full_matrices=False)
    points_N2 = np.zeros((len(rows_ND), 2))
    points_N2[:, : min(2, len(sizes_K))] = (left_NK * sizes_K)[:, :2]
    axes.scatter(points_N2[:, 0], points_N2[:, 1], s=14)
    for name, point in zip(names, points_N2, strict=True):
        # A text between $ would be a formula.
        text = name.replace("$", r"\$")
        axes.annotate(text, point, (4, 3), textcoords="offset points", fontsize=9)
    shares_K = sizes_K**2 / max((sizes_K**2).sum(), np.finfo(np.float32).tiny)
    for number, label in enumerate((axes.set_xlabel, axes.set_ylabel)):
        share = shares_K[number] if number < len(shares_K) else 0.0
        label(f"component {number + 1} ({share:.0%} of the variance)")
    axes.margins(0.15)
    return axes


def report(metrics: Path, title: str) -> Figure:
    """Draw loss, scores, speed and learning rate of a run over its steps.

    Raises:
        ValueError: The file has no metrics, or does not exist.
        ImportError: matplotlib is not installed.
    """
    curves = _read_curves(metrics) if metrics.exists() else {}
    if not curves:
        raise ValueError(f"{metrics} has no metrics of a run; train one")
    by_title = {
        title: [name for name in sorted(curves) if re.match(pattern, name)]
        for title, pattern in _PANELS.items()
    }
    by_title = {title: names for title, names in by_title.items() if names}
    columns = 2 if len(by_title) == 4 else min(len(by_title), 3)
    rows = -(-len(by_title) // columns)
    size = columns * _WIDTH, rows * _HEIGHT
    figure, grid = _pyplot().subplots(rows, columns, figsize=size, squeeze=False)
    figure.set_layout_engine("constrained")
    figure.suptitle(title)
    for axes in grid.flat[len(by_title) :]:
        axes.set_axis_off()
    for axes, (title, names) in zip(grid.flat, by_title.items(), strict=False):
        for name in names:
            steps, values = zip(*sorted(curves[name]), strict=True)
            mark = "o" if len(steps) < 50 else None
            axes.plot(steps, values, marker=mark, markersize=3, label=_label(name))
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("step")
        axes.legend(fontsize=8, frameon=False)
    if console.is_notebook():  # it draws open figures, and also the result of a cell
        _pyplot().close(figure)
    return figure


def _label(name: str) -> str:
    """Return the label of a curve by its name in TensorBoard."""
    return name.partition("/")[2].replace("_", " ")


def _read_curves(metrics: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the steps and values of each curve of a metrics.jsonl, by its name in TensorBoard."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for line in metrics.read_bytes().splitlines():
        values = parse(line) or {}  # the last line of a killed run may be half-written
        step = values.pop("step", None)
        for name, value in values.items():
            if fits(value, float):
                curves.setdefault(tag(name), []).append((step, value))
    return curves


def _pyplot() -> Any:
    """Return matplotlib.pyplot; raise ImportError if matplotlib is not installed."""
    try:
        from matplotlib import pyplot  # optional
    except ImportError as error:
        remedy = 'pip install "lexrow[plot]"'
        raise ImportError(f"pictures need matplotlib, which is not installed; {remedy}") from error
    return pyplot
