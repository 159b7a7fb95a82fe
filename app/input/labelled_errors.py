"""Error messages about labelled texts: the line at fault, and which input is expected."""

from __future__ import annotations

import io

from ..errors import UsageError
from ..settings import ClassifyConfig
from ..text import reading
from . import labelled_weights


def explain_line(sources: tuple[str, ...], config: ClassifyConfig) -> UsageError:
    """Read files of lines again, and return the error of the first wrong line.

    A line is wrong if it has no label, or if one of its weights is wrong.

    Args:
        sources: Paths of the files.
        config: The configuration of the run.
    """
    size = config.input.block_bytes
    for path in sources:
        number, is_continued = 1, False  # current line, and whether it began in an earlier block
        for block in reading.blocks(path, "line", block_bytes=size):
            for line in io.StringIO(block.decode()):
                wrong = _fault(line, config)
                if wrong and is_continued:
                    return UsageError(
                        f"--block_bytes={size}: {path}, line {number} is longer, so a part of "
                        "it has no label; give a larger value, or shorten the line"
                    )
                if wrong:
                    return UsageError(f"{path}, line {number}: {wrong}")
                is_continued = not line.endswith("\n")
                number += not is_continued
    return UsageError(f"{', '.join(sources)}: a text has no label; {remedy(config)}")


def _fault(line: str, config: ClassifyConfig) -> str | None:
    """Return what is wrong with a line, and the remedy; None if nothing is, or it is blank."""
    settings = config.labelled
    pieces, weights, labels = line.split(), [], []
    for piece in pieces:
        mark = settings.weight_prefix
        if mark and piece.startswith(mark) and piece != mark:
            weights.append(piece.removeprefix(mark))
        elif piece.startswith(settings.label_prefix) and piece != settings.label_prefix:
            labels.append(piece.removeprefix(settings.label_prefix))
    if pieces and not labels:
        return f"has no label; {remedy(config)}"
    wrong = labelled_weights.fault(weights, labels if settings.label_weights else [])
    return wrong and f"{wrong[0]}; {weight_remedy(config, wrong[1])}"


def remedy(config: ClassifyConfig) -> str:
    """Return the end of an error message: which lines or columns the files must have.

    Args:
        config: The configuration of the run.
    """
    if config.corpus.text_column:
        return (
            "name its columns by --text_column and --label_column, or leave both out for lines of "
            "labels and text"
        )
    return (
        f"give lines such as `{config.labelled.label_prefix}good a fine film` (--label_prefix), "
        "or name --text_column and --label_column"
    )


def weight_remedy(config: ClassifyConfig, is_of_label: bool) -> str:
    """Return the end of an error message: which weights a text or a label may have.

    Args:
        config: The configuration of the run.
        is_of_label: Whether the weight of a label is wrong, and not that of a text.
    """
    if config.corpus.text_column:
        return f"correct it, or leave out --{'label_weights' if is_of_label else 'weight_column'}"
    if is_of_label:
        return f"give one such as {config.labelled.label_prefix}good:0.7, or --nolabel_weights"
    return f"give one such as {config.labelled.weight_prefix}0.5, or another --weight_prefix"
