"""The features of the texts of a run: its words, and the n-grams that have a row."""

from __future__ import annotations

import numpy as np

from ...checkpoints.workdir import Workdir
from ...input.features import EncodedTexts, Features, encode, find_buckets, select_rows
from ...input.labelled import Examples
from ...settings import ClassifyConfig
from ...system.checked_files import COUNT, damaged
from ...system.files import replacing
from ...tables.arrays import read_npz
from ...text.vocabulary import Vocabulary
from .. import recorded_corpus

_ARRAY = "buckets_N"


def make_features(
    config: ClassifyConfig, words: Vocabulary, buckets_N: np.ndarray | None = None
) -> Features:
    """Return the rule that gives a text its feature ids: of known words and hashed n-grams.

    Args:
        config: The configuration of the run.
        words: The vocabulary.
        buckets_N: The buckets that have a row (see `Features`).
    """
    settings = config.labelled
    return Features(
        *(len(words.tokens), settings.word_ngrams, settings.buckets),
        by_spelling=settings.fasttext_features,
        buckets_N=buckets_N,
    )


def fit_features(
    examples: Examples, most: int, words: Vocabulary, config: ClassifyConfig, workdir: Workdir
) -> tuple[Features, EncodedTexts]:
    """Return the features of a run, and those of its texts.

    In a new run, only buckets with an n-gram of its texts get a row, as other rows would never be
    trained. A run that starts from a classifier of fastText (--initial_model) has a row for each
    bucket. So has a workdir of an earlier version.

    Args:
        examples: The training texts.
        most: The largest number of features of a text; longer texts are cut.
        words: The vocabulary.
        config: The configuration of the run.
        workdir: The workdir of the run.

    Raises:
        DamagedError: A file of the workdir is missing or damaged.
        RunError: A file cannot be read.
    """
    features = load_features(config, words, workdir)
    texts = encode(examples, features, most)
    is_new = not workdir.has(workdir.corpus)  # which is written last
    if is_new and features.ngrams > 1 and not config.labelled.initial_model:
        features = features._replace(buckets_N=find_buckets(texts, features))
        texts = select_rows(texts, features)
    return features, texts


def load_features(config: ClassifyConfig, words: Vocabulary, workdir: Workdir) -> Features:
    """Return the features of a run; each bucket has a row if the workdir lists none.

    Args:
        config: The configuration of the run.
        words: The vocabulary.
        workdir: The workdir of the run.

    Raises:
        DamagedError: A file is missing or damaged.
        RunError: A file cannot be read.
    """
    count = count_ngram_rows(workdir)
    if count is None:
        return make_features(config, words)
    (buckets_N,) = read_npz(workdir.ngrams, [_ARRAY])
    is_list = buckets_N.shape == (count,) and count > 0 and buckets_N.dtype == np.int32
    if not is_list or buckets_N[0] < 0 or (np.diff(buckets_N) <= 0).any():
        raise damaged(workdir.ngrams, f"it does not list {count:,} buckets")
    if buckets_N[-1] >= config.labelled.buckets:
        raise damaged(
            workdir.ngrams, f"it has the bucket {buckets_N[-1]} of {config.labelled.buckets}"
        )
    return make_features(config, words, buckets_N)


def count_ngram_rows(workdir: Workdir) -> int | None:
    """Return the number of buckets that the workdir lists; None if each bucket has a row.

    Args:
        workdir: The workdir of the run.

    Raises:
        DamagedError: The file is damaged, or missing beside a checkpoint.
        RunError: The file cannot be read.
    """
    return recorded_corpus.read(workdir, {"ngram_rows": (None, COUNT)}).get("ngram_rows")


def save(features: Features, workdir: Workdir) -> None:
    """Write the buckets that have a row to the workdir, unless all have.

    Args:
        features: The features of the run.
        workdir: The workdir of the run.

    Raises:
        UsageError: The path is a folder or a device.
        RunError: The file cannot be written.
    """
    if features.buckets_N is not None:
        with replacing(workdir.ngrams) as temporary, open(temporary, "wb") as file:
            np.savez(file, **{_ARRAY: features.buckets_N})
