"""Load the trained vectors of a workdir: of its words, or of its items.

Plain vectors are read without TensorFlow, which takes seconds to start.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..checkpoints import checkpoint
from ..checkpoints.stored import EARLIER, count_rows, read_ids, read_layout
from ..checkpoints.workdir import Workdir, read_settings
from ..errors import RunError, UsageError
from ..settings import ClassifyConfig, Config, ModelConfig, RecommendConfig, flag_values
from ..text import unicode_rules, vocabulary
from ..text.subwords import list_rows
from ..text.vocabulary import Vocabulary
from ..types import NgramRule, NgramVectors, WordVectors
from . import recorded_corpus


def needs_tensorflow(path: str | Path) -> bool:
    """Return whether `load` needs TensorFlow: for sums by features, and rows stored elsewhere.

    Args:
        path: The workdir of the run.

    Raises:
        UsageError: The flags of the run cannot be read.
    """
    config = flag_values.from_names(read_settings(path))
    has_features = Workdir(path).features.exists()
    is_stored_elsewhere = config.table.is_dynamic or bool(config.table.table_file)
    is_earlier = any(Workdir(path).path.glob(f"*/*/{EARLIER}"))
    return has_features or is_stored_elsewhere or is_earlier


_AT_ONCE = 1 << 12  # items or words whose rows are added at a time
_LEAST_LENGTH = 1e-6  # of an item that is scaled to length 1, as `tf.math.l2_normalize` has it
# A file of each kind of folder that `lexrow export` writes.
_EXPORTS = ("vectors.json", "saved_model.pb", "model.safetensors", "projector_config.pbtxt")


def load(path: str | Path, most: int = 0) -> WordVectors:
    """Load the vectors of the words of a run, or of its items with --task=recommend.

    They are of the best epoch if --patience kept one, else of the newest checkpoint. Those of items
    are without biases, and of length 1 with --cosine.

    Args:
        path: The workdir of the run.
        most: Of plain rows read only so many, the first ones, and compare no checksum; 0 reads all.

    Raises:
        UsageError: The workdir has no run.
        RunError: No checkpoint can be read.
    """
    workdir = Workdir(path)
    trained = workdir.trained  # raises first if the folder cannot be read
    is_named = workdir.vocabulary.exists() or workdir.items.exists()
    exports = [name for name in _EXPORTS if (workdir.path / name).exists()]
    if exports and not workdir.flags.exists():
        raise UsageError(
            f"--workdir={path}: an export ({exports[0]}), which other programs read; name the "
            "workdir of the run"
        )
    if not is_named and not checkpoint.list_checkpoints(trained):
        raise UsageError(f"--workdir={path}: no trained run there; name the folder of one")
    config = flag_values.from_names(read_settings(path))
    if config.table.is_dynamic and config.run.task == "words":
        from .words import growing_words

        vectors = checkpoint.read_newest(trained, growing_words.load)
    else:
        # Names are read here: a DamagedError below would mean that the checkpoint is damaged.
        names, ngrams = _load_names(config, workdir), 0
        if isinstance(config, ClassifyConfig):
            ngrams = config.labelled.buckets if config.labelled.word_ngrams > 1 else 0
            recorded = recorded_corpus.count_ngram_rows(workdir)
            ngrams = ngrams if recorded is None else recorded
        vectors = checkpoint.read_newest(
            trained, lambda folder: _load_checkpoint(folder, workdir, config, names, ngrams, most)
        )
    has_cosines = isinstance(config, RecommendConfig) and config.ratings.cosine
    if has_cosines and not flag_values.lacking("cosine", flag_values.by_name(config)):
        lengths_V1 = np.linalg.norm(vectors.matrix, axis=1, keepdims=True)
        vectors = vectors._replace(matrix=vectors.matrix / np.maximum(lengths_V1, _LEAST_LENGTH))
    return vectors._replace(form=unicode_rules.normal_form(config.corpus))


def _load_names(config: Config, workdir: Workdir) -> Vocabulary:
    """Load the names of the rows; raise DamagedError for a missing file beside a checkpoint."""
    if config.run.task == "recommend":
        workdir.has(workdir.items)
        return vocabulary.load_names(workdir.items)
    workdir.has(workdir.vocabulary)
    return vocabulary.load(str(workdir.vocabulary))


def _load_checkpoint(
    folder: Path, workdir: Workdir, config: Config, names: Vocabulary, ngrams: int, most: int
) -> WordVectors:
    """Load the vectors in the folder of a checkpoint, without a bias and without word n-grams.

    Of a dynamic table only items or words that have a row are returned. `ngrams` is the number of
    rows of a classifier's n-grams, whose ids follow those of its words.
    """
    path, table, lists = workdir.vocabulary, "input", None
    if isinstance(config, RecommendConfig):
        path, table = workdir.items, "items"
        names, lists = _with_lists(workdir, names)
    elif config.model.tie_weights:
        table = "output"
    is_dynamic, count = read_layout(folder, table)["kind"] == "dynamic", len(names.tokens)
    is_plain = not is_dynamic and lists is None and not config.model.has_subwords
    ids_N, rows_ND = read_ids(folder, table, most=most if is_plain else 0)
    if table != "input":
        rows_ND = rows_ND[:, :-1]  # the last column is a bias, not part of the direction
    if lists is not None:
        if len(ids_N) and ids_N[-1] >= lists[2]:
            raise misfit(path, count, folder, ids_N[-1] + 1)
        # 0 for a row that is not there.
        table_RD = np.zeros((lists[2], rows_ND.shape[1]), np.float32)
        table_RD[ids_N] = rows_ND
        return WordVectors(names.tokens, _sum_rows(table_RD, *lists[:2]), names.counts)
    if rule := ngram_rule(config.model):
        try:
            return compose_words(names, rows_ND, rule)
        except ValueError as error:
            raise misfit(path, count, folder, len(rows_ND)) from error
    last = ids_N[-1] + 1 if len(ids_N) else 0
    last = count_rows(folder, table) if is_plain and most else last
    # A dynamic table may lack rows.
    if last > count + ngrams or (last < count + ngrams and not is_dynamic):
        raise misfit(path, count, folder, last)
    stored = np.searchsorted(ids_N, count)
    tokens = [names.tokens[number] for number in ids_N[:stored]]
    return WordVectors(tokens, rows_ND[:stored], names.counts[ids_N[:stored]])


def _with_lists(
    workdir: Workdir, names: Vocabulary
) -> tuple[Vocabulary, tuple[np.ndarray, np.ndarray, int] | None]:
    """Return the items of a run, with those that were added by features, and the rows of each.

    See `NamedFeatures.table_rows`; the rows are None without features.
    """
    if not workdir.features.exists():
        return names, None
    from .recommend import recommend_data

    added = recommend_data.read_added(workdir)["items"]
    features = recommend_data.load_features(workdir).items
    names, features = recommend_data.with_added(names, features, added, workdir)
    return names, features and features.table_rows(recommend_data.trained(names))


def _sum_rows(rows_ND: np.ndarray, listed_M: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the sum of the rows of each list, (V, D).

    Args:
        listed_M: Numbers of rows, list after list; no list is empty.
        starts: Where each list begins in `listed_M`, and the end, (V + 1,).
    """
    sums_VD = np.empty((len(starts) - 1, rows_ND.shape[1]), np.float32)
    for part in range(0, len(sums_VD), _AT_ONCE):
        bounds = starts[part : part + _AT_ONCE + 1]
        rows_MD = rows_ND[listed_M[bounds[0] : bounds[-1]]]
        sums_VD[part : part + len(bounds) - 1] = np.add.reduceat(rows_MD, bounds[:-1] - bounds[0])
    return sums_VD


def ngram_rule(settings: ModelConfig) -> NgramRule | None:
    """Return the n-grams of a word by the flags of subwords; None without subwords."""
    if not settings.has_subwords:
        return None
    return NgramRule(settings.min_ngram, settings.max_ngram, settings.ngram_buckets)


def compose_words(names: Vocabulary, rows_ND: np.ndarray, rule: NgramRule) -> WordVectors:
    """Return the composed vectors of all words, and the vectors of the n-grams.

    The last bits may differ from those of a step, which adds the rows in another order.

    Args:
        rows_ND: The rows of the words, then of the buckets (see `SubwordRows`), float32. The
            result shares their memory.
        rule: The n-grams of a word.

    Raises:
        ValueError: These are not the rows of these words.
    """
    count = len(names.tokens)
    rows_N, starts, buckets_B = list_rows(names.tokens, rule)
    if len(rows_ND) != count + len(buckets_B):
        raise ValueError(f"{len(rows_ND):,} rows are not those of {count:,} words")
    matrix = _sum_rows(rows_ND, rows_N, starts)
    matrix /= np.diff(starts)[:, np.newaxis].astype(np.float32)
    ngrams = NgramVectors(rule, rows_ND[count:], buckets_B)
    return WordVectors(names.tokens, matrix, names.counts, ngrams)


def misfit(path: Path, names: int, folder: Path, rows: int) -> RunError:
    """Return the error for a file of names that a checkpoint was not made with.

    Args:
        rows: The number of rows of the table, with those of n-grams.
    """
    return RunError(
        f"{path} has {names:,} names, which do not fit the {rows:,} rows of {folder}; put back a "
        "copy of the file, or train in a new workdir"
    )
