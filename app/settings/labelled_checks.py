"""Check the settings of labelled text that must fit together."""

from __future__ import annotations

from ..errors import UsageError
from .labelled_config import LabelledConfig


def check_labelled(settings: LabelledConfig, text_column: str) -> None:
    """Check the flags of columns and marks for --task=classify.

    Neither column is fine: then each line has labels and text.

    Args:
        settings: The settings of labelled text.
        text_column: Value of --text_column.

    Raises:
        UsageError: Only one of --text_column and --label_column is given, --label_separator or
            --weight_column is given without --label_column, or no label can be told from a word or
            a weight.
    """
    if bool(text_column) != bool(settings.label_column):
        raise UsageError(
            f"--text_column={text_column} --label_column={settings.label_column}: name "
            "both, or neither for lines of labels and text"
        )
    if settings.label_separator and not settings.label_column:
        raise UsageError(
            f"--label_separator={settings.label_separator} separates the labels in a cell of "
            "--label_column; name that column, or leave the separator out"
        )
    if settings.weight_column and not settings.label_column:
        raise UsageError(
            f"--weight_column={settings.weight_column}: name --text_column and --label_column, "
            "too, or write __weight__0.5 in the lines"
        )
    if not (settings.label_prefix or settings.label_column):
        raise UsageError(
            "--label_prefix= is empty, so no label differs from a word; give how one starts, such "
            "as __label__, or name --text_column and --label_column of CSV or TSV files"
        )
    if settings.weight_prefix and settings.label_prefix.startswith(settings.weight_prefix):
        raise UsageError(
            f"--weight_prefix={settings.weight_prefix}: --label_prefix={settings.label_prefix} "
            "begins alike; give another one, or an empty --weight_prefix"
        )
