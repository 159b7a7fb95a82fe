"""Load the labelled texts of a classifier, the held-out texts, and the names of its ids."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from absl import logging

from ...checkpoints import workdir as files
from ...checkpoints.workdir import Workdir
from ...errors import UsageError
from ...input import labelled_files
from ...input.features import Features
from ...input.labelled import Examples, list_starts
from ...settings import ClassifyConfig
from ...text import corpus, vocabulary
from ...text import names as text_names
from ...text.tokenize import warn_about_missing_spaces
from ...text.vocabulary import Vocabulary
from ...types import ALONE, Team
from .. import recorded_corpus
from . import fasttext_start, grown_names, text_features

# Bounds of a weight of --class_weights: no rarity of a label asks for more.
_LEAST_WEIGHT, _MOST_WEIGHT = 1e-6, 1e6


class Data(NamedTuple):
    """The labelled texts of a run.

    Attributes:
        fingerprint: The fingerprint of the files of --corpus (see `corpus.fingerprint`).
        training: Texts to train on; each has a known word and only known labels.
        heldout: Texts to score, or None.
        words: Names of the word ids.
        labels: Names of the label ids.
        new_ids: The new ids of the words and of the labels before they became more (--grow_vocab);
            None if they have not.
    """

    fingerprint: dict[str, Any]
    training: Examples
    heldout: Examples | None
    words: Vocabulary
    labels: Vocabulary
    new_ids: tuple[np.ndarray, np.ndarray] | None = None


def load_data(config: ClassifyConfig, workdir: Workdir, finished: bool, team: Team = ALONE) -> Data:
    """Load the texts of a run; the names of ids come from the workdir if it has them.

    Without --heldout, a random share of the texts is held out. Warnings are logged for texts that
    are left out and for held-out labels that training lacks.

    Args:
        config: The configuration of the run.
        workdir: The workdir of the run.
        finished: Whether the run has completed all its epochs. Only then may the corpus change.
        team: The processes that train together; they parse the texts together.

    Raises:
        UsageError: The texts cannot be used, or the corpus changed during a run.
        RunError: A file cannot be read.
    """
    sources, known = recorded_corpus.open_corpus(
        config.corpus, workdir, {"fingerprint": dict}, team
    )
    recorded = known.get("fingerprint")
    fingerprint = recorded_corpus.recognize(sources, recorded, config.corpus, workdir, finished)
    if recorded is None:
        warn_about_missing_spaces(sources, f"--corpus={config.corpus.corpus}")
    grows = bool(recorded) and fingerprint is None and config.vocabulary.grow_vocab
    fingerprint = fingerprint or corpus.fingerprint(sources, team)
    how = config.corpus, config.labelled, config.input
    examples, heldout = labelled_files.read(sources, *how, team), None
    if config.input.heldout:
        heldout = read_heldout(config.input.heldout, config)
    elif config.input.heldout_share:
        examples, heldout = _split_heldout(examples, config)
    words, labels = _load_or_count_names(examples, config, workdir)
    if recorded is not None:
        recorded_corpus.warn_about_old_words(workdir, words.tokens, config.corpus.tokenizer)
    new_ids = None
    if grows:
        words, labels, new_ids = grown_names.grow(words, labels, examples, config)
    training = assign_ids(examples, words, labels, config)
    if heldout is not None:
        heldout = assign_ids(heldout, words, labels, config)
        warn_about_unseen_labels(heldout)
    usable = _select_usable(training, len(words.tokens), config)
    return Data(fingerprint, usable, heldout, words, labels, new_ids)


def record(data: Data, features: Features, workdir: Workdir) -> None:
    """Write the names of ids, the buckets of n-grams and the fingerprint of the corpus.

    Args:
        data: The texts of the run.
        features: Their features.
        workdir: The workdir of the run.
    """
    vocabulary.save(data.words, str(workdir.vocabulary))
    text_names.save(data.labels, workdir.labels)
    text_features.save(features, workdir)
    corpus_record = {"fingerprint": data.fingerprint, **recorded_corpus.word_rules(workdir)}
    if features.buckets_N is not None:
        corpus_record["ngram_rows"] = len(features.buckets_N)
    files.write_json(workdir.corpus, corpus_record)


def about(data: Data, features: Features) -> list[tuple[str, str]]:
    """Return the lines of the banner about the texts: a title and a text each.

    Args:
        data: The texts of the run.
        features: Their features.
    """
    heldout = "none" if data.heldout is None else f"{len(data.heldout):,}"
    frequent = zip(data.labels.tokens[:5], data.labels.counts[:5], strict=True)
    shown = [f"{label} {count:,}" for label, count in frequent]
    if len(data.labels.tokens) > len(shown):
        shown.append("...")
    vocabulary_line = f"{features.words:,} words"
    if features.ngrams > 1:
        vocabulary_line += f", {features.rows - features.words:,} rows of n-grams"
    return [
        (
            "examples",
            f"{len(data.training):,} texts of {data.training.lengths_E.mean():.1f} words, and "
            f"{heldout} held out",
        ),
        ("labels", f"{len(data.labels.tokens):,} ({', '.join(shown)})"),
        ("vocabulary", vocabulary_line),
    ]


def load_names(workdir: Workdir) -> tuple[Vocabulary, Vocabulary]:
    """Load the words and the labels of a run, in the order of their ids.

    Args:
        workdir: The workdir of the run.

    Raises:
        UsageError: The workdir has no classifier.
        DamagedError: A file is missing beside a checkpoint, or damaged.
    """
    if not workdir.has(workdir.labels):
        raise UsageError(f"--workdir={workdir.path}: no trained classifier there; train one first")
    workdir.has(workdir.vocabulary)  # raises if the file is missing beside a checkpoint
    return vocabulary.load(str(workdir.vocabulary)), text_names.load(workdir.labels)


def read_heldout(files: str, config: ClassifyConfig) -> Examples:
    """Read the labelled texts of files; their ids are not yet the ids of a trained classifier.

    Args:
        files: The files, named as by --corpus.
        config: The configuration of the run.

    Raises:
        UsageError: There is no text, a text has no label, or the files cannot be used.
        RunError: A file cannot be read.
    """
    sources = corpus.resolve_heldout(config.corpus, files)
    return labelled_files.read(sources, config.corpus, config.labelled, config.input)


def assign_ids(
    examples: Examples, words: Vocabulary, labels: Vocabulary, config: ClassifyConfig
) -> Examples:
    """Return the texts with the ids of a run; unknown words are dropped unless n-grams need them.

    Args:
        examples: The texts.
        words: The vocabulary.
        labels: The labels.
        config: The configuration of the run.
    """
    keeps_unknown = config.labelled.fasttext_features and config.labelled.word_ngrams > 1
    return examples.with_names(words.tokens, labels.tokens, keeps_unknown)


def warn_about_unseen_labels(heldout: Examples) -> None:
    """Log a warning if some held-out texts have a label that no training text has.

    Args:
        heldout: Texts whose labels have the ids of the training texts, -1 for others.
    """
    unseen_E = np.add.reduceat(heldout.labels_N < 0, heldout.label_starts_E[:-1]) > 0
    if unseen_E.any():
        logging.warning(
            "%d of %d held-out texts have a label that no training text has; these labels count as "
            "errors",
            unseen_E.sum(),
            len(heldout),
        )


def parse_class_weights(value: str, labels: Vocabulary) -> np.ndarray:
    """Return the weight of each label, (C,) float32.

    `none` is 1 for all; labels that a list leaves out have 1, too. `balanced` is n / (C n_c), where
    n_c of the n labels are label c, as in scikit-learn's compute_class_weight.

    Args:
        value: The value of --class_weights.
        labels: The labels with their counts.

    Raises:
        UsageError: The value names an unknown label, or a weight that is not a number from 1e-6 to
            1e6.
    """
    if value == "balanced":
        return (labels.total / (len(labels.tokens) * labels.counts)).astype(np.float32)
    weights, given = dict.fromkeys(labels.tokens, 1.0), set()
    for part in value.split(",") if value != "none" else ():
        label, _, number = (piece.strip() for piece in part.rpartition("="))
        if label in given:
            raise UsageError(f"--class_weights={value}: {label!r} has two weights; give one")
        given.add(label)
        if label not in weights:
            raise UsageError(
                f"--class_weights={value}: {label!r} is not a label; give `none`, `balanced`, or "
                f"LABEL=WEIGHT of {', '.join(labels.tokens[:5])}"
            )
        try:
            weights[label] = float(number)
        except ValueError:
            weights[label] = 0.0
        if not _LEAST_WEIGHT <= weights[label] <= _MOST_WEIGHT:
            raise UsageError(
                f"--class_weights={value}: {number!r} of {label!r} is not a number from "
                f"{_LEAST_WEIGHT:g} to {_MOST_WEIGHT:g}; give "
                "such a number"
            )
    return np.array([*weights.values()], np.float32)


def _split_heldout(examples: Examples, config: ClassifyConfig) -> tuple[Examples, Examples]:
    """Return the examples to train on, and a random share (by the seed) that is held out.

    Raise UsageError if one of the two would be empty.
    """
    share, count = config.input.heldout_share, len(examples)
    is_heldout_E = np.zeros(count, bool)
    order_E = np.random.default_rng(config.run.seed).permutation(count)
    is_heldout_E[order_E[: round(share * count)]] = True
    if is_heldout_E.all() or not is_heldout_E.any():
        raise UsageError(
            f"--heldout_share={share} of {count} texts leaves no text to train on or to score; "
            "give another share, 0, or --heldout=FILE"
        )
    return examples.select(~is_heldout_E), examples.select(is_heldout_E)


def _load_or_count_names(
    examples: Examples, config: ClassifyConfig, workdir: Workdir
) -> tuple[Vocabulary, Vocabulary]:
    """Load the words and labels of the workdir, or else count them in the training texts.

    With --initial_model both are loaded from there; with --vocab the words are, and only labels
    are counted. Raise UsageError if labels are counted and all texts have one label.
    """
    if workdir.has(workdir.labels):
        return load_names(workdir)
    if config.labelled.initial_model:
        return fasttext_start.load_names(config)
    labels = text_names.count_names(examples.labels, examples.labels_N)
    if len(labels.tokens) < 2:
        raise UsageError(
            f"--corpus={config.corpus.corpus}: every text to train on has the label "
            f"{labels.tokens[0]!r}, so there is nothing to learn; give texts of two labels or more"
        )
    settings = config.vocabulary
    if settings.vocab:
        return vocabulary.load(settings.vocab), labels
    words = text_names.count_names(
        examples.words, examples.tokens_M, settings.min_count, settings.max_vocab_size
    )
    return words, labels


def _select_usable(training: Examples, words: int, config: ClassifyConfig) -> Examples:
    """Return the examples with a known word and only known labels; warn about the others.

    Raise UsageError if there is no such example.
    """
    known_before = list_starts(training.tokens_M < words)
    usable_E = np.diff(known_before[training.starts_E]) > 0
    usable_E &= np.add.reduceat(training.labels_N < 0, training.label_starts_E[:-1]) == 0
    if not usable_E.any():
        least = config.vocabulary.min_count
        lower = f", or lower --min_count={least}" if least > 1 else ""
        raise UsageError(
            f"--corpus={config.corpus.corpus}: no text has a word that is known; give other "
            f"text{lower}"
        )
    if not usable_E.all():
        logging.warning("%d texts without a known word or label are left out", (~usable_E).sum())
    return training.select(usable_E)
