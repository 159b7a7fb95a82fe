"""Where the time of a step goes, as bars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..system.files import replacing
from .profile_report import Diagnosis

# Part -> colour; what a step waits for stands out from what it does.
_COLOURS = {
    "input": "#d1495b",
    "host_to_device": "#edae49",
    "host_compute": "#8d96a3",
    "launch": "#b9bec4",
    "device_compute": "#1f6fb4",
    "other": "#dddddd",
}
_INK = "#333333"


def draw(found: Sequence[tuple[str, Diagnosis]], path: str) -> None:
    """Writes a bar for each diagnosis, by its name, in milliseconds of a step; the first on top.

    RunError when it cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # optional
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1.1 + 0.75 * len(found)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    longest = max(diagnosis.milliseconds for _, diagnosis in found)
    for place, (name, diagnosis) in enumerate(found):
        left = 0.0
        for part, colour in _COLOURS.items():
            width = diagnosis.milliseconds * diagnosis.division.shares[part]
            label = part.replace("_", " ") if place == 0 else None
            axes.barh(place, width, left=left, color=colour, label=label, height=0.5)
            left += width
        what = f"{diagnosis.division.verdict}"
        if diagnosis.stage and what == "input-bound":
            what += f" {diagnosis.division.shares['input']:.0%}, slowest: {diagnosis.stage}"
        axes.text(0, place - 0.33, f"{name}: {what}", va="bottom", fontsize=9, color=_INK)
        took = f"{diagnosis.milliseconds:.3g} ms"
        axes.text(left + longest / 100, place, took, va="center", fontsize=9)
    axes.set_ylim(len(found) - 0.6, -0.75)
    axes.set_xlim(0, longest * 1.12)
    axes.set_yticks([])
    axes.set_xlabel("milliseconds of a step", fontsize=8, color=_INK)
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=len(_COLOURS), fontsize=8, frameon=False)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=Path(path).suffix[1:].lower(), dpi=150)
