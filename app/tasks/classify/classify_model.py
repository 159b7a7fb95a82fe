"""Build the classifier of a configuration, and load a trained one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ...assembly import learning, placing
from ...assembly.learning import OutputSpec
from ...checkpoints.workdir import Workdir
from ...input import labelled_files
from ...input.features import Features
from ...models.bag import Bag
from ...settings import ClassifyConfig
from ...system import devices
from ...tables.base import Table
from ...text import vocabulary
from ...text.fasttext.line_features import hash_words
from ...text.vocabulary import Vocabulary
from . import classify_data
from .label_prediction import Classifier, batch_size

# With fewer labels, matrix products are too small for bfloat16 to save time.
_FEW_LABELS = 1000


class TrainedClassifier(NamedTuple):
    """A model loaded from a workdir.

    Attributes:
        model: The model.
        tables: Its tables by name.
        words: The vocabulary.
        labels: The labels.
        features: Which words and n-grams a text has.
    """

    model: Bag
    tables: Mapping[str, Table]
    words: Vocabulary
    labels: Vocabulary
    features: Features


def load_classifier(
    config: ClassifyConfig, workdir: Workdir
) -> tuple[Classifier, Vocabulary, Vocabulary]:
    """Load the classifier of a workdir, its words and its labels.

    Raises:
        UsageError: The workdir has no classifier.
        RunError: There is no checkpoint that can be loaded.
    """
    model, tables, words, labels, features = load_trained(config, workdir)
    return Classifier(model, tables, features, devices.name(config.run)), words, labels


def make_predictor(
    config: ClassifyConfig, workdir: Workdir
) -> Callable[[list[bytes], int, float], Iterator[list[tuple[str, float]]]]:
    """Load the classifier of a workdir, and return a function that predicts the labels of texts.

    Returns:
        Function (texts, k, threshold). The texts are in UTF-8. For each text in order it yields the
        list of the k most probable labels, as (label, probability), the most probable first. Labels
        with a probability below `threshold` are left out, so a list may be shorter or empty.

    Raises:
        UsageError: The workdir has no classifier.
        RunError: There is no checkpoint that can be loaded.
    """
    classifier, words, labels = load_classifier(config, workdir)
    score = make_scorer(classifier, config, words, len(labels.tokens))

    def predict(texts: list[bytes], k: int, threshold: float) -> Iterator[list[tuple[str, float]]]:
        """Yield for each text its k most probable labels of at least `threshold`, best first."""
        for chances_C in itertools.chain.from_iterable(score(texts)):
            order_K = np.argsort(-chances_C, kind="stable")[:k]
            yield [
                (labels.tokens[label], float(chances_C[label]))
                for label in order_K
                if chances_C[label] >= threshold
            ]

    return predict


def make_scorer(
    classifier: Classifier, config: ClassifyConfig, words: Vocabulary, labels: int
) -> Callable[[list[bytes]], Iterator[np.ndarray]]:
    """Return a function that computes the probabilities of all labels of texts.

    Args:
        words: Its vocabulary.
        labels: The number of its labels, C.

    Returns:
        Function of texts in UTF-8. It yields the probabilities of some texts after the other, by
        label id, (E, C) float32 each.
    """
    features = classifier.features
    split_words = labelled_files.make_word_splitter(config.corpus, config.labelled)
    ids = vocabulary.lookup_table(words)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def tokens(texts_E: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return all words, their ids, -1 if unknown, and the positions of their texts, (M,)."""
        words_M, owners_M = split_words(texts_E)
        return words_M, ids.lookup(words_M), owners_M

    def score(texts: list[bytes]) -> Iterator[np.ndarray]:
        """Yield the probabilities of the labels of some texts after the other, (E, C) each."""
        size = batch_size(labels)
        for first in range(0, len(texts), size):
            batch = texts[first : first + size]
            words_M, tokens_M, owners_M = (part.numpy() for part in tokens(batch))
            hashes_M = None
            if features.needs_hashes:
                hashes_M = hash_words(words_M.tolist())
                tokens_M = np.where(tokens_M < 0, np.int32(features.words), tokens_M)
            known_M = tokens_M >= 0
            lengths_E = np.bincount(owners_M[known_M], minlength=len(batch))
            yield classifier.probabilities(tokens_M[known_M], lengths_E, hashes_M)

    return score


def make_model(config: ClassifyConfig, features: Features, labels: Vocabulary) -> Bag:
    """Return the model of the configuration, without tables.

    Products are in float32 for fewer than 1,000 labels, unless --compute_dtype is given.

    Args:
        features: Which words and n-grams a text has.
        labels: The labels, C, with their counts, descending.
    """
    settings, device = config.model, devices.name(config.run)
    dtype = devices.compute_dtype(settings, device)
    if settings.compute_dtype == "auto" and len(labels.tokens) < _FEW_LABELS:
        dtype = tf.float32
    spec = OutputSpec(labels.counts, settings.dim, config.input.micro_tokens, config.run.seed)
    with tf.device(device):
        return Bag(
            size=features.rows,
            dim=settings.dim,
            output=learning.make_loss(settings, spec),
            seed=config.run.seed,
            dtype=dtype,
        )


def load_trained(config: ClassifyConfig, workdir: Workdir) -> TrainedClassifier:
    """Load the model of a workdir, and its tables without their slots.

    They are of the best checkpoint if --patience kept one, else of the newest.

    Raises:
        UsageError: The workdir has no classifier.
        RunError: There is no checkpoint that can be loaded.
    """
    words, labels = classify_data.load_names(workdir)
    features = classify_data.load_features(config.labelled, words, workdir)
    model = make_model(config, features, labels)
    tables, _ = placing.load_tables(config, model, workdir)
    return TrainedClassifier(model, tables, words, labels, features)
