"""--task=classify: labels of texts, from the mean of the rows of their words and n-grams."""

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
from ...input.bags import Features
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
from .label_prediction import Classifier, texts_at_once

# With fewer labels than this products are too small to gain by bfloat16.
_FEW = 1000
# What the scores of losses with a row for each label, and nothing else, mean.
_CHANCES_OF = {
    "softmax": tf.nn.softmax,
    "sampled_softmax": tf.nn.softmax,
    "one_vs_all": tf.sigmoid,
}


def job(config: Config, workdir: Workdir, finished: bool) -> Job:
    """Everything to train a classifier with.

    finished: whether all epochs that the workdir was asked for are done.
    """
    data = classify_data.data(config, workdir, finished)
    examples, seed = data.training, config.run.seed
    features = _features(config, data.words)
    shape = bags.packing(examples, features, config.input, config.model.loss == "one_vs_all")
    _tell_cut(examples, features, config)
    weights_C = classify_data.class_weights(config.labelled.class_weights, data.labels)
    batches = bags.batches(examples, features, shape, weights_C, config.input, seed)
    model, optimizer = _model(config, data.words, data.labels), updates.optimizer(config.optimizer)
    twice = 2 * examples.bytes  # as arrays, and as tensors for tf.data
    kept = memory_plan.Item(
        "examples", f"{len(examples.tokens_M):,} words", memory_plan.HOST, twice
    )
    stored = placing.place(model, batches, shape.spec(), config, optimizer, workdir, others=[kept])
    if config.labelled.pretrained_vectors and not checkpoint.paths(workdir.checkpoints):
        _start_from(config.labelled.pretrained_vectors, stored["tables"], data.words, config)
    trained = _classifier(model, storage.readable(stored["tables"]), features, config)

    def scores() -> dict[str, float]:
        found = label_metrics.values(trained.score(data.heldout))
        return {f"heldout_{name}": value for name, value in found.items()}

    return Job(
        model=model,
        optimizer=optimizer,
        learning_rate=updates.learning_rate(config.optimizer),
        batches=batches,
        expected_batches=bags.expected_batches(examples, features, shape),
        words=len(examples),
        unit="examples",
        steps_per_batch=config.input.steps_per_call,
        device=devices.name(config.run),
        epoch_end=None if data.heldout is None else scores,
        monitor=lambda values: next(value for name, value in values.items() if "heldout" in name),
        summary=classify_data.about(data),
        record=lambda: classify_data.record(data, workdir),
        finish=lambda workdir: _closing(config, workdir, data.heldout),
        **stored,
    )


def evaluate(config: Config, workdir: Workdir, heldout: str) -> tuple[str, dict[str, Any]]:
    """The scores of a trained classifier on files, for people and for programs."""
    trained, words, labels = load(config, workdir)
    examples = classify_data.of_files(heldout, config).named(words.tokens, labels.tokens)
    classify_data.tell_unseen(examples)
    found = trained.score(examples)
    return label_metrics.table(found, labels.tokens), label_metrics.summary(found, labels.tokens)


def load(config: Config, workdir: Workdir) -> tuple[Classifier, Vocabulary, Vocabulary]:
    """The classifier of a workdir, with its words and labels.

    UsageError if there is none; RunError if there is no whole checkpoint.
    """
    words, labels = classify_data.names(workdir)
    model, tables = _tables(config, workdir, words, labels)
    return _classifier(model, tables, _features(config, words), config), words, labels


def predictor(
    config: Config, workdir: Workdir
) -> Callable[[list[bytes], int, float], Iterator[list[tuple[str, float]]]]:
    """A function that predicts labels: from texts in UTF-8, k and the least probability.

    It gives for each text in turn its k likeliest labels of that probability, each with it.
    """
    trained, words, labels = load(config, workdir)
    words_of, ids = labelled_files.words_of(config), vocabulary.lookup_table(words)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def tokens(texts_E: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        words_M, owners_M = words_of(texts_E)
        return ids.lookup(words_M), owners_M

    def predict(texts: list[bytes], k: int, threshold: float) -> Iterator[list[tuple[str, float]]]:
        size = texts_at_once(len(labels.tokens))
        for first in range(0, len(texts), size):
            some = texts[first : first + size]
            tokens_M, owners_M = (found.numpy() for found in tokens(some))
            known_M = tokens_M >= 0
            lengths_E = np.bincount(owners_M[known_M], minlength=len(some))
            chances_EC = trained.probabilities(tokens_M[known_M], lengths_E)
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
    if loss not in _CHANCES_OF:
        raise UsageError(
            f"--format=saved_model holds a row for each label, and --loss={loss} has others; train "
            f"with --loss={' or '.join(_CHANCES_OF)}"
        )
    words, labels = classify_data.names(workdir)
    _, tables = _tables(config, workdir, words, labels)
    parts = saved.Parts(
        words.tokens,
        labels.tokens,
        *(tables[name].gather(tf.range(tables[name].rows)) for name in ("input", "output")),
        labelled_files.words_of(config),
        _features(config, words).of,
        _CHANCES_OF[loss],
    )
    saved.write(parts, path)
    needs = (
        "" if config.corpus.tokenizer == "whitespace" else " (to load it: import tensorflow_text)"
    )
    return f"{path}: {len(labels.tokens):,} labels of texts{needs}"


def _word2vec(config: Config, workdir: Workdir, path: str, binary: bool = False) -> str:
    words, labels = classify_data.names(workdir)
    _, tables = _tables(config, workdir, words, labels)
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
    each = config.model.loss == "one_vs_all"
    return Classifier(model, tables, features, each, devices.name(config.run))


def _features(config: Config, words: Vocabulary) -> Features:
    return Features(len(words.tokens), config.labelled.word_ngrams, config.labelled.buckets)


def _model(config: Config, words: Vocabulary, labels: Vocabulary) -> Bag:
    settings, device = config.model, devices.name(config.run)
    wanted = outputs.Wanted(labels.counts, settings.dim, config.input.micro_tokens, config.run.seed)
    dtype = devices.compute_dtype(settings, device)
    if settings.compute_dtype == "auto" and len(labels.tokens) < _FEW:
        dtype = tf.float32
    with tf.device(device):
        return Bag(
            size=_features(config, words).rows,
            dim=settings.dim,
            output=outputs.make(settings, wanted),
            seed=config.run.seed,
            dtype=dtype,
        )


def _tables(
    config: Config, workdir: Workdir, words: Vocabulary, labels: Vocabulary
) -> tuple[Bag, dict[str, Table]]:
    """The model of a workdir, and its tables without the optimizer's state, in memory."""
    model = _model(config, words, labels)
    tables, _ = storage.read(model.tables(), config, devices.several(config), workdir)
    return model, tables


def _start_from(path: str, tables: Mapping[str, Table], words: Vocabulary, config: Config) -> None:
    """Gives words the vectors that a file has for them."""
    found = word2vec_reader.read(path)
    columns = found.matrix.shape[1]
    if columns != config.model.dim:
        raise UsageError(
            f"--pretrained_vectors={path} has vectors of {columns} numbers; give --dim={columns}"
        )
    place = {token: row for row, token in enumerate(found.tokens)}
    ids = [number for number, token in enumerate(words.tokens) if token in place]
    logging.info("%s has vectors of %d of the %d words", path, len(ids), len(words.tokens))
    if ids and tables:  # there are none for --plan_only
        rows = found.matrix[[place[words.tokens[number]] for number in ids]]
        tables["input"].assign(tf.constant(ids, tf.int32), tf.constant(rows))


def _tell_cut(examples: Examples, features: Features, config: Config) -> None:
    longest = features.longest(config.input.micro_tokens)
    cut = int((examples.lengths_E > longest).sum())
    if cut:
        logging.warning(
            "%d texts have more words and n-grams than --batch_tokens=%d: cut to %d words",
            *(cut, config.input.batch_tokens, longest),
        )


def _closing(config: Config, workdir: Workdir, heldout: Examples | None) -> str:
    path, told = shlex.quote(str(workdir.path)), []
    if heldout is not None:
        trained, _, labels = load(config, workdir)
        told.append(label_metrics.table(trained.score(heldout), labels.tokens))
    return "\n".join(
        (
            *told,
            "next:",
            f"  python -m {PACKAGE}.predict --workdir={path} < FILE",
            f"  python -m {PACKAGE}.evaluate --workdir={path} --heldout=FILE",
            f"  python -m {PACKAGE}.export --workdir={path} --format=saved_model --output=FOLDER",
            f"  tensorboard --logdir={path}",
        )
    )
