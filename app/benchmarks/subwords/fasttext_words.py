"""Run fastText's side of the benchmark `subwords`, as a program of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..harness import programs


def train_or_convert(job: dict[str, Any]) -> dict[str, Any]:
    """Train and save a model as `fasttext skipgram` does; or read one, and write its rows.

    Args:
        job: `model` (a file). To train, `text` and `settings` of train_unsupervised. To convert,
            `words` and `rows`, the files to write: a word a line, and the rows of the words, then
            of the buckets, as a numpy array.

    Returns:
        No figures: an empty dictionary.

    Raises:
        ImportError: fasttext is not installed.
    """
    import fasttext  # optional

    if "settings" in job:
        model = fasttext.train_unsupervised(job["text"], verbose=2, **job["settings"])
        model.save_model(job["model"])
        return {}
    model = fasttext.load_model(job["model"])
    words = model.get_words(on_unicode_error="replace")
    Path(job["words"]).write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    np.save(job["rows"], model.get_input_matrix())
    return {}


if __name__ == "__main__":
    programs.answer(train_or_convert)
