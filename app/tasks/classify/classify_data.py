"""Load the labelled texts of a classifier, their features, and the names of its ids."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from ...checkpoints import workdir as files
from ...checkpoints.workdir import Workdir
from ...errors import UsageError
from ...input import labelled_files
from ...input.features import (
    EncodedTexts,
    Examples,
    Features,
    encode,
    find_buckets,
    list_starts,
    select_rows,
)
from ...settings import ClassifyConfig, LabelledConfig
from ...settings.classify_config import BETWEEN_LISTED
from ...system.checked_files import damaged
from ...tables.arrays import read_npz, write_npz
from ...text import columns, corpus, vocabulary
from ...text.tokenize import warn_about_missing_spaces
from ...text.vocabulary import Vocabulary
from ...types import ALONE, Team
from .. import recorded_corpus
from . import fasttext_start

# The settings that say how a file with columns is read.
COLUMNS = ("text_column", "label_column", "label_separator", "weight_column")

# Bounds of a weight of --class_weights: no rarity of a label asks for more.
_LEAST_WEIGHT, _MOST_WEIGHT = 1e-6, 1e6
_ARRAY = "buckets_N"


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
        finished: Whether the run has completed all its epochs. Only then may the corpus change.
        team: The processes that train together; each reads all texts.

    Raises:
        UsageError: The texts cannot be used, or the corpus changed during a run.
        RunError: A file cannot be read.
    """
    split, settings, rules = config.corpus, config.input, config.vocabulary
    sources, known = recorded_corpus.open_corpus(split, workdir, {"fingerprint": dict}, team)
    recorded, run = known.get("fingerprint"), config.run if finished else None
    fingerprint = recorded_corpus.recognize(sources, recorded, split, workdir, run)
    if recorded is None:
        warn_about_missing_spaces(sources, f"--corpus={split.corpus}")
    grows = bool(recorded) and fingerprint is None and rules.grow_vocab
    fingerprint = fingerprint or corpus.fingerprint(sources, team)
    examples = labelled_files.read(sources, split, config.labelled, settings)
    heldout = None
    if settings.heldout:
        is_of_lists = config.labelled.label_separator == BETWEEN_LISTED
        heldout = read_heldout(settings.heldout, config, () if is_of_lists else COLUMNS)
    elif settings.heldout_share:
        examples, heldout = _split_heldout(examples, settings.heldout_share, config.run.seed)
    words, labels = _load_or_count_names(examples, config, workdir)
    new_ids = None
    if grows:
        words, labels, new_ids = _grow_names(words, labels, examples, config)
    training = assign_ids(examples, words, labels, config.labelled)
    if heldout is not None:
        heldout = assign_ids(heldout, words, labels, config.labelled)
        warn_about_unseen_labels(heldout)
    usable = _select_usable(training, len(words.tokens), split.corpus, rules.min_count)
    return Data(fingerprint, usable, heldout, words, labels, new_ids)


def record(data: Data, features: Features, workdir: Workdir) -> None:
    """Write the names of ids, the buckets of n-grams and the fingerprint of the corpus."""
    vocabulary.save(data.words, str(workdir.vocabulary))
    vocabulary.save_names(data.labels, workdir.labels)
    corpus_record: dict[str, Any] = {"fingerprint": data.fingerprint}
    if features.buckets_N is not None:
        corpus_record["ngram_rows"] = len(features.buckets_N)
        write_npz(workdir.ngrams, {_ARRAY: features.buckets_N})
    files.write_json(workdir.corpus, corpus_record)


def about(data: Data, features: Features) -> list[tuple[str, str]]:
    """Return the lines of the banner about the texts: a title and a text each."""
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

    Raises:
        UsageError: The workdir has no classifier.
        DamagedError: A file is missing beside a checkpoint, or damaged.
    """
    if not workdir.has(workdir.labels):
        raise UsageError(f"--workdir={workdir.path}: no trained classifier there; train one first")
    workdir.has(workdir.vocabulary)  # raises if the file is missing beside a checkpoint
    return vocabulary.load(str(workdir.vocabulary)), vocabulary.load_names(workdir.labels)


def read_heldout(heldout: str, config: ClassifyConfig, named: Collection[str] = ()) -> Examples:
    """Read the labelled texts of files; their ids are not yet the ids of a trained classifier.

    The files have the columns of the run, or lines of labels and text.

    Args:
        heldout: The files, named as by --corpus.
        named: Those of `COLUMNS` that the caller has given for these files, which must have them.

    Raises:
        UsageError: There is no text, a text has no label, or the files cannot be used.
        RunError: A file cannot be read.
    """
    sources = corpus.resolve_heldout(config.corpus, heldout)
    split, labelled = config.corpus, config.labelled
    if split.text_column and not named:
        own = [split.text_column, labelled.label_column]
        if not any(set(own).issubset(columns.column_names(path, own)) for path in sources):
            split = dataclasses.replace(split, text_column="")
    if split.text_column and "weight_column" not in named:
        weight = [labelled.weight_column]
        if not all(set(weight).issubset(columns.column_names(path, weight)) for path in sources):
            labelled = dataclasses.replace(labelled, weight_column="")
    return labelled_files.read(sources, split, labelled, config.input)


def assign_ids(
    examples: Examples, words: Vocabulary, labels: Vocabulary, settings: LabelledConfig
) -> Examples:
    """Return the texts with the ids of a run; drop unknown words unless n-grams need them."""
    keeps_unknown = settings.fasttext_features and settings.word_ngrams > 1
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


def _split_heldout(examples: Examples, share: float, seed: int) -> tuple[Examples, Examples]:
    """Return the examples to train on, and a random share (by the seed) that is held out.

    Raise UsageError if one of the two would be empty.
    """
    count = len(examples)
    is_heldout_E = np.zeros(count, bool)
    is_heldout_E[np.random.default_rng(seed).permutation(count)[: round(share * count)]] = True
    if is_heldout_E.all() or not is_heldout_E.any():
        raise UsageError(
            f"--heldout_share={share} of {count} texts leaves no text to train on or to score; "
            "give another share, 0, or --heldout=FILE"
        )
    return examples.select(~is_heldout_E), examples.select(is_heldout_E)


def _grow_names(
    words: Vocabulary, labels: Vocabulary, examples: Examples, config: ClassifyConfig
) -> tuple[Vocabulary, Vocabulary, tuple[np.ndarray, np.ndarray]]:
    """Add the words and labels of more texts (--grow_vocab); also return the new ids of the old.

    Raise UsageError if the run has n-grams, whose rows depend on the ids of words.
    """
    if config.labelled.word_ngrams > 1:
        raise UsageError(
            f"--word_ngrams={config.labelled.word_ngrams}: the rows of n-grams depend on the ids "
            "of words, which --grow_vocab changes; leave it out, or train in a new workdir"
        )

    def grow(old: Vocabulary, names: Sequence[str], ids_N: np.ndarray, *limits: int) -> Any:
        """Return the old names with the counts and the names of the new ones added."""
        new = vocabulary.count_names(names, ids_N)
        counts = dict(zip(new.tokens, new.counts.tolist(), strict=True))
        return vocabulary.grow(old, counts, new.total, *limits)

    limits = config.vocabulary.min_count, config.vocabulary.max_vocab_size
    words, word_ids = grow(words, examples.words, examples.tokens_M, *limits)
    labels, label_ids = grow(labels, examples.labels, examples.labels_N, 1, 0)
    return words, labels, (word_ids, label_ids)


def fit_features(
    examples: Examples, most: int, words: Vocabulary, settings: LabelledConfig, workdir: Workdir
) -> tuple[Features, EncodedTexts]:
    """Return the features of a run, and those of its texts.

    In a new run, only buckets with an n-gram of its texts get a row, as other rows would never be
    trained. A run that starts from a classifier of fastText (--initial_model) has a row for each
    bucket. So has a workdir of an earlier version.

    Args:
        examples: The training texts.
        most: The largest number of features of a text; longer texts are cut.

    Raises:
        DamagedError: A file of the workdir is missing or damaged.
        RunError: A file cannot be read.
    """
    features = load_features(settings, words, workdir)
    texts = encode(examples, features, most)
    is_new = not workdir.has(workdir.corpus)  # which is written last
    if is_new and features.ngrams > 1 and not settings.initial_model:
        features = features._replace(buckets_N=find_buckets(texts, features))
        texts = select_rows(texts, features)
    return features, texts


def load_features(settings: LabelledConfig, words: Vocabulary, workdir: Workdir) -> Features:
    """Return the features of a run; each bucket has a row if the workdir lists none.

    Raises:
        DamagedError: A file is missing or damaged.
        RunError: A file cannot be read.
    """
    count = recorded_corpus.count_ngram_rows(workdir)
    features = Features(
        *(len(words.tokens), settings.word_ngrams, settings.buckets),
        by_spelling=settings.fasttext_features,
    )
    if count is None:
        return features
    (buckets_N,) = read_npz(workdir.ngrams, [_ARRAY])
    is_list = buckets_N.shape == (count,) and count > 0 and buckets_N.dtype == np.int32
    if not is_list or buckets_N[0] < 0 or (np.diff(buckets_N) <= 0).any():
        raise damaged(workdir.ngrams, f"it does not list {count:,} buckets")
    if buckets_N[-1] >= settings.buckets:
        raise damaged(workdir.ngrams, f"it has the bucket {buckets_N[-1]} of {settings.buckets}")
    return features._replace(buckets_N=buckets_N)


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
        return fasttext_start.read_names(fasttext_start.load(config), config.labelled.label_prefix)
    labels = vocabulary.count_names(examples.labels, examples.labels_N)
    if len(labels.tokens) < 2:
        raise UsageError(
            f"--corpus={config.corpus.corpus}: every text to train on has the label "
            f"{labels.tokens[0]!r}, so there is nothing to learn; give texts of two labels or more"
        )
    rules = config.vocabulary
    if rules.vocab:
        return vocabulary.load(rules.vocab), labels
    limits = rules.min_count, rules.max_vocab_size
    return vocabulary.count_names(examples.words, examples.tokens_M, *limits), labels


def _select_usable(training: Examples, words: int, corpus: str, least: int) -> Examples:
    """Return the examples with a known word and only known labels; warn about the others.

    Raise UsageError if there is no such example.
    """
    usable_E = np.diff(list_starts(training.tokens_M < words)[training.starts_E]) > 0
    usable_E &= np.add.reduceat(training.labels_N < 0, training.label_starts_E[:-1]) == 0
    if not usable_E.any():
        lower = f", or lower --min_count={least}" if least > 1 else ""
        raise UsageError(
            f"--corpus={corpus}: no text has a word that is known; give other text{lower}"
        )
    if not usable_E.all():
        logging.warning("%d texts without a known word or label are left out", (~usable_E).sum())
    return training.select(usable_E)
