"""Build the job of --task=classify, and score a trained classifier.

A text is classified by the mean of the vectors of its words and n-grams.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from ...assembly import placing, storage
from ...checkpoints import checkpoint
from ...checkpoints.growth import Growth, RowMap
from ...checkpoints.workdir import Workdir
from ...errors import UsageError
from ...input import bags
from ...input.features import Examples, Features
from ...models.bag import Bag
from ...settings import ClassifyConfig, InputConfig
from ...system import devices
from ...tables import memory
from ...tables.base import Table
from ...text import subwords, vector_files
from ...text.unicode_rules import normal_form, normalize
from ...text.vocabulary import Vocabulary
from ...training.job import Evaluator, Job, TrainingData
from ...types import ALONE, Team
from . import classify_data, fasttext_start, label_metrics
from .classify_model import Classifier, load_trained, make_model


def make_job(config: ClassifyConfig, workdir: Workdir, finished: bool, team: Team = ALONE) -> Job:
    """Load the texts and make the job that trains a classifier, with its tables.

    --initial_model and --pretrained_vectors are copied to the tables of a run without a
    checkpoint. A warning is logged about texts that are too long for a micro-batch.

    Args:
        finished: Whether the run of the workdir has completed all its epochs.

    Raises:
        UsageError: The flags or the texts do not fit together.
        RunError: A file cannot be read.
    """
    return build_job(config, workdir, classify_data.load_data(config, workdir, finished, team))[0]


def build_job(
    config: ClassifyConfig, workdir: Workdir, data: classify_data.Data
) -> tuple[Job, Classifier]:
    """Make the job that trains a classifier on loaded texts, as `make_job`, and the classifier."""
    examples, labelled = data.training, config.labelled
    features, texts = classify_data.fit_features(
        examples, config.input.micro_tokens, data.words, labelled, workdir
    )
    model = make_model(config, features, data.labels)
    shape = bags.make_packing(examples, features, config.input, model.output.is_multi_label)
    _warn_about_long_texts(examples, features, config.input)
    weights_C = classify_data.parse_class_weights(labelled.class_weights, data.labels)
    how = examples, texts, shape, weights_C, config.input, config.run.seed
    batches = bags.make_batches(*how, is_tight="GPU" in devices.name(config.run))
    # The packer of steps has a number for each feature id.
    size = examples.bytes + texts.bytes + 4 * features.rows
    examples_memory = memory.Item(
        "examples", f"{len(examples.tokens_M):,} words", memory.HOST, size
    )
    placed = placing.place_tables(
        config, model, batches, shape.spec(), workdir, others=[examples_memory]
    )
    if not checkpoint.list_checkpoints(workdir.checkpoints):
        _assign_initial(config, data.words, placed.tables)
    training_data = TrainingData(
        batches=batches,
        expected_batches=bags.estimate_batches(examples, features, config.input, shape),
        steps_per_batch=config.input.steps_per_call,
        epoch_size=len(examples),
        unit="examples",
        batch_unit="words and n-grams at most",
        summary=classify_data.about(data, features),
        record=lambda: classify_data.record(data, features, workdir),
    )
    evaluator, tables = None, storage.scoring_tables(placed.tables)
    classifier = Classifier(model, tables, data.words, data.labels, features, placed.device)
    if data.heldout is not None:
        evaluator = Evaluator(functools.partial(_heldout_scores, classifier, data.heldout))
    job = placing.make_job(
        *(config, model, placed, training_data),
        evaluator=evaluator,
        growth=_growth(model, data, features),
        finish=functools.partial(_closing, config, data.heldout),
    )
    return job, classifier


def _growth(model: Bag, data: classify_data.Data, features: Features) -> Growth | None:
    """Return how the rows of words and labels have grown, or None if there are no new ids."""
    if data.new_ids is None:
        return None
    word_map, label_map = (
        RowMap(new_ids, len(names.tokens))
        for new_ids, names in zip(data.new_ids, (data.words, data.labels), strict=True)
    )
    maps = {**dict.fromkeys(model.tables(), label_map), "input": word_map}
    new_labels = [repr(data.labels.tokens[number]) for number in label_map.added()]
    summary = (
        f"{len(word_map.new_ids_V):,} words keep their rows, and {len(word_map.added()):,} are "
        f"new; {len(label_map.new_ids_V):,} labels keep theirs, and {len(new_labels):,} are new"
    )
    if new_labels:
        summary += f": {', '.join(new_labels[:5])}{', ...' if len(new_labels) > 5 else ''}"
    return Growth(maps, lambda workdir: classify_data.record(data, features, workdir), summary)


def _heldout_scores(
    classifier: Classifier, heldout: Examples, check: Callable[[], None] = lambda: None
) -> dict[str, float]:
    """Return the metrics of `label_metrics` of held-out texts, each name after `heldout_`."""
    metrics = label_metrics.compute_metrics(classifier.score(heldout, check))
    return {f"heldout_{name}": value for name, value in metrics.items()}


def evaluate(
    config: ClassifyConfig, workdir: Workdir, heldout: str, named: Collection[str] = ()
) -> tuple[str, dict[str, Any]]:
    """Return the scores of a trained classifier on files, as text and as values for JSON.

    A warning is logged for labels that training lacks; they count as errors.

    Args:
        heldout: The files, named as by --corpus.
        named: See `classify_data.read_heldout`.

    Raises:
        UsageError: The workdir has no classifier, or the texts cannot be used.
        RunError: There is no checkpoint that can be loaded, or a file cannot be read.
    """
    classifier = load_trained(config, workdir)
    labels = classifier.labels
    examples = classify_data.read_heldout(heldout, config, named)
    examples = classify_data.assign_ids(examples, classifier.words, labels, config.labelled)
    classify_data.warn_about_unseen_labels(examples)
    tally = classifier.score(examples)
    summary = label_metrics.summary(tally, labels.tokens)
    return label_metrics.format_table(tally, labels.tokens), summary


def _assign_initial(config: ClassifyConfig, words: Vocabulary, tables: Mapping[str, Table]) -> None:
    """Copy the rows of --initial_model and --pretrained_vectors to the tables of a new run."""
    labelled = config.labelled
    if labelled.initial_model:
        initial = fasttext_start.load(config)  # refused in a plan, too
        if tables:
            fasttext_start.assign_rows(initial, config.model.loss, tables)
    if labelled.pretrained_vectors:
        _load_pretrained(config, words, tables)


def _load_pretrained(
    config: ClassifyConfig, words: Vocabulary, tables: Mapping[str, Table]
) -> None:
    """Copy the vectors of --pretrained_vectors to the rows of its words, and log their number.

    If the file has n-grams of characters, other words get the mean of theirs.

    Other rows are kept. Without tables nothing is copied. Raise UsageError if the vectors do not
    have --dim numbers, or the file cannot be used.
    """
    path = config.labelled.pretrained_vectors
    pretrained = vector_files.read(path)
    columns = pretrained.matrix.shape[1]
    if columns != config.model.dim:
        raise UsageError(
            f"--pretrained_vectors={path} has vectors of {columns} numbers; give --dim={columns}"
        )
    tokens = normalize(pretrained.tokens, normal_form(config.corpus))
    # Of several spellings of a word, the first is the most frequent.
    row_of = {token: row for row, token in reversed([*enumerate(tokens)])}
    ids = [number for number, token in enumerate(words.tokens) if token in row_of]
    logging.info("%s has vectors of %d of the %d words", path, len(ids), len(words.tokens))
    if not tables:  # --plan_only
        return
    if ids:
        rows = pretrained.matrix[[row_of[words.tokens[number]] for number in ids]]
        tables["input"].assign(tf.constant(ids, tf.int32), tf.constant(rows))
    others = [number for number, token in enumerate(words.tokens) if token not in row_of]
    if others and pretrained.ngrams is not None:
        rows = subwords.compose_unseen([words.tokens[i] for i in others], pretrained.ngrams)
        ids_U = np.array(others, np.int32)[has_ngrams_U := rows.any(axis=1)]
        tables["input"].assign(tf.constant(ids_U), tf.constant(rows[has_ngrams_U]))


def _warn_about_long_texts(examples: Examples, features: Features, settings: InputConfig) -> None:
    """Log a warning if some texts will be cut because they do not fit into a micro-batch."""
    longest = features.longest(settings.micro_tokens)
    count = int((examples.lengths_E > longest).sum())
    if count:
        logging.warning(
            "%d texts have more words and n-grams than --batch_tokens=%d: cut to %d words",
            *(count, settings.batch_tokens, longest),
        )


def _closing(config: ClassifyConfig, heldout: Examples | None, workdir: Workdir) -> str:
    """Score the held-out texts, if any, by the saved tables; return scores and next commands."""
    path, lines = shlex.quote(str(workdir.path)), []
    if heldout is not None:
        classifier = load_trained(config, workdir)
        tally = classifier.score(heldout)
        lines.append(label_metrics.format_table(tally, classifier.labels.tokens))
    export = "format=saved_model --output=FOLDER"
    if most := config.tuning.tune_bytes:
        export = f"format=fasttext_quantized --bytes={most} --output=FILE"
    lines += [
        "next:",
        f"  lexrow predict --workdir={path} < FILE",
        f"  lexrow evaluate --workdir={path} --heldout=FILE",
        f"  lexrow export --workdir={path} --{export}",
        f"  tensorboard --logdir={path}/tensorboard",
    ]
    return "\n".join(lines)
