"""Predict the labels of texts, one text a line.

    lexrow predict --workdir=DIR < FILE (or --model=FILE of fastText)

It prints a line for each text: the most probable labels, each followed by its probability, with
tabs between them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from absl import flags as absl_flags
from absl import logging

from .checkpoints.workdir import read_settings
from .cli import flags, startup
from .errors import UsageError
from .settings.setting import MOST_ROWS
from .system.console import note_terminal
from .system.files import BYTE_ORDER_MARK, LONGEST_LINE
from .tasks.classify import fasttext_prediction, label_metrics
from .text.fasttext import model_file
from .text.reading import check_not_compressed

_BLOCK_BYTES = 1 << 20  # the most that one read of standard input returns


def main(_: Sequence[str]) -> None:
    """Print the labels of each line of standard input as soon as the line arrives.

    A line gets its --k most probable labels, without labels below --threshold, as text or (--json)
    as a JSON object. At the end, a warning is logged about lines that were cut as too long.

    Raises:
        UsageError: The workdir has no trained classifier, the file is no classifier of fastText, or
            both are given.
        RunError: There is no checkpoint that can be read.
    """
    values = absl_flags.FLAGS
    predict = _load_predictor(values.workdir, values.model)
    cut_lines = 0
    note_terminal("texts")
    for texts, count in _lines(sys.stdin.buffer):
        cut_lines += count
        predictions = predict(texts, values.k, values.threshold)
        sys.stdout.write("".join(f"{_format(labels)}\n" for labels in predictions))
        sys.stdout.flush()
    if cut_lines:
        logging.warning("%d lines are longer than %d bytes; cut there", cut_lines, LONGEST_LINE)


def define() -> None:
    """Define the flags of this command."""
    flags.define("workdir", "", "The folder of a trained classifier.", path=True)
    text = "A classifier of fastText, .bin or .ftz, instead of --workdir."
    flags.define("model", "", text, path=True)
    text = "The number of labels to print for each text."
    flags.define("k", 1, text, bounds=(1, MOST_ROWS))
    text = "The least probability of a label that is printed."
    flags.define("threshold", 0.0, text, bounds=(0, 1))
    text = "Print a JSON object of labels and probabilities a line."
    flags.define("json", False, text)


def _load_predictor(
    workdir: str, model: str
) -> Callable[[list[bytes], int, float], Iterable[list[tuple[str, float]]]]:
    """Return the function that predicts labels: of a workdir, or of a file of fastText.

    It takes texts in UTF-8, the most labels of a text, and their least probability, and yields the
    labels of each text with their probabilities, the most probable first.

    TensorFlow is started for a workdir. Raise UsageError if neither or both are given.
    """
    if model:
        if workdir:
            raise UsageError(f"give either --workdir={workdir} or --model={model}, not both")
        if Path(model).is_dir():
            raise UsageError(f"--model={model} is a folder; give it as --workdir={model}")
        loaded = model_file.load(model, is_supervised=True)
        labels, score = fasttext_prediction.make_scorer(loaded)
        added = fasttext_prediction.ADDED
    elif not workdir:
        raise UsageError(
            "--workdir= is empty; name the folder of a classifier, which `lexrow train "
            "--task=classify` trains, or a file of fastText with --model=FILE"
        )
    else:
        run = startup.start_run(workdir, read_settings(workdir), "classify")
        from .tasks.classify import classify_model

        (labels, score), added = classify_model.load_scorer(*run), 0.0
    return lambda texts, k, threshold: (
        found
        for chances_NC in score(texts)
        for found in label_metrics.best_labels(chances_NC, labels, k, threshold + added)
    )


def _lines(file: Any, longest: int = LONGEST_LINE) -> Iterator[tuple[list[bytes], int]]:
    """Yield the lines of a file in lists, each list as soon as its lines were read.

    A byte-order mark at the beginning is skipped. Bytes that are no UTF-8 become U+FFFD.

    Args:
        file: A binary file, which may be a pipe.
        longest: The bytes at which a line is cut.

    Yields:
        The lines of a block without their line feeds, and the number of them that were cut.
    """

    def cut(lines: list[bytes]) -> tuple[list[bytes], int]:
        """Return the lines, cut and in valid UTF-8, and the number of lines that were too long."""
        # Bytes that are not UTF-8 become U+FFFD.
        texts = [line[:longest].decode(errors="replace").encode() for line in lines]
        return texts, sum(len(line) > longest for line in lines)

    rest, is_start = b"", True
    while block := file.read1(_BLOCK_BYTES):
        if is_start:
            check_not_compressed("standard input", rest + block)
        *lines, rest = (rest + block).split(b"\n")
        rest = rest[: longest + 1]  # one byte more shows that the line is too long
        if lines:
            if is_start:
                lines[0] = lines[0].removeprefix(BYTE_ORDER_MARK)
                is_start = False
            yield cut(lines)
    if rest:
        yield cut([rest.removeprefix(BYTE_ORDER_MARK) if is_start else rest])


def _format(labels: list[tuple[str, float]]) -> str:
    """Return labels and probabilities in one line, with tabs (a label may have blanks) or JSON."""
    if absl_flags.FLAGS.json:
        return json.dumps(dict(labels), ensure_ascii=False)
    return "\t".join(f"{label}\t{probability:.6g}" for label, probability in labels)


if __name__ == "__main__":
    define()
    flags.run(main, remedy="give the texts on standard input, as in: --workdir=DIR < FILE")
