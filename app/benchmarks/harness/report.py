"""The result of a benchmark, one type for all cases: as text for people and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...system.console import aligned
from . import machine
from .trials import compare, medians

# Characters of a line of a table. A wider table is turned if that is narrower: the lines are then
# the measures.
_WIDTH = 120


class Measure(NamedTuple):
    """A figure that is measured of every side.

    Attributes:
        key: Its name in the runs.
        title: Its name for people.
        spec: The format of the value divided by `per`.
        per: The unit in which people read it.
        better: `higher`, `lower`, or empty where neither is better.
        by_difference: Whether two sides are compared by difference, not by ratio.
        drawn: Whether pictures show it.
    """

    key: str
    title: str
    spec: str
    per: float = 1.0
    better: str = ""
    by_difference: bool = False
    drawn: bool = False


class Row(NamedTuple):
    """All runs of one side.

    Attributes:
        name: The name for people.
        runs: The figures of each run by key, or the reason under `left_out`.
        median: The medians of the figures by key; None for a figure that a run lacks.
        left_out: The first reason why a run was left out, or None.
        job: The settings of the side, for JSON.
    """

    name: str
    runs: list[dict[str, Any]]
    median: dict[str, float | None]
    left_out: str | None
    job: dict[str, Any]

    @property
    def record(self) -> dict[str, Any]:
        """The row for JSON: the settings of the side, `left_out`, `runs` and `median`."""
        return self.job | {"left_out": self.left_out, "runs": self.runs, "median": self.median}


class Table(NamedTuple):
    """Sides with the same measures.

    Attributes:
        title: The heading, or empty.
        measures: The figures to show.
        rows: The sides.
        compared: Pairs of sides: a name, the first and the second.
    """

    title: str
    measures: Sequence[Measure]
    rows: Sequence[Row]
    compared: Sequence[tuple[str, Row, Row]] = ()


class Panel(NamedTuple):
    """A part of a picture: the bars of one measure.

    Attributes:
        measure: The measure.
        values: The median of each side by name.
        runs: The values of its single runs by name.
        title: The title; by default the title of the measure.
        ours: The number of sides that are Lexrow's, which come first.
        log: Whether the scale is logarithmic; all panels with such a scale share it.
    """

    measure: Measure
    values: dict[str, float]
    runs: dict[str, list[float]]
    title: str = ""
    ours: int = 1
    log: bool = False


class Lines(NamedTuple):
    """A part of a picture: several sides over a size, both on logarithmic scales.

    Attributes:
        values: Side -> size -> value, above 0.
        title: The title.
        size: The name of the size.
        peers: The sides that are not Lexrow's.
    """

    values: dict[str, dict[int, float]]
    title: str
    size: str
    peers: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a case.

    Attributes:
        case: The name of the case.
        title: The things that were compared.
        machine: The description by `machine.describe`.
        settings: The settings of the case by name.
        tables: The measured sides.
        figures: Further entries of the JSON file: the tables in its layout, and sizes of the data.
        panels: The parts of the picture.
        notes: Paragraphs after the tables.
    """

    case: str
    title: str
    machine: dict[str, Any]
    settings: dict[str, Any]
    tables: Sequence[Table]
    figures: dict[str, Any]
    panels: Sequence[Panel | Lines]
    notes: Sequence[str] = ()


def score_measure(name: str, spec: str = ".3f", drawn: bool = False) -> Measure:
    """Return the measure of a score: higher is better, and sides are compared by difference.

    Args:
        name: Its name in the runs and for people.
        spec: The format of the value.
        drawn: Whether pictures show it.
    """
    return Measure(name, name, spec, better="higher", by_difference=True, drawn=drawn)


def make_row(
    name: str,
    runs: list[dict[str, Any]],
    measures: Sequence[Measure],
    job: Mapping[str, Any] | None = None,
) -> Row:
    """Return the row of a side.

    Args:
        name: The name for people.
        runs: The figures of each run by key, or the reason under `left_out`.
        measures: The figures of which medians are taken.
        job: The settings of the side, for JSON.

    Returns:
        The row. A median is None for a figure that any run lacks.
    """
    keys = [measure.key for measure in measures]
    median = medians([{key: run.get(key) for key in keys} for run in runs])
    reasons = [run["left_out"] for run in runs if "left_out" in run]
    return Row(name, runs, median, reasons[0] if reasons else None, dict(job or {}))


def make_table(
    runs: Mapping[str, list[dict[str, Any]]], measures: Sequence[Measure], title: str = ""
) -> Table:
    """Return the table of some sides, with the first one (ours) compared with each other one.

    Args:
        runs: The figures of each run by side.
        measures: The figures to show.
        title: The heading.
    """
    ours, *peers = (make_row(side, own, measures) for side, own in runs.items())
    compared = [(f"{ours.name} : {peer.name}", ours, peer) for peer in peers]
    return Table(title, measures, [ours, *peers], compared)


def ratio(measure: Measure, row: Row | None, other: Row | None) -> float | None:
    """Return the median of a row over that of another; None if one is missing or the second is 0.

    Args:
        measure: The measure.
        row: The first side, or None.
        other: The second side, or None.
    """
    value, base = (own and own.median[measure.key] for own in (row, other))
    return value / base if value is not None and base else None


def sides_record(table: Table) -> dict[str, Any]:
    """Return a table of `make_table` for JSON; only figures that both sides have are compared.

    Returns:
        {"sides": {side: {"runs", "median"}}, "compared": {peer: {key: {"ratio", "difference"}}}}
    """
    sides = {row.name: {"runs": row.runs, "median": row.median} for row in table.rows}
    compared = {peer.name: compare(ours.median, peer.median) for _, ours, peer in table.compared}
    return {"sides": sides, "compared": compared}


def make_panels(table: Table, title: str = "{}", ours: int = 1, log: bool = False) -> list[Panel]:
    """Return a panel for each `drawn` measure that a side has; a side without it has no bar.

    Args:
        table: The sides.
        title: The title, with `{}` for the title of the measure.
        ours: The number of rows that are Lexrow's, which come first.
        log: Whether the scale is logarithmic.
    """
    panels = []
    for measure in (measure for measure in table.measures if measure.drawn):
        rows = [row for row in table.rows if row.median[measure.key] is not None]
        first = sum(row in table.rows[:ours] for row in rows)
        values = {row.name: row.median[measure.key] for row in rows}
        runs = {row.name: [run[measure.key] for run in row.runs] for row in rows}
        if rows:
            heading = title.format(measure.title.strip())
            panels.append(Panel(measure, values, runs, heading, first, log))
    return panels


def to_json(result: Result) -> dict[str, Any]:
    """Return a result as JSON values: `case`, `machine`, `settings`, and the figures beside them.

    Args:
        result: The result.
    """
    names = ("case", "machine", "settings")
    return {name: getattr(result, name) for name in names} | result.figures


def to_text(result: Result) -> str:
    """Return a result for people: the title, the machine, the tables and the notes.

    Args:
        result: The result.
    """
    tables = map(table_text, result.tables)
    return "\n\n".join([f"{result.title}\n{machine.line(result.machine)}", *tables, *result.notes])


def table_text(table: Table) -> str:
    """Return a table for people: medians, single runs, comparisons, and the sides left out.

    Measures that no side has are not shown. A wide table has the measures as lines, if narrower.

    Args:
        table: The table.
    """
    known = {key for row in table.rows for key, value in row.median.items() if value is not None}
    shown = [measure for measure in table.measures if measure.key in known] or table.measures
    lines = [["", *(measure.title for measure in shown)]]
    for row in table.rows:
        runs = enumerate(row.runs, 1) if len(row.runs) > 1 else ()
        named = [(row.name, row.median), *((f"run {number}", run) for number, run in runs)]
        lines += [[name, *(show(m, own.get(m.key)) for m in shown)] for name, own in named]
    for name, first, second in table.compared:
        both = compare(first.median, second.median)
        lines.append([name, *(_comparison(m, both.get(m.key)) for m in shown)])
    turned = list(zip(*lines, strict=True))
    # Widths within the limit are equal, so that the first form is then taken.
    text = min(_aligned(lines), _aligned(turned), key=lambda own: max(_WIDTH, *map(len, own)))
    left_out = [f"left out: {row.name}: {row.left_out}" for row in table.rows if row.left_out]
    return "\n".join([*filter(None, [table.title]), *text, *left_out])


def show(measure: Measure, value: float | None) -> str:
    """Return a value as text, in the unit and format of its measure.

    Args:
        measure: The measure.
        value: The value, or None for n/a.
    """
    return "n/a" if value is None else format(value / measure.per, measure.spec)


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return the cells of a table as lines, the first column to the left, the others right."""
    return aligned(lines, "<" + ">" * (len(lines[0]) - 1))


def _comparison(measure: Measure, compared: Mapping[str, float | None] | None) -> str:
    """Return the difference or ratio of `compare`, by the measure, as text; n/a if it is None."""
    if compared is None:
        return "n/a"
    if measure.by_difference:
        return f"{compared['difference']:+.3f}"
    return "n/a" if compared["ratio"] is None else f"{compared['ratio']:.2f} x"
