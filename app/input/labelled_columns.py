"""Read labelled texts from columns of CSV, TSV, JSON lines and Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..errors import UsageError
from ..settings import ClassifyConfig, LabelledConfig
from ..text import columns
from ..text.reading import Progress
from . import labelled_weights
from .labelled_errors import weight_remedy

_ROWS = 4096  # rows of a file that are tokenized at a time


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


def read_columns(
    path: str, config: ClassifyConfig, progress: Progress, index: int
) -> Iterator[list[Row]]:
    """Yield groups of the rows of a file.

    Args:
        path: The file.
        config: The configuration of the run.
        progress: The progress of reading.
        index: The number of the file among the sources.

    Raises:
        UsageError: A column is missing or repeated, a row has no label or a wrong weight, or the
            file is malformed.
    """
    settings = config.labelled
    names = {"text_column": config.corpus.text_column, "label_column": settings.label_column}
    if settings.weight_column:
        names["weight_column"] = settings.weight_column
    how = config.corpus.invalid_utf8, config.input.block_bytes, progress, index
    found = columns.read_rows(path, names, *how)

    def rows() -> Iterator[Row]:
        """Yield the rows; refuse a row without a label or with a wrong weight."""
        for where, (text, label, *weights) in found:
            # A cell of JSON lines or Parquet may be a list of labels.
            cells = label if isinstance(label, list) else [label]
            texts = (columns.as_text(cell, where, settings.label_column) for cell in cells)
            labels = [part for cell in texts for part in _split_labels(cell, settings)]
            if not labels:
                raise UsageError(f"{where}: has no label; correct or remove it")
            weights = [columns.as_text(cell, where, settings.weight_column) for cell in weights]
            wrong = labelled_weights.fault(weights, labels if settings.label_weights else [])
            if wrong:
                raise UsageError(f"{where}: {wrong[0]}; {weight_remedy(config, wrong[1])}")
            yield Row(columns.as_text(text, where, config.corpus.text_column), labels, weights)

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
