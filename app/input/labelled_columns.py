"""Read the columns of labelled texts from CSV and TSV files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..config import Config, LabelledConfig
from ..errors import UsageError
from ..text import reading
from ..text.reading import Progress
from . import delimited, labelled_weights
from .labelled_errors import remedy, weight_remedy

_ROWS = 4096  # rows of a CSV file that are tokenized at a time


class Row(NamedTuple):
    """A row of a file.

    Attributes:
        text: The text.
        labels: Its labels, at least one.
        weights: Its weight as a text of its own, or nothing.
    """

    text: str
    labels: list[str]
    weights: list[str]


def read_columns(path: str, config: Config, progress: Progress, index: int) -> Iterator[list[Row]]:
    """Yield groups of the rows of a file.

    Tabs separate the cells of a .tsv file, commas those of any other.

    Args:
        path: The file.
        config: The configuration of the run.
        progress: The progress of reading.
        index: The number of the file among the sources.

    Raises:
        UsageError: A column is missing or repeated, a row has no label or a wrong weight, or
            quotes are malformed.
    """
    settings, suffixes = config.labelled, Path(path.lower()).suffixes[-2:]
    blocks = reading.blocks(
        path, "line", config.corpus.invalid_utf8, config.input.block_bytes, progress, index
    )
    lines = delimited.whole_lines(path, map(bytes.decode, blocks))
    cells = delimited.read_csv_rows(path, lines, "\t" if ".tsv" in suffixes else ",")
    _, header = next(cells, (0, []))
    header = [name.strip() for name in header]
    columns = {}
    for flag in ("text_column", "label_column", "weight_column"):
        name = getattr(settings, flag)
        if flag == "weight_column" and not name:
            continue
        if name not in header:
            raise UsageError(
                f"--{flag}={name}: {path} has the columns {delimited.list_columns(header)}; "
                f"{remedy(config)}"
            )
        delimited.check_single(path, header, name)
        columns[flag] = header.index(name)

    def rows() -> Iterator[Row]:
        """Yield the rows; refuse a row without a label or with a wrong weight."""
        for number, row in cells:
            is_whole = len(row) > max(columns.values())
            labels = _split_labels(row[columns["label_column"]], settings) if is_whole else []
            if not labels:
                raise UsageError(
                    f"{path}, line {number}: has no label, or too few cells; correct or remove it"
                )
            weights = [row[columns["weight_column"]]] if "weight_column" in columns else []
            wrong = labelled_weights.fault(weights, labels if settings.label_weights else [])
            if wrong:
                end = weight_remedy(config, wrong[1])
                raise UsageError(f"{path}, line {number}: {wrong[0]}; {end}")
            yield Row(row[columns["text_column"]], labels, weights)

    yield from group_rows(rows(), config.input.block_bytes)


def group_rows(rows: Iterator[Row], max_characters: int) -> Iterator[list[Row]]:
    """Yield lists of `_ROWS` rows, or fewer if their texts have `max_characters` or more.

    Args:
        rows: The rows.
        max_characters: The characters at which a list ends.
    """
    group, size = [], 0
    for row in rows:
        group.append(row)
        size += len(row.text)
        if len(group) == _ROWS or size >= max_characters:
            yield group
            group, size = [], 0
    if group:
        yield group


def _split_labels(cell: str, settings: LabelledConfig) -> list[str]:
    """Return the labels of a cell, split at --label_separator if given, without needless blanks."""
    parts = cell.split(settings.label_separator) if settings.label_separator else [cell]
    return [" ".join(part.split()) for part in parts if part.strip()]
