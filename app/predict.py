"""Predicts labels of texts, a line each: python -m app.predict --workdir=DIR < FILE

It writes a line for each: the likeliest labels, each followed by its probability.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from absl import flags as absl_flags
from absl import logging

from . import __name__ as PACKAGE
from .cli import flags
from .config import settings
from .errors import UsageError
from .system.files import BYTE_ORDER_MARK, LONGEST_LINE

_BYTES = 1 << 20  # read at a time, or as many as there are


def main(_: Sequence[str]) -> None:
    """Answers each line of standard input, as soon as it is there."""
    given = absl_flags.FLAGS
    stored = flags.stored_in(given.workdir)
    if stored.get("task") != "classify":
        raise UsageError(
            f"--workdir={given.workdir}: no trained classifier there; train one with "
            f"python -m {PACKAGE}.train --task=classify"
        )
    flags.start_tensorflow()
    from .checkpoints.workdir import Workdir
    from .system import devices
    from .tasks.classify import classify_job

    config = settings.from_names(stored)
    devices.use_machine(config.run)
    predict = classify_job.make_predictor(config, Workdir(given.workdir))
    shown = _as_json if given.json else _as_text
    cut = 0
    for texts, more in _lines(sys.stdin.buffer):
        cut += more
        found = predict(texts, given.k, given.threshold)
        sys.stdout.write("".join(f"{shown(labels)}\n" for labels in found))
        sys.stdout.flush()
    if cut:
        logging.warning("%d lines are longer than %d bytes; cut there", cut, LONGEST_LINE)


def define() -> None:
    """Defines the flags of this command."""
    absl_flags.DEFINE(flags.Paths(), "workdir", "", "The folder of a trained classifier.")
    absl_flags.DEFINE(flags.count(1), "k", 1, "Labels of a text.")
    text = "The least probability of a label that is shown."
    absl_flags.DEFINE(flags.Float(0.0, 1.0), "threshold", 0.0, text)
    absl_flags.DEFINE_bool("json", False, "Write an object of labels and probabilities a line.")


def _lines(file: BinaryIO, longest: int = LONGEST_LINE) -> Iterator[tuple[list[bytes], int]]:
    """Yield the lines of a file, as many at a time as are there, and how many of them were cut.

    They are UTF-8, other bytes are replaced; each has at most about `longest` bytes. A byte-order
    mark at the beginning is skipped.
    """

    def finished(lines: list[bytes]) -> tuple[list[bytes], int]:
        return [_utf8(line[:longest]) for line in lines], sum(len(line) > longest for line in lines)

    rest, is_start = b"", True
    while block := file.read1(_BYTES):
        *lines, rest = (rest + block).split(b"\n")
        rest = rest[: longest + 1]  # one more byte tells that it was cut
        if lines:
            if is_start:
                lines[0] = lines[0].removeprefix(BYTE_ORDER_MARK)
                is_start = False
            yield finished(lines)
    if rest:
        yield finished([rest.removeprefix(BYTE_ORDER_MARK) if is_start else rest])


def _utf8(line: bytes) -> bytes:
    return line if line.isascii() else line.decode(errors="replace").encode()


def _as_text(labels: list[tuple[str, float]]) -> str:
    return " ".join(f"{label} {chance:.6g}" for label, chance in labels)


def _as_json(labels: list[tuple[str, float]]) -> str:
    return json.dumps(dict(labels), ensure_ascii=False)


if __name__ == "__main__":
    define()
    flags.run(main)
