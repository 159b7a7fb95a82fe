"""Draw the parts of a step as bars."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from ..errors import UsageError
from ..system.files import replacing
from .profile_report import Diagnosis

FORMATS = (".png", ".svg", ".pdf")

# The colour of each part. Waiting has warm colours, so that it stands out.
_COLOURS = {
    "input": "#d1495b",
    "host_to_device": "#edae49",
    "host_compute": "#8d96a3",
    "launch": "#b9bec4",
    "device_compute": "#1f6fb4",
}
_INK = "#333333"


def check(path: str) -> None:
    """Check the suffix of the file of --plot, and that matplotlib is installed.

    Raises:
        UsageError: The file name has another suffix, or matplotlib is missing.
    """
    if Path(path).suffix.lower() not in FORMATS:
        raise UsageError(f"--plot={path}: give a name that ends in {', '.join(FORMATS)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(f"--plot={path}: matplotlib is missing; pip install matplotlib")


def draw(bars: Sequence[tuple[str, Diagnosis]], path: str) -> None:
    """Draw a bar for each diagnosis to a picture file, in milliseconds of a step.

    Each bar is divided into the parts of the step and is labelled with its verdict.

    Args:
        bars: The name and the diagnosis of each bar, at least one; the first is on top.
        path: The file to write or replace; its suffix names the format.

    Raises:
        UsageError: The path is a folder or a device.
        RunError: The file cannot be written.
    """
    from matplotlib.figure import Figure  # optional

    figure = Figure(figsize=(8, 1.1 + 0.75 * len(bars)), layout="constrained")
    axes = figure.subplots()
    longest = max(diagnosis.milliseconds for _, diagnosis in bars)
    for row, (name, diagnosis) in enumerate(bars):
        left = 0.0
        for part, colour in _COLOURS.items():
            width = diagnosis.milliseconds * diagnosis.division.shares[part]
            label = part.replace("_", " ") if row == 0 else None
            axes.barh(row, width, left=left, color=colour, label=label, height=0.5)
            left += width
        verdict = diagnosis.division.verdict
        if diagnosis.stage and verdict == "input-bound":
            verdict += f" {diagnosis.division.shares['input']:.0%}, slowest: {diagnosis.stage}"
        axes.text(0, row - 0.33, f"{name}: {verdict}", va="bottom", fontsize=9, color=_INK)
        time = f"{diagnosis.milliseconds:.3g} ms"
        axes.text(left + longest / 100, row, time, va="center", fontsize=9)
    axes.set_ylim(len(bars) - 0.6, -0.75)
    axes.set_xlim(0, longest * 1.12)
    axes.set_yticks([])
    axes.set_xlabel("milliseconds of a step", fontsize=8, color=_INK)
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=len(_COLOURS), fontsize=8, frameon=False)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=Path(path).suffix[1:].lower(), dpi=150)
