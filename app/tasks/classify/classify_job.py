"""Build the job of --task=classify, score a trained classifier, predict with it and export it.

A text is classified by the mean of the vectors of its words and n-grams.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from ... import __name__ as PACKAGE
from ...build import outputs, placing, storage, updates
from ...checkpoints import checkpoint
from ...checkpoints.workdir import Workdir
from ...config import Config
from ...errors import UsageError
from ...exporting import word2vec, word2vec_reader
from ...input import bags, labelled_files
from ...input.features import Features
from ...input.labelled import Examples
from ...models.bag import Bag
from ...system import devices
from ...tables.base import Table
from ...text import vocabulary
from ...text.vocabulary import Vocabulary
from ...training import memory_plan
from ...training.job import Job
from ...types import WordVectors
from . import classifier_export as saved
from . import classify_data, label_metrics
from .label_prediction import Classifier, batch_size

# With fewer labels, matrix products are too small for bfloat16 to save time.
_FEW_LABELS = 1000
# Function from scores to probabilities, for losses whose only table has one row per label.
_PROBABILITIES = {
    "softmax": tf.nn.softmax,
    "sampled_softmax": tf.nn.softmax,
    "one_vs_all": tf.sigmoid,
}


def make_job(config: Config, workdir: Workdir, finished: bool) -> Job:
    """Return the job that trains a classifier.

    Args:
        config: The configuration of the run.
        workdir: The folder of the run.
        finished: Whether the run of the workdir has completed all its epochs.

    Raises:
        UsageError: The flags or the texts do not fit together.
        RunError: A file cannot be read.
    """
    data = classify_data.load_data(config, workdir, finished)
    examples, seed = data.training, config.run.seed
    features = _features(config, data.words)
    model = _model(config, data.words, data.labels)
    optimizer = updates.make_optimizer(config.optimizer)
    shape = bags.make_packing(examples, features, config.input, model.output.is_multi_label)
    _warn_about_long_texts(examples, features, config)
    weights_C = classify_data.parse_class_weights(config.labelled.class_weights, data.labels)
    batches = bags.make_batches(examples, features, shape, weights_C, config.input, seed)
    size = 2 * examples.bytes  # as arrays, and as tensors for tf.data
    examples_memory = memory_plan.Item(
        "examples", f"{len(examples.tokens_M):,} words", memory_plan.HOST, size
    )
    placed = placing.place_tables(
        model, batches, shape.spec(), config, optimizer, workdir, others=[examples_memory]
    )
    if config.labelled.pretrained_vectors and not checkpoint.list_checkpoints(workdir.checkpoints):
        _load_pretrained(config.labelled.pretrained_vectors, placed["tables"], data.words, config)
    classifier = _classifier(model, storage.scoring_tables(placed["tables"]), features, config)

    def scores() -> dict[str, float]:
        metrics = label_metrics.compute_metrics(classifier.score(data.heldout))
        return {f"heldout_{name}": value for name, value in metrics.items()}

    return Job(
        model=model,
        optimizer=optimizer,
        learning_rate=updates.make_learning_rate(config.optimizer),
        batches=batches,
        expected_batches=bags.estimate_batches(examples, features, shape),
        words=len(examples),
        unit="examples",
        steps_per_batch=config.input.steps_per_call,
        device=devices.name(config.run),
        epoch_end=None if data.heldout is None else scores,
        monitor=lambda values: next(value for name, value in values.items() if "heldout" in name),
        summary=classify_data.about(data),
        record=lambda: classify_data.record(data, workdir),
        finish=lambda workdir: _closing(config, workdir, data.heldout),
        **placed,
    )


def evaluate(config: Config, workdir: Workdir, heldout: str) -> tuple[str, dict[str, Any]]:
    """Return the scores of a trained classifier on files, as text and as values for JSON.

    Args:
        config: The configuration of the run.
        workdir: The folder of the run.
        heldout: The files, named as by --corpus.
    """
    classifier, words, labels = load_classifier(config, workdir)
    examples = classify_data.read_heldout(heldout, config).with_names(words.tokens, labels.tokens)
    classify_data.warn_about_unseen_labels(examples)
    tally = classifier.score(examples)
    return label_metrics.format_table(tally, labels.tokens), label_metrics.summary(
        tally, labels.tokens
    )


def load_classifier(config: Config, workdir: Workdir) -> tuple[Classifier, Vocabulary, Vocabulary]:
    """Return the classifier of a workdir, its words and its labels.

    Args:
        config: The configuration of the run.
        workdir: The folder of the run.

    Raises:
        UsageError: The folder has no classifier.
        RunError: There is no complete checkpoint.
    """
    words, labels = classify_data.load_names(workdir)
    model, tables = _load_tables(config, workdir, words, labels)
    return _classifier(model, tables, _features(config, words), config), words, labels


def make_predictor(
    config: Config, workdir: Workdir
) -> Callable[[list[bytes], int, float], Iterator[list[tuple[str, float]]]]:
    """Return a function that predicts the labels of texts.

    Args:
        config: The configuration of the run.
        workdir: The folder of the run.

    Returns:
        Function (texts, k, threshold). The texts are in UTF-8. For each text in order it yields the
        k most probable labels with a probability of at least `threshold`, as (label, probability).
    """
    classifier, words, labels = load_classifier(config, workdir)
    split_words, ids = labelled_files.make_word_splitter(config), vocabulary.lookup_table(words)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def tokens(texts_E: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        words_M, owners_M = split_words(texts_E)
        return ids.lookup(words_M), owners_M

    def predict(texts: list[bytes], k: int, threshold: float) -> Iterator[list[tuple[str, float]]]:
        size = batch_size(len(labels.tokens))
        for first in range(0, len(texts), size):
            batch = texts[first : first + size]
            tokens_M, owners_M = (part.numpy() for part in tokens(batch))
            known_M = tokens_M >= 0
            lengths_E = np.bincount(owners_M[known_M], minlength=len(batch))
            chances_EC = classifier.probabilities(tokens_M[known_M], lengths_E)
            for chances_C in chances_EC:
                order_K = np.argsort(-chances_C, kind="stable")[:k]
                yield [
                    (labels.tokens[label], float(chances_C[label]))
                    for label in order_K
                    if chances_C[label] >= threshold
                ]

    return predict


def _saved_model(config: Config, workdir: Workdir, path: str) -> str:
    loss = config.model.loss
    if loss not in _PROBABILITIES:
        raise UsageError(
            f"--format=saved_model needs one row per label, which --loss={loss} does not have; "
            f"train with --loss={' or '.join(_PROBABILITIES)}"
        )
    words, labels = classify_data.load_names(workdir)
    _, tables = _load_tables(config, workdir, words, labels)
    rows_VD, outputs_CD = (
        tables[name].gather(tf.range(tables[name].rows)) for name in ("input", "output")
    )
    parts = saved.ClassifierParts(
        words.tokens,
        labels.tokens,
        rows_VD,
        outputs_CD,
        labelled_files.make_word_splitter(config),
        _features(config, words).extract,
        _PROBABILITIES[loss],
    )
    saved.write(parts, path)
    needs = (
        "" if config.corpus.tokenizer == "whitespace" else " (to load it: import tensorflow_text)"
    )
    return f"{path}: {len(labels.tokens):,} labels of texts{needs}"


def _word2vec(config: Config, workdir: Workdir, path: str, binary: bool = False) -> str:
    words, labels = classify_data.load_names(workdir)
    _, tables = _load_tables(config, workdir, words, labels)
    matrix_VD = tables["input"].gather(tf.range(len(words.tokens))).numpy()
    word2vec.write(WordVectors(words.tokens, matrix_VD, words.counts), path, binary=binary)
    return f"{path}: {len(words.tokens):,} words of {matrix_VD.shape[1]} numbers"


EXPORTS: dict[str, Callable[[Config, Workdir, str], str]] = {
    "word2vec": _word2vec,
    "word2vec_binary": lambda config, workdir, path: _word2vec(config, workdir, path, binary=True),
    "saved_model": _saved_model,
}


def _classifier(
    model: Bag, tables: Mapping[str, Table], features: Features, config: Config
) -> Classifier:
    multi_label = model.output.is_multi_label
    return Classifier(model, tables, features, multi_label, devices.name(config.run))


def _features(config: Config, words: Vocabulary) -> Features:
    return Features(len(words.tokens), config.labelled.word_ngrams, config.labelled.buckets)


def _model(config: Config, words: Vocabulary, labels: Vocabulary) -> Bag:
    settings, device = config.model, devices.name(config.run)
    parts = outputs.OutputSpec(
        labels.counts, settings.dim, config.input.micro_tokens, config.run.seed
    )
    dtype = devices.compute_dtype(settings, device)
    if settings.compute_dtype == "auto" and len(labels.tokens) < _FEW_LABELS:
        dtype = tf.float32
    with tf.device(device):
        return Bag(
            size=_features(config, words).rows,
            dim=settings.dim,
            output=outputs.make_loss(settings, parts),
            seed=config.run.seed,
            dtype=dtype,
        )


def _load_tables(
    config: Config, workdir: Workdir, words: Vocabulary, labels: Vocabulary
) -> tuple[Bag, dict[str, Table]]:
    """Return the model of a workdir and its tables, in memory, without optimizer state."""
    model = _model(config, words, labels)
    tables, _ = storage.load_tables(model.tables(), config, devices.shard_devices(config), workdir)
    return model, tables


def _load_pretrained(
    path: str, tables: Mapping[str, Table], words: Vocabulary, config: Config
) -> None:
    """Copy the vectors of a word2vec file to the words that it has."""
    pretrained = word2vec_reader.read(path)
    columns = pretrained.matrix.shape[1]
    if columns != config.model.dim:
        raise UsageError(
            f"--pretrained_vectors={path} has vectors of {columns} numbers; give --dim={columns}"
        )
    row_of = {token: row for row, token in enumerate(pretrained.tokens)}
    ids = [number for number, token in enumerate(words.tokens) if token in row_of]
    logging.info("%s has vectors of %d of the %d words", path, len(ids), len(words.tokens))
    if ids and tables:  # --plan_only makes no tables
        rows = pretrained.matrix[[row_of[words.tokens[number]] for number in ids]]
        tables["input"].assign(tf.constant(ids, tf.int32), tf.constant(rows))


def _warn_about_long_texts(examples: Examples, features: Features, config: Config) -> None:
    """Log how many texts are cut because they do not fit into a batch."""
    longest = features.longest(config.input.micro_tokens)
    count = int((examples.lengths_E > longest).sum())
    if count:
        logging.warning(
            "%d texts have more words and n-grams than --batch_tokens=%d: cut to %d words",
            *(count, config.input.batch_tokens, longest),
        )


def _closing(config: Config, workdir: Workdir, heldout: Examples | None) -> str:
    path, lines = shlex.quote(str(workdir.path)), []
    if heldout is not None:
        classifier, _, labels = load_classifier(config, workdir)
        lines.append(label_metrics.format_table(classifier.score(heldout), labels.tokens))
    return "\n".join(
        (
            *lines,
            "next:",
            f"  python -m {PACKAGE}.predict --workdir={path} < FILE",
            f"  python -m {PACKAGE}.evaluate --workdir={path} --heldout=FILE",
            f"  python -m {PACKAGE}.export --workdir={path} --format=saved_model --output=FOLDER",
            f"  tensorboard --logdir={path}",
        )
    )
