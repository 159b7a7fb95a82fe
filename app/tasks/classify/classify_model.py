"""Build the classifier of a configuration, load a trained one, and predict and score labels."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import tensorflow as tf

from ...assembly import learning, placing
from ...assembly.learning import OutputSpec
from ...checkpoints.workdir import Workdir
from ...input import labelled_files
from ...input.features import Examples, Features
from ...losses import inference
from ...losses.base import gather_from
from ...models.bag import Bag
from ...settings import ClassifyConfig
from ...system import devices
from ...system.console import show_progress
from ...tables.base import Table
from ...tables.row_reads import unique
from ...text import vocabulary
from ...text.fasttext.line_features import hash_names, hash_words
from ...text.vocabulary import Vocabulary
from ...types import HOST
from . import classify_data, label_metrics
from .label_metrics import Tally

# Most probabilities, and most texts, that are computed at a time.
_MAX_PROBABILITIES, _MAX_TEXTS = 1 << 22, 4096
# With fewer labels, matrix products are too small for bfloat16 to save time.
_FEW_LABELS = 1000


def load_scorer(
    config: ClassifyConfig, workdir: Workdir
) -> tuple[list[str], Callable[[list[bytes]], Iterator[np.ndarray]]]:
    """Load the classifier of a workdir, and return what computes the probabilities of its labels.

    Returns:
        The C labels, and a function of texts in UTF-8. It yields the probabilities of some texts
        after the other, (E, C) float32 each.

    Raises:
        UsageError: The workdir has no classifier.
        RunError: There is no checkpoint that can be loaded.
    """
    classifier = load_trained(config, workdir)
    features, labels = classifier.features, classifier.labels
    split_words = labelled_files.make_word_splitter(config.corpus, config.labelled)
    ids = vocabulary.lookup_table(classifier.words)

    def tokens(texts_E: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return all words, their ids, -1 if unknown, and the positions of their texts, (M,)."""
        words_M, owners_M = split_words(texts_E)
        return words_M, ids.lookup(words_M), owners_M

    # Traced before it is called, as `Classifier._hidden`.
    signature = [tf.TensorSpec([None], tf.string)]
    split = tf.function(tokens, signature, autograph=False).get_concrete_function()

    def score(texts: list[bytes]) -> Iterator[np.ndarray]:
        """Yield the probabilities of the labels of some texts after the other, (E, C) each."""
        size = batch_size(len(labels.tokens))
        for first in range(0, len(texts), size):
            batch = texts[first : first + size]
            words_M, tokens_M, owners_M = (part.numpy() for part in split(tf.constant(batch)))
            hashes_M = None
            if features.needs_hashes:
                hashes_M = hash_words(words_M.tolist())
                tokens_M = np.where(tokens_M < 0, np.int32(features.words), tokens_M)
            known_M = tokens_M >= 0
            lengths_E = np.bincount(owners_M[known_M], minlength=len(batch))
            yield classifier.probabilities(tokens_M[known_M], lengths_E, hashes_M)

    return labels.tokens, score


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


def load_trained(config: ClassifyConfig, workdir: Workdir) -> Classifier:
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
    return Classifier(model, tables, words, labels, features, devices.name(config.run))


@dataclasses.dataclass(eq=False)
class Classifier:
    """A model with the tables that it reads at each prediction.

    Attributes:
        model: The bag-of-words model.
        tables: Its tables by name.
        words: The vocabulary.
        labels: The labels.
        features: Which words and n-grams a text has.
        device: Where to compute.
    """

    model: Bag
    tables: Mapping[str, Table]
    words: Vocabulary
    labels: Vocabulary
    features: Features
    device: str

    @functools.cached_property
    def _hidden(self) -> Callable[..., tf.Tensor]:
        """`_means` as a graph.

        It is traced before it is called: TensorFlow warns if calls trace those of several models.
        """
        ids, count = tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32)
        graph = tf.function(self._means, (ids, ids, ids, count), autograph=False)
        return graph.get_concrete_function()

    def probabilities(
        self, tokens_M: np.ndarray, lengths_E: np.ndarray, hashes_M: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the probability of each label for each text, (E, C) float32, by label id.

        A text without words is predicted from a zero vector.

        Args:
            tokens_M: Ids of words, int32, one text after the other (see `Features.extract`).
            lengths_E: Number of words of each text.
            hashes_M: The hash of each word, int32, if the features need it.
        """
        hashes_M = tokens_M if hashes_M is None else hashes_M
        owners_M = np.repeat(np.arange(len(lengths_E), dtype=np.int32), lengths_E)
        with tf.device(self.device):
            inputs = (tokens_M, owners_M, hashes_M, len(lengths_E))
            hidden_ED = self._hidden(*(tf.constant(part, tf.int32) for part in inputs))
            blocks = inference.distribution(self.model.output, hidden_ED, gather_from(self.tables))
            parts = [*zip(*blocks, strict=True)]
        ids_C, log_EC = np.concatenate(parts[0]), np.concatenate(parts[1], axis=1)
        return np.exp(log_EC[:, np.argsort(ids_C)])

    def score(self, examples: Examples, check: Callable[[], None] = lambda: None) -> Tally:
        """Predict the labels of labelled texts, and return the counts of right predictions.

        Several labels are predicted for a text only if some of the texts have several.

        Args:
            check: Called after each part of the texts; see `training.job.Scores`.
        """
        multi_label = self.model.output.is_multi_label and (examples.label_counts_E > 1).any()
        size = batch_size(len(examples.labels))
        hashes_W = hash_names(examples.words) if self.features.needs_hashes else None
        tallies = []
        with show_progress("scoring held-out texts", len(examples), " texts") as show:
            for first in range(0, len(examples), size):
                starts_E = examples.starts_E[first : first + size + 1]
                tokens_M = examples.tokens_M[starts_E[0] : starts_E[-1]]
                hashes_M = None if hashes_W is None else hashes_W[tokens_M]
                chances_EC = self.probabilities(tokens_M, np.diff(starts_E), hashes_M)
                starts_E = examples.label_starts_E[first : first + size + 1]
                actual = examples.labels_N[starts_E[0] : starts_E[-1]], np.diff(starts_E)
                tallies.append(label_metrics.count_predictions(chances_EC, *actual, multi_label))
                show(first + len(chances_EC))
                check()
        return Tally(*map(sum, zip(*tallies, strict=True)))

    def _means(
        self, tokens_M: tf.Tensor, owners_M: tf.Tensor, hashes_M: tf.Tensor, count: tf.Tensor
    ) -> tf.Tensor:
        """Return the mean of the feature vectors of each of `count` texts, (E, D); 0 without any.

        A feature without a row counts as a vector of 0. `owners_M` has the text of each token.
        """
        with tf.device(HOST):  # the number of features gives all further shapes
            ids_N, owners_N = self.features.extract(tokens_M, owners_M, hashes_M)
            ids_U, inverse_N = unique(ids_N)
            has_row_U = ids_U < self.features.rows
            found_U = tf.where(has_row_U, ids_U, 0)
        rows_UD = gather_from(self.tables)("input", found_U)
        rows_UD = tf.where(has_row_U[:, tf.newaxis], rows_UD, 0.0)
        return tf.sparse.segment_mean(rows_UD, inverse_N, owners_N, num_segments=count)


def batch_size(labels: int) -> int:
    """Return how many texts to predict at a time: at most 4,096, and fewer with many labels."""
    return max(1, min(_MAX_TEXTS, _MAX_PROBABILITIES // labels))
