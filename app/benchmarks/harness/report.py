"""The result of a case: numbers for programs, a table for people, bars for a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .trials import compare, medians


class Measure(NamedTuple):
    """A number that runs have under `key`, and how it is shown.

    spec: format of the number divided by `per`. better: `higher`, `lower`, or empty where neither
    is meant. by_difference: compare by difference, not by ratio.
    """

    key: str
    title: str
    spec: str
    per: float = 1.0
    better: str = ""
    by_difference: bool = False


class Panel(NamedTuple):
    """Bars of one measure: a value by side, and the values of its single runs.

    title: instead of the measure's. ours: how many sides, the first ones, are ours. log: whether
    bars are drawn on a logarithmic scale, which all panels that ask for it share.
    """

    measure: Measure
    values: dict[str, float]
    runs: dict[str, list[float]]
    title: str = ""
    ours: int = 1
    log: bool = False


class Curve(NamedTuple):
    """A measure of ours against a size: values and those of single runs by size, in its order."""

    measure: Measure
    values: dict[int, float]
    runs: dict[int, list[float]]
    title: str
    size: str


class Lines(NamedTuple):
    """Several sides against a size, both on logarithmic scales: side -> size -> value above 0.

    peers: the sides that are not ours.
    """

    values: dict[str, dict[int, float]]
    title: str
    size: str
    peers: frozenset[str] = frozenset()


class Report(NamedTuple):
    """title: what was compared. record: for JSON. table: for people. panels: for `picture.draw`.

    The record has the machine's description under `machine`.
    """

    title: str
    record: dict[str, Any]
    table: str
    panels: list[Panel | Curve | Lines]


def results(runs: dict[str, list[dict[str, Any]]], measures: Sequence[Measure]) -> dict[str, Any]:
    """Runs and medians by side, and the first side (ours) compared with each other one.

    {"sides": {side: {"runs", "median"}}, "compared": {peer: {key: {"ratio", "difference"}}}}
    """
    keys = [measure.key for measure in measures]
    sides = {
        side: {"runs": own, "median": medians([{key: run.get(key) for key in keys} for run in own])}
        for side, own in runs.items()
    }
    ours, *peers = sides
    compared = {peer: compare(sides[ours]["median"], sides[peer]["median"]) for peer in peers}
    return {"sides": sides, "compared": compared}


def table(results: dict[str, Any], measures: Sequence[Measure]) -> str:
    """A row a measure: the median of each side, then ours against each peer, then every run."""
    sides, compared = results["sides"], results["compared"]
    ours = next(iter(sides))
    several = len(sides[ours]["runs"]) > 1
    rows = [["", *sides, *(f"{ours} : {peer}" for peer in compared)]]
    if several:
        rows[0][0] = "median"
        rows[0] += [f"{side} {n}" for side in sides for n, _ in enumerate(sides[side]["runs"], 1)]
    for measure in measures:
        key = measure.key
        row = [measure.title, *(show(measure, side["median"][key]) for side in sides.values())]
        row += [_comparison(measure, peer.get(key)) for peer in compared.values()]
        if several:
            row += [show(measure, run.get(key)) for side in sides.values() for run in side["runs"]]
        rows.append(row)
    return aligned(rows)


def panels(results: dict[str, Any], measures: Sequence[Measure]) -> list[Panel]:
    """A panel for each measure that has a value on some side."""
    found = []
    for measure in measures:
        middle = {side: own["median"][measure.key] for side, own in results["sides"].items()}
        values = {side: value for side, value in middle.items() if value is not None}
        runs = {
            side: [run[measure.key] for run in results["sides"][side]["runs"]] for side in values
        }
        if values:
            found.append(Panel(measure, values, runs))
    return found


def show(measure: Measure, value: float | None) -> str:
    """The number as people read it."""
    return "n/a" if value is None else format(value / measure.per, measure.spec)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of equal length as lines: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        [row[0].ljust(widths[0])]
        + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        for row in rows
    ]
    return "\n".join("  ".join(cells).rstrip() for cells in lines)


def _comparison(measure: Measure, compared: dict[str, float | None] | None) -> str:
    if compared is None:
        return "n/a"
    if measure.by_difference:
        return f"{compared['difference']:+.3f}"
    return "n/a" if compared["ratio"] is None else f"{compared['ratio']:.2f} x"
