"""Classifiers of texts in Python: train them, load them, ask them."""

from __future__ import annotations

import csv
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from .errors import UsageError
from .settings.classify_config import BETWEEN_LISTED, MOST_WEIGHT
from .tasks.classify import fasttext_prediction, label_metrics
from .text.fasttext import model_file
from .trained import (
    Result,
    Run,
    argument_names,
    as_bytes,
    check_count,
    check_there,
    column_of,
    export,
    is_missing,
    start_tensorflow,
    takes_settings,
)

_BINS = 10  # of the calibration
_OF_TUNING = {"tune_seconds": "seconds", "tune_bytes": "bytes"}  # arguments of `tune`, by setting


@takes_settings("classify")
def train_classifier(
    texts: Any,
    labels: Iterable[Any] | None = None,
    *,
    weights: Iterable[float] | None = None,
    workdir: str | os.PathLike[str] | None = None,
    verbose: bool | None = None,
    **settings: Any,
) -> Texts:
    """Train a classifier of texts.

    Args:
        texts: An iterable of texts; or a path or glob of labelled files, without `labels`.
        labels: The label of each text, or a list of its labels.
        weights: The weight of each text in the loss, beside `labels`; by default 1.
        workdir: The folder of the run, where a run that was stopped goes on. None: a temporary one.
        verbose: None shows a bar on a terminal and in a notebook, and nothing elsewhere; True
            prints lines there; False shows nothing.
        settings: The flags of `lexrow train --task=classify`, by name; and `preset`, the
            name of an example of settings, which others beside it change.

    Raises:
        ValueError: A setting is not possible, or texts and labels cannot be used.
        RunError: Training failed.
        KeyboardInterrupt: Ctrl-C stopped it, and what was trained is kept.

    Example:
        >>> texts = train_classifier(["good", "bad"] * 50, ["yes", "no"] * 50, dim=4, epochs=5)
        >>> texts.labels
        ['no', 'yes']
    """
    run = Run(workdir)
    with run.undoing():
        return _train(run, texts, labels, weights, verbose, settings)


def _train(
    run: Run,
    texts: Any,
    labels: Iterable[Any] | None,
    weights: Iterable[float] | None,
    verbose: bool | None,
    settings: dict[str, Any],
) -> Texts:
    """Train a classifier in a workdir; see `train_classifier`."""
    config = run.settings("classify", settings)  # refuses a wrong one before anything is read
    if labels is not None and weights is None and _has_weights(config):
        raise ValueError(f"the run in workdir={run.path} has weights; give weights, too")
    if labels is None and weights is not None:
        raise ValueError("weights are given without labels; give labels, or weights in the files")
    if labels is None:
        value, _ = run.corpus(texts, "texts")
    else:
        columns = {"text": texts, "label": labels}
        columns |= {} if weights is None else {"weight": weights}
        value = _write_labelled(run, columns)
        names = {f"{name}_column": name for name in columns}
        settings = {**names, "label_separator": BETWEEN_LISTED, **settings}
    run.train("classify", value, settings, verbose, "texts")
    return Texts.load(run.path, run)


class Texts(Result):
    """A trained classifier of texts.

    Attributes:
        labels: The C labels, most frequent first.
    """

    _OURS = {
        "get_labels": "texts.labels",
        "classes_": "texts.labels, or lexrow.sklearn.TextClassifier",
        "test": "texts.evaluate(path)",
        "test_label": 'texts.evaluate(path)["labels"]',
        "score": 'texts.evaluate(given, labels)["accuracy"]',
        "save_model": "texts.export(path)",
        "quantize": 'texts.export(path, "fasttext_quantized")',
    }

    def __init__(
        self,
        labels: Sequence[str],
        score: Callable[[list[bytes]], Iterator[np.ndarray]],
        run: Run | None = None,
    ):
        self.labels, self._score, self._run = list(labels), score, run

    @classmethod
    def load(cls, path: str | os.PathLike[str], run: Run | None = None) -> Texts:
        """Load the classifier of a workdir, or of a file of fastText (.bin or .ftz).

        Args:
            path: The workdir or the file.
            run: The run of the workdir, if it is open already.

        Raises:
            FileNotFoundError: There is no such file or folder.
            ValueError: The file is no classifier, or the workdir has none.
            RunError: The workdir has no checkpoint that can be read.

        Example:
            >>> Texts.load(texts.workdir)
            <Texts: 3 labels>
        """
        path = check_there(path)
        with argument_names():
            if not os.path.isdir(path):
                model = model_file.load(path, is_supervised=True)
                return cls(*fasttext_prediction.make_scorer(model))
            run = run or Run(path)
            config = run.config_of("classify")
            start_tensorflow()
            from .tasks.classify import classify_model

            return cls(*classify_model.load_scorer(config, run.workdir), run)

    @classmethod
    def tune(
        cls,
        texts: Any,
        labels: Iterable[Any] | None = None,
        seconds: float = 300,
        bytes: int | None = None,
        *,
        heldout: Any = None,
        weights: Iterable[float] | None = None,
        workdir: str | os.PathLike[str] | None = None,
        verbose: bool | None = None,
        **settings: Any,
    ) -> Texts:
        """Search the settings of a classifier, then train it on all texts with the best ones.

        The learning rate, the epochs, the length of n-grams, the number of columns and the loss are
        searched, but for those that `settings` gives. The search ends before its time if a trial
        is right for all held-out texts.

        Args:
            texts: As for `train_classifier`.
            labels: As for `train_classifier`.
            seconds: How long to search, in all calls with this workdir, not counting the time to
                read the texts. The training that follows takes as long as the best trial.
            bytes: The most bytes of the file that `export(path, "fasttext_quantized",
                bytes=bytes)` will write. None: any.
            heldout: A list of texts and a list of their labels to score on, which are not
                trained on; or files, if `texts` names files. None: a share of the texts.
            weights: As for `train_classifier`.
            workdir: The folder of the run, where a search that was stopped goes on. None: a
                temporary one.
            verbose: As for `train_classifier`. True prints a line for each trial, too.
            settings: The settings of `train_classifier`. `tune="dim,epochs"` searches these two,
                from given values, too.

        Raises:
            ValueError: A setting is not possible, texts and labels cannot be used, or no file has
                so few bytes.
            RunError: There was no time for a trial, or training failed.
            KeyboardInterrupt: Ctrl-C stopped it, and the trials are kept.

        Example:
            >>> given, labels = ["good", "bad"] * 50, ["yes", "no"] * 50
            >>> found = Texts.tune(given, labels, seconds=60)
            >>> found.trials[0]["score"]
            1.0
        """
        if seconds <= 0:
            raise ValueError(f"seconds={seconds}: give a time to search, such as 300")
        if bytes is not None and bytes <= 0:
            raise ValueError(f"bytes={bytes}: give a size of the file, such as 2_000_000")
        if given := sorted(settings.keys() & _OF_TUNING.keys()):
            raise ValueError(f"{given[0]}: give seconds and bytes instead")
        run = Run(workdir)
        settings = {**settings, "tune_seconds": seconds, "tune_bytes": bytes or 0}
        with argument_names(_OF_TUNING), run.undoing():
            run.settings("classify", settings)  # refuses a wrong one before anything is written
            if heldout is not None:
                is_given = labels is not None
                settings["heldout"] = _write_heldout(run, heldout, weights) if is_given else heldout
            return _train(run, texts, labels, weights, verbose, settings)

    @property
    def trials(self) -> list[dict[str, Any]]:
        """The trials of `tune`, in order: settings, `score` (None if unfinished) and `seconds`."""
        from .tasks.classify import tuning

        found = tuning.read_trials(self._run.workdir) if self._run else []
        return [
            {**trial.settings, "score": trial.score, "seconds": trial.seconds} for trial in found
        ]

    def predict_proba(self, texts: str | Iterable[str]) -> np.ndarray:
        """Return the probability of each label for each text, (N, C) float32, as `labels`.

        Args:
            texts: N texts; or one, whose probabilities are (C,).

        Raises:
            ValueError: An item is not a text.

        Example:
            >>> texts.predict_proba(["good", "bad"]).shape
            (2, 3)
        """
        given = as_bytes([texts] if isinstance(texts, str) else texts)
        empty = np.zeros((0, len(self.labels)), np.float32)
        chances_NC = np.concatenate([empty, *self._score(given)], dtype=np.float32)
        return chances_NC[0] if isinstance(texts, str) else chances_NC

    def predict(
        self, texts: str | Iterable[str], k: int | None = None, threshold: float = 0.0
    ) -> Any:
        """Return the most probable label of each text.

        Args:
            texts: Texts; for a single one, a single result is returned.
            k: How many labels to return for a text, each with its probability, most probable
                first. None: the label alone, or with a threshold any number of labels.
            threshold: The least probability of a label that is returned.

        Raises:
            ValueError: An item is not a text, or k is below 1.

        Example:
            >>> texts.predict(["a good film"])
            ['yes']
            >>> [label for label, _ in texts.predict("good", threshold=0.5)]
            ['yes']
        """
        if k is not None:
            check_count("k", k, " label")
        chances_NC = np.atleast_2d(self.predict_proba(texts))
        most = k or (len(self.labels) if threshold else 1)
        found: list[Any] = [*label_metrics.best_labels(chances_NC, self.labels, most, threshold)]
        if k is None and not threshold:
            found = [pairs[0][0] for pairs in found]
        return found[0] if isinstance(texts, str) else found

    def evaluate(
        self, texts: Any, labels: Iterable[Any] | None = None, **columns: str
    ) -> dict[str, Any]:
        """Return the scores of texts with known labels.

        Args:
            texts: An iterable of texts; or a path or glob of labelled files, without `labels`.
            labels: The label of each text, or a list of its labels.
            columns: `text_column`, `label_column`, `label_separator` and `weight_column` of files,
                if they differ from those of the training files, which are `text` and `label` after
                training on lists. Without these, files that have no such columns have lines such
                as `__label__good a film`.

        Returns:
            `accuracy` (or, if a text has several labels, `precision_at_1`, `recall_at_1` and
            others), the means `macro_precision`, `macro_recall` and `macro_f1`, by label those of
            `labels`, `confusion` (C + 1, C + 1): texts by actual and by most probable label, the
            last for labels that are not known, and `calibration_error`: how far the probability
            of the most probable label is from the share that is right, in ten bins of probability
            (Guo et al. 2017, equation 3). Scores of files have neither of the last two.

        Raises:
            ValueError: There are not as many labels as texts, or a file cannot be used.

        Example:
            >>> texts.evaluate(["good", "bad"], ["yes", "no"])["accuracy"]
            1.0
        """
        if labels is None:
            return self._evaluate_files(texts, columns)
        texts, labels = list(column_of(texts, "texts")), column_of(labels, "labels")
        wanted = [_listed(label, f"labels[{place}]") for place, label in enumerate(labels)]
        if len(texts) != len(wanted):
            raise ValueError(f"{len(texts)} texts and {len(wanted)} labels; give as many of both")
        if not texts:
            raise ValueError("texts has no text; give at least one")
        chances_NC = self.predict_proba(texts)
        ids = {label: number for number, label in enumerate(self.labels)}
        labels_M = np.array([ids.get(label, -1) for names in wanted for label in names])
        counts_N = np.array([len(names) for names in wanted])
        tally = label_metrics.count_predictions(
            chances_NC, labels_M, counts_N, bool((counts_N > 1).any())
        )
        first_N, size = chances_NC.argmax(axis=1), len(self.labels) + 1
        confusion = np.zeros((size, size), np.int64)
        np.add.at(confusion, (labels_M, np.repeat(first_N, counts_N)), 1)
        answers = zip(first_N, wanted, strict=True)
        right_N = [self.labels[first] in names for first, names in answers]
        return {
            **label_metrics.summary(tally, self.labels),
            "confusion": confusion,
            "calibration_error": _calibration_error(chances_NC.max(axis=1), np.array(right_N)),
        }

    def _evaluate_files(self, files: Any, columns: dict[str, str]) -> dict[str, Any]:
        """Return the scores of labelled files."""
        if not isinstance(files, str | os.PathLike):
            raise ValueError("labels are missing; give a label for each text, or a path")
        if self._run is None:
            raise ValueError("this is a file of fastText; give texts and their labels")
        from .tasks.classify import classify_job
        from .tasks.classify.classify_data import COLUMNS

        with argument_names(flags={"heldout": "texts"}):
            config = self._run.config_with(**columns)
            named = [name for name in COLUMNS if name in columns]
            return classify_job.evaluate(config, self._run.workdir, os.fspath(files), named)[1]

    def export(
        self, path: str | os.PathLike[str], format: str = "fasttext", **options: Any
    ) -> None:
        """Write the model or its vectors to a file or folder.

        Args:
            format: `fasttext`, `fasttext_quantized` or `saved_model`; for the vectors of its
                words `word2vec`, `word2vec_binary`, `safetensors`, `parquet` or `static_embedding`.
            options: Of `lexrow export` for the format.

        Raises:
            ValueError: There is no such format, or a name cannot be written in it.
            RunError: The file cannot be written.

        Example:
            >>> texts.export("texts.bin", "fasttext")
        """
        if self._run is None:
            raise ValueError("this is a file of fastText; copy it, or train a classifier")
        export(path, format, self._run, options)

    def __repr__(self) -> str:
        return f"<Texts: {len(self.labels):,} labels>"


def _has_weights(config: Any) -> bool:
    """Return whether a run was trained on lists of texts, labels and weights."""
    labelled = config.labelled
    return labelled.label_separator == BETWEEN_LISTED and bool(labelled.weight_column)


def _calibration_error(chances_N: np.ndarray, right_N: np.ndarray) -> float:
    """Return the mean distance of probability and share of right predictions over the bins."""
    bins_N = np.minimum((chances_N * _BINS).astype(int), _BINS - 1)
    gaps = np.bincount(bins_N, chances_N - right_N, _BINS)
    return float(np.abs(gaps).sum() / len(chances_N))


def _write_labelled(
    run: Run, columns: dict[str, Iterable[Any]], file_name: str = "texts.csv"
) -> str:
    """Write texts, their labels, and weights if there are any, to a file; return its path.

    Args:
        run: The file is in its workdir.
        columns: The texts under `text`, the labels under `label`, the weights under `weight`.
        file_name: The name of the file.
    """
    texts = columns["text"]
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise ValueError(f"texts is {type(texts).__name__}; give a list of texts beside labels")
    columns = {name: column_of(values, f"{name}s") for name, values in columns.items()}
    labels: Any = columns["label"]
    is_matrix = getattr(labels, "ndim", 1) == 2 and labels.shape[1] > 1
    if is_matrix and getattr(labels.dtype, "kind", "f") in "biuf":
        raise ValueError(
            "labels is a matrix of numbers; give the label of each text, or a list of its labels"
        )
    path, missing, count = run.path / file_name, object(), -1
    with run.writing(file_name, path.stem) as file:
        rows = csv.writer(file)
        rows.writerow(columns)
        for count, row in enumerate(itertools.zip_longest(*columns.values(), fillvalue=missing)):
            for name, cell in zip(columns, row, strict=True):
                if cell is missing:
                    raise ValueError(f"{name}s is too short ({count}); give one for each text")
            text, label, *weight = row
            if not isinstance(text, str):
                raise ValueError(f"texts[{count}] is {type(text).__name__}, and not a text")
            if weight and not _is_weight(weight[0]):
                remedy = f"give a number from 0 to {MOST_WEIGHT:,.0f}"
                raise UsageError(f"weights[{count}]={weight[0]}: {remedy}")
            names = _listed(label, f"labels[{count}]")
            if not all(names) or not names:
                raise ValueError(f"labels[{count}] is empty; give each text a label")
            rows.writerow([text, BETWEEN_LISTED.join(names), *weight])
        if count < 0:
            raise ValueError("texts has no text; give at least one")
    return os.fspath(path)


def _write_heldout(run: Run, heldout: Any, weights: Iterable[float] | None) -> str:
    """Write the texts and labels to score on, of weight 1 if others have weights; return the path.

    Raises:
        ValueError: They are no two lists, or are not as long.
    """
    try:
        texts, labels = heldout
    except (TypeError, ValueError):
        raise ValueError("heldout: give a tuple of a list of texts and of one of labels") from None
    columns = {"text": texts, "label": labels}
    columns |= {} if weights is None else {"weight": [1.0 for _ in texts]}
    return _write_labelled(run, columns, "heldout.csv")


def _is_weight(value: Any) -> bool:
    """Return whether a value is a possible weight of a text."""
    try:
        return 0 <= float(value) <= MOST_WEIGHT
    except (TypeError, ValueError):
        return False


def _listed(label: Any, name: str) -> list[str]:
    """Return the labels of a text as a list; one alone is a list of one."""
    is_one = isinstance(label, str | bytes) or not isinstance(label, Iterable)
    labels = [label] if is_one else list(label)
    for one in labels:
        if is_missing(one):
            raise ValueError(f"{name} is no label, but None or NaN; give each text a label")
    return [str(one) for one in labels]
