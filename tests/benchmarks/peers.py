"""The peers, each a function that runs in a process of its own and imports its library only."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np

# The flags of fastText by those of lexrow.train.
_FASTTEXT = {
    "model": "model",
    "dim": "dim",
    "window": "ws",
    "epochs": "epoch",
    "min_count": "minCount",
    "min_ngram": "minn",
    "max_ngram": "maxn",
    "ngram_buckets": "bucket",
    "word_ngrams": "wordNgrams",
    "buckets": "bucket",
    "negatives": "neg",
    "subsample": "t",  # its own default of 1e-4 keeps a third of the words
}
# In fastText's progress line: words, labels and ends of lines that a thread reads.
_SPEED = re.compile(r"words/sec/thread:\s*(\d+)")


def gensim_words(job: Any) -> dict[str, Any]:
    """Train word vectors by gensim, and save them as a word2vec binary file.

    As its documentation says for several cores: with `corpus_file`, and a worker for each core.

    Args:
        job: Has `text` and `vectors` (files), `workers`, and the settings by flag of lexrow.train.

    Returns:
        `words` (raw, over all epochs), and `train_seconds` (of `Word2Vec.train`).
    """
    from gensim.models import Word2Vec

    hierarchical = job.loss == "hierarchical_softmax"
    model = Word2Vec(
        sg=int(job.model == "skipgram"),
        vector_size=job.dim,
        window=job.window,
        min_count=job.min_count,
        hs=int(hierarchical),
        negative=0 if hierarchical else job.negatives,
        sample=job.subsample,
        epochs=job.epochs,
        seed=job.seed,
        workers=job.workers,
    )
    model.build_vocab(corpus_file=job.text)
    clock = time.perf_counter()
    _, words = model.train(
        corpus_file=job.text,
        total_words=model.corpus_total_words,
        total_examples=model.corpus_count,
        epochs=job.epochs,
    )
    train_seconds = time.perf_counter() - clock
    model.wv.save_word2vec_format(job.vectors, binary=True)
    return {"words": words, "train_seconds": train_seconds}


def fasttext_train(job: Any) -> dict[str, Any]:
    """Train by fastText, and save the model.

    Args:
        job: Has `method` (of fastText, such as `train_unsupervised`), `text` and `model` (files),
            `settings` (by flag of lexrow.train, others are left out) and `more`, further ones of
            fastText.
    """
    import fasttext

    known = {_FASTTEXT[name]: v for name, v in job.settings.items() if name in _FASTTEXT}
    train = getattr(fasttext, job.method)
    train(job.text, verbose=2, **known, **job.more).save_model(job.model)
    return {}


def fasttext_rows(job: Any) -> dict[str, Any]:
    """Write the words of a model, a line each, and its rows of words, then of n-grams."""
    import fasttext

    model = fasttext.load_model(job.model)
    words = model.get_words(on_unicode_error="replace")
    Path(job.words).write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    np.save(getattr(job, "rows.npy"), model.get_input_matrix())
    return {}


def fasttext_predict(job: Any) -> dict[str, Any]:
    """Write a label and its probability for each line; nothing for a text without a known word."""
    import fasttext

    # A list, as `predict` of a single text fails with NumPy 2.
    texts = Path(job.text).read_text(encoding="utf-8").split("\n")[:-1]
    labels, probabilities = fasttext.load_model(job.model).predict(texts)
    with open(job.predictions, "w", encoding="utf-8") as file:
        for label, probability in zip(labels, probabilities, strict=True):
            file.write(f"{label[0]} {probability[0]:.4f}\n" if label else "\n")
    return {}


def fasttext_seconds(log: Path, tokens: int, threads: int) -> float:
    """Return the seconds of the training loop, from the speed in the last progress line of a log.

    Args:
        log: The log of a training with `verbose=2`.
        tokens: The words, labels and ends of lines of all epochs.
        threads: The number of threads.
    """
    speeds = _SPEED.findall(log.read_text(encoding="utf-8", errors="replace"))
    return tokens / (int(speeds[-1]) * threads)


def implicit_vectors(job: Any) -> dict[str, Any]:
    """Train a model of implicit (als or bpr), and save its factors as users.npy and items.npy.

    Args:
        job: Has `model`, `pairs` (.npz of `users`, `items` and the `shape` of their matrix),
            `settings` (of the model) and `folder`.

    Returns:
        `train_seconds` (of `fit`) and `pairs` (their number x iterations).
    """
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # implicit asks for this before OpenBLAS is loaded
    import scipy.sparse
    from implicit.als import AlternatingLeastSquares
    from implicit.bpr import BayesianPersonalizedRanking

    with np.load(job.pairs) as pairs:
        ones = np.ones(len(pairs["users"]), np.float32)
        ids = pairs["users"], pairs["items"]
        matrix = scipy.sparse.csr_matrix((ones, ids), shape=pairs["shape"])
    kinds = {"als": AlternatingLeastSquares, "bpr": BayesianPersonalizedRanking}
    model = kinds[job.model](**job.settings)
    clock = time.perf_counter()
    model.fit(matrix, show_progress=False)
    train_seconds = time.perf_counter() - clock
    np.save(f"{job.folder}/users.npy", model.user_factors)
    np.save(f"{job.folder}/items.npy", model.item_factors)
    return {"train_seconds": train_seconds, "pairs": matrix.nnz * model.iterations}
