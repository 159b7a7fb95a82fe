"""Run fastText's side of the benchmark `classify`, as a program of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..harness import programs


def train_or_predict(job: dict[str, Any]) -> dict[str, Any]:
    """Train and save a model as `fasttext supervised` does; or read one, and write predictions.

    Args:
        job: `model` (a file) and `text` (`__label__` lines to train on, or lines without labels).
            To train, `settings` of train_supervised. To predict, `predictions`, the file to write:
            a label and its probability for each line; empty for a text without a known word.

    Returns:
        No figures: an empty dictionary.

    Raises:
        ImportError: fasttext is not installed.
    """
    import fasttext  # optional

    if "predictions" not in job:
        model = fasttext.train_supervised(job["text"], verbose=2, **job["settings"])
        model.save_model(job["model"])
        return {}
    model = fasttext.load_model(job["model"])
    # A list, as `predict` of a single text fails with NumPy 2.
    texts = Path(job["text"]).read_text(encoding="utf-8").split("\n")[:-1]
    labels, probabilities = model.predict(texts)
    with open(job["predictions"], "w", encoding="utf-8") as file:
        for label, probability in zip(labels, probabilities, strict=True):
            # A text without a known word has no label.
            file.write(f"{label[0]} {probability[0]:.4f}\n" if label else "\n")
    return {}


if __name__ == "__main__":
    programs.answer(train_or_predict)
