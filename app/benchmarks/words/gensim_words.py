"""Run gensim's side of the benchmark `words`, as a program of its own.

It follows gensim's documentation for several cores: `corpus_file`, and a worker for each core.
"""

from __future__ import annotations

import time
from typing import Any

from ..harness import programs


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Train vectors by gensim, and save them as a word2vec binary file.

    Args:
        job: `text` (a file of short lines), `vectors` (word2vec binary, to write), `workers`, and
            the settings of both sides by flags of lexrow.train.

    Returns:
        `words` (raw, over all epochs), `train_seconds` (of `Word2Vec.train`), and
        `vocabulary_time` (when the vocabulary was made, in seconds since 1970).

    Raises:
        ImportError: gensim is not installed.
    """
    from gensim.models import Word2Vec  # optional

    hierarchical = job["loss"] == "hierarchical_softmax"
    model = Word2Vec(
        sg=int(job["model"] == "skipgram"),
        vector_size=job["dim"],
        window=job["window"],
        min_count=job["min_count"],
        hs=int(hierarchical),
        negative=0 if hierarchical else job["negatives"],
        sample=job["subsample"],
        epochs=job["epochs"],
        seed=job["seed"],
        workers=job["workers"],
    )
    model.build_vocab(corpus_file=job["text"])
    vocabulary_time = time.time()
    clock = time.perf_counter()
    _, words = model.train(
        corpus_file=job["text"],
        total_words=model.corpus_total_words,
        total_examples=model.corpus_count,
        epochs=job["epochs"],
    )
    train_seconds = time.perf_counter() - clock
    model.wv.save_word2vec_format(job["vectors"], binary=True)
    return {"words": words, "train_seconds": train_seconds, "vocabulary_time": vocabulary_time}


if __name__ == "__main__":
    programs.answer(measure)
