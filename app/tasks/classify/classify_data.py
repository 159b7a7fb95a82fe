"""The text side of a classifier: its examples, those held out, and the names of its ids."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from ...checkpoints import workdir as files
from ...checkpoints.workdir import Workdir
from ...config import Config
from ...errors import UsageError
from ...input import labelled_files
from ...input.labelled import Examples
from ...text import corpus, vocabulary
from ...text import names as text_names
from ...text.vocabulary import Vocabulary


class Data(NamedTuple):
    """The examples of a run, and the names of their ids. fingerprint: of the files of --corpus."""

    fingerprint: dict[str, Any]
    training: Examples
    heldout: Examples | None
    words: Vocabulary
    labels: Vocabulary


def load_data(config: Config, workdir: Workdir, finished: bool) -> Data:
    """What a run is trained on and scored on, with the names of the workdir, if it has such.

    finished: whether all epochs asked for before are done; only then may another corpus follow.
    UsageError where it is not, and for texts that cannot be; RunError when they cannot be read.
    """
    sources = corpus.resolve(config.corpus)
    known = None
    if workdir.has(workdir.corpus):
        known = files.read_json(workdir.corpus, {"fingerprint": dict})
    same = corpus.recognize(sources, known["fingerprint"]) if known else None
    if known and same is None and not finished:
        raise UsageError(
            f"--corpus={config.corpus.corpus} is not the text that --workdir="
            f"{config.run.workdir} is in the middle of; give that, or a new --workdir"
        )
    fingerprint = same or corpus.fingerprint(sources)
    found, heldout = labelled_files.read(sources, config), None
    if config.input.heldout:
        heldout = read_heldout(config.input.heldout, config)
    elif config.input.heldout_share:
        found, heldout = _parted(found, config)
    words, labels = _names(found, config, workdir)
    training = found.named(words.tokens, labels.tokens)
    if heldout is not None:
        heldout = heldout.named(words.tokens, labels.tokens)
        warn_about_unseen_labels(heldout)
    return Data(fingerprint, _usable(training, config), heldout, words, labels)


def record(found: Data, workdir: Workdir) -> None:
    """Keeps the names of ids and what the corpus was in the workdir."""
    vocabulary.save(found.words, str(workdir.vocabulary))
    text_names.save(found.labels, workdir.labels)
    files.write_json(workdir.corpus, {"fingerprint": found.fingerprint})


def about(found: Data) -> list[tuple[str, str]]:
    """What a banner tells of them."""
    heldout = "none" if found.heldout is None else f"{len(found.heldout):,}"
    most = zip(found.labels.tokens[:5], found.labels.counts[:5], strict=True)
    known = [f"{label} {count:,}" for label, count in most]
    if len(found.labels.tokens) > len(known):
        known.append("...")
    return [
        (
            "examples",
            f"{len(found.training):,} texts of {found.training.lengths_E.mean():.1f} words, and "
            f"{heldout} held out",
        ),
        ("labels", f"{len(found.labels.tokens):,} ({', '.join(known)})"),
        ("vocabulary", f"{len(found.words.tokens):,} words"),
    ]


def load_names(workdir: Workdir) -> tuple[Vocabulary, Vocabulary]:
    """The words and the labels of a run. UsageError if the folder holds none."""
    if not workdir.has(workdir.labels):
        raise UsageError(f"--workdir={workdir.path}: no trained classifier there; train one first")
    workdir.has(workdir.vocabulary)  # for the message
    return vocabulary.load(str(workdir.vocabulary)), text_names.load(workdir.labels)


def read_heldout(given: str, config: Config) -> Examples:
    """The examples of files, named as by --corpus."""
    named = dataclasses.replace(config.corpus, corpus=given)
    return labelled_files.read(corpus.resolve(named, flag="heldout"), config)


def warn_about_unseen_labels(heldout: Examples) -> None:
    """Warns of labels that training never saw."""
    unseen_E = np.add.reduceat(heldout.labels_N < 0, heldout.label_starts_E[:-1]) > 0
    if unseen_E.any():
        logging.warning(
            "%d of %d texts held out have a label that no text to train on has; of those it counts "
            "as an error",
            unseen_E.sum(),
            len(heldout),
        )


def parse_class_weights(given: str, labels: Vocabulary) -> np.ndarray:
    """The weight of each label, (C,) float32, from a value of --class_weights.

    `balanced` is n / (C n_c) for a label that n_c of n times is seen, as scikit-learn has it
    (compute_class_weight). UsageError for labels that there are none of, and for no number above 0.
    """
    if given == "balanced":
        return (labels.total / (len(labels.tokens) * labels.counts)).astype(np.float32)
    weights = dict.fromkeys(labels.tokens, 1.0)
    for part in given.split(",") if given != "none" else ():
        label, _, number = (piece.strip() for piece in part.rpartition("="))
        if label not in weights:
            raise UsageError(
                f"--class_weights={given}: {label!r} is no label; give `none`, `balanced`, or "
                f"LABEL=WEIGHT of {', '.join(labels.tokens[:5])}"
            )
        try:
            weights[label] = float(number)
        except ValueError:
            weights[label] = 0.0
        if not 0 < weights[label] < np.inf:
            raise UsageError(
                f"--class_weights={given}: {number!r} of {label!r} is no number above 0; give one"
            )
    return np.array([*weights.values()], np.float32)


def _parted(found: Examples, config: Config) -> tuple[Examples, Examples]:
    """Those to train on, and the share that is held out, drawn by the seed."""
    share, count = config.input.heldout_share, len(found)
    chosen_E = np.zeros(count, bool)
    order_E = np.random.default_rng(config.run.seed).permutation(count)
    chosen_E[order_E[: round(share * count)]] = True
    if chosen_E.all() or not chosen_E.any():
        raise UsageError(
            f"--heldout_share={share} of {count} texts leaves none to train or to score on; give "
            "another share, 0, or --heldout=FILE"
        )
    return found.some(~chosen_E), found.some(chosen_E)


def _names(found: Examples, config: Config, workdir: Workdir) -> tuple[Vocabulary, Vocabulary]:
    if workdir.has(workdir.labels):
        return load_names(workdir)
    labels = text_names.count_names(found.labels, found.labels_N)
    if len(labels.tokens) < 2:
        raise UsageError(
            f"--corpus={config.corpus.corpus}: every text to train on has the label "
            f"{labels.tokens[0]!r}, so there is nothing to learn; give texts of two labels or more"
        )
    settings = config.vocabulary
    if settings.vocab:
        return vocabulary.load(settings.vocab), labels
    words = text_names.count_names(
        found.words, found.tokens_M, settings.min_count, settings.max_vocab_size
    )
    return words, labels


def _usable(training: Examples, config: Config) -> Examples:
    """Those with a word and a label that are known."""
    usable_E = training.lengths_E > 0
    usable_E &= np.add.reduceat(training.labels_N < 0, training.label_starts_E[:-1]) == 0
    if not usable_E.any():
        raise UsageError(
            f"--corpus={config.corpus.corpus}: no text has a word that is known; give other text, "
            f"or lower --min_count={config.vocabulary.min_count}"
        )
    if not usable_E.all():
        logging.warning("%d texts without a known word or label are left out", (~usable_E).sum())
    return training.some(usable_E)
