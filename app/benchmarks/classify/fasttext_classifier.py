"""Run fastText's side of the benchmark `classify`, as a program: python -m MODULE JOB

JOB is what it is given. It trains as `fasttext supervised` does, or predicts.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main(job: dict[str, Any]) -> None:
    """Trains and saves a model; or, with `predictions` in the job, reads it and predicts.

    job: `model` (file), and to train: `text` (`__label__` lines), `settings` of train_supervised
    (its progress goes to stderr); to predict: `text` (without labels) and `predictions` (to write:
    a label and its probability for each line).
    """
    import fasttext  # optional

    if "predictions" not in job:
        model = fasttext.train_supervised(job["text"], verbose=2, **job["settings"])
        model.save_model(job["model"])
        return
    model = fasttext.load_model(job["model"])
    # A list, as NumPy 2 does not do what `predict` of a single text asks it for.
    texts = Path(job["text"]).read_text(encoding="utf-8").split("\n")[:-1]
    labels, probabilities = model.predict(texts)
    with open(job["predictions"], "w", encoding="utf-8") as file:
        for label, probability in zip(labels, probabilities, strict=True):
            # None for a text without a known word.
            file.write(f"{label[0]} {probability[0]:.4f}\n" if label else "\n")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
