"""Pack labelled texts into the sparse matrices that a step of a text classifier takes."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..text.fasttext.hashing import hash_names
from .features import Features
from .labelled import Examples, list_starts

# Words whose features are computed at a time.
_WORDS_AT_ONCE = 1 << 20


class Bags(NamedTuple):
    """The batch of a step: N features of B texts, sorted by id.

    The mean of the rows of a text's features is a product with a sparse matrix (U, B), which has
    the share 1 / n for each of the n features of a text. The features are the matrix's entries in
    order. Padding, at the end, repeats the last row and text with the share 0.

    Attributes:
        ids_N: The U unique ids of words and n-grams, int32, ascending; then zeros.
        count_1: The number of unique ids, U, int32; 1 for a step without texts.
        entries_N2: For each feature the index of its id in `ids_N`, and its text, int32.
        shares_N: The share of each feature in the mean of its text, float32; 0 for padding.
        labels_BM: Labels of each text, int32; 0 for padding.
        weights_BM: Weight of each label, float32; 0 for padding.
        text_weights_B: Weight of each text, float32; only for texts with weights and losses that
            score all labels of a text (`Packing.has_shares`).
        shares_BM: How much of the text's weight each label has, float32; as the one before.
    """

    ids_N: Any
    count_1: Any
    entries_N2: Any
    shares_N: Any
    labels_BM: Any
    weights_BM: Any
    text_weights_B: Any = ()
    shares_BM: Any = ()


class Packing(NamedTuple):
    """Static shapes of the batch of one call: S steps of B bags with M labels each, and N features.

    If a training step has several micro-batches, each of them counts as a step here.

    Attributes:
        steps: S, a multiple of `micro`.
        features: N, of all B bags together.
        bags: B.
        labels: M.
        micro: Number of micro-batches of a training step.
        has_shares: Whether the bags have `text_weights_B` and `shares_BM`.
    """

    steps: int
    features: int
    bags: int
    labels: int
    micro: int = 1
    has_shares: bool = False

    def spec(self) -> Bags:
        """Return the shapes and dtypes of one micro-batch, without a dimension of steps."""
        features, labels = [self.features], [self.bags, self.labels]
        return Bags(
            tf.TensorSpec(features, tf.int32),
            tf.TensorSpec([1], tf.int32),
            tf.TensorSpec([*features, 2], tf.int32),
            tf.TensorSpec(features, tf.float32),
            tf.TensorSpec(labels, tf.int32),
            tf.TensorSpec(labels, tf.float32),
            *[
                tf.TensorSpec(shape, tf.float32)
                for shape in (labels[:1], labels)
                if self.has_shares
            ],
        )

    def call_spec(self) -> Bags:
        """Return the shapes and dtypes of a call, (S / micro, micro N, ...)."""
        steps, micro = self.steps // self.micro, self.micro
        specs = [
            tf.TensorSpec([steps, micro * size, *rest], dtype)
            for (size, *rest), dtype in ((spec.shape, spec.dtype) for spec in given(self.spec()))
        ]
        return Bags(*specs)


def given(bags: Bags) -> list:
    """Return the fields of bags that are not left out.

    Args:
        bags: Bags, or their specs.
    """
    return [part for part in bags if not isinstance(part, tuple)]


class EncodedTexts(NamedTuple):
    """The feature ids of E texts, in memory.

    Attributes:
        ids_F: Feature ids, int32, one text after the other.
        starts_E: Start of each text in `ids_F`, int64.
        sizes_E: Number of features of each text.
        rows: Number of feature ids.
    """

    ids_F: np.ndarray
    starts_E: np.ndarray
    sizes_E: np.ndarray
    rows: int


def encode(examples: Examples, features: Features, most: int) -> EncodedTexts:
    """Return the feature ids of all texts: they are the same in every epoch.

    Texts of single words are not copied.

    Args:
        examples: The texts.
        features: Which features a text has.
        most: Largest number of features of a text; longer texts are cut.
    """
    sizes_E = features.sizes(examples.lengths_E, most)
    if features.ngrams == 1:
        return EncodedTexts(examples.tokens_M, examples.starts_E[:-1], sizes_E, features.rows)
    lengths_E = np.minimum(examples.lengths_E, features.longest(most))
    hashes_W = hash_names(examples.words) if features.needs_hashes else None
    ids_F, end = np.empty(sizes_E.sum(), np.int32), 0
    block_E = np.cumsum(lengths_E) // _WORDS_AT_ONCE
    bounds = [0, *(np.flatnonzero(np.diff(block_E)) + 1), len(sizes_E)]
    for first, stop in itertools.pairwise(bounds):
        lengths = lengths_E[first:stop]
        index_M = _intervals(examples.starts_E[first:stop], lengths)
        tokens_M = examples.tokens_M[index_M]
        hashes_M = None if hashes_W is None else hashes_W[tokens_M]
        with tf.device("CPU"):
            owners_M = np.repeat(np.arange(stop - first, dtype=np.int32), lengths)
            ids, owners = features.extract(tf.constant(tokens_M), owners_M, hashes_M)
        ids_F[end : end + len(ids)] = ids
        end += len(ids)
        sizes_E[first:stop] = np.bincount(owners, minlength=stop - first)  # without unknown words
    return EncodedTexts(ids_F[:end], list_starts(sizes_E)[:-1], sizes_E, features.rows)


def _intervals(starts_K: np.ndarray, lengths_K: np.ndarray) -> np.ndarray:
    """Return the numbers from each start on, as many as its length, one list after the other."""
    before_K = np.cumsum(lengths_K) - lengths_K
    return np.repeat(starts_K - before_K, lengths_K) + np.arange(lengths_K.sum())


def pack_call(
    examples: Examples,
    texts: EncodedTexts,
    shape: Packing,
    weights_C: np.ndarray,
    examples_SB: np.ndarray,
    draw: np.random.Generator,
) -> Bags:
    """Return the `Bags` of a call.

    If M is 1, one label of each text is drawn at random; else all are taken.

    Args:
        examples: The texts.
        texts: Their features.
        shape: Shapes of the call.
        weights_C: Weight of each label, float32.
        examples_SB: The texts of each step, -1 for none.
        draw: Draws the labels.
    """
    is_text_SB = examples_SB >= 0
    examples_K = examples_SB[is_text_SB]
    parts = (
        *_pack_features(texts, shape, is_text_SB, examples_K),
        *_pack_labels(examples, shape, weights_C, is_text_SB, examples_K, draw),
    )
    specs = given(shape.call_spec())
    return Bags(*(part.reshape(spec.shape) for part, spec in zip(parts, specs, strict=True)))


def _pack_features(
    texts: EncodedTexts, shape: Packing, is_text_SB: np.ndarray, examples_K: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Return the first four parts of `Bags` of S steps, (S, ...), of the texts at given places.

    Features are sorted by id, and by text where ids are equal, as one number each: a sort of
    indices takes several times as long.
    """
    sizes_SB = np.zeros(is_text_SB.shape, np.int32)
    sizes_SB[is_text_SB] = sizes_K = texts.sizes_E[examples_K]
    is_real_SN = np.arange(shape.features) < sizes_SB.sum(axis=1, keepdims=True)
    bits = shape.bags.bit_length()
    is_short = texts.rows.bit_length() + bits < np.iinfo(np.int32).bits
    dtype = np.dtype(np.int32 if is_short else np.int64)
    keys_F = texts.ids_F[_intervals(texts.starts_E[examples_K], sizes_K)].astype(dtype)
    keys_F <<= bits
    keys_F |= np.repeat(np.nonzero(is_text_SB)[1].astype(dtype), sizes_K)
    keys_SN = np.full(is_real_SN.shape, np.iinfo(dtype).max)
    keys_SN[is_real_SN] = keys_F
    keys_SN.sort(axis=1)
    entries_SN2 = np.empty((*keys_SN.shape, 2), np.int32)
    owners_SN = np.bitwise_and(keys_SN, (1 << bits) - 1, dtype=np.int32, casting="unsafe")
    owners_SN[~is_real_SN] = shape.bags - 1
    entries_SN2[..., 1] = owners_SN
    keys_SN >>= bits
    is_first_SN = is_real_SN.copy()
    is_first_SN[:, 1:] &= keys_SN[:, 1:] != keys_SN[:, :-1]
    index_SN = np.cumsum(is_first_SN, axis=1, dtype=np.int32)
    count_S1 = np.maximum(index_SN[:, -1:], 1)
    entries_SN2[..., 0] = np.maximum(index_SN - 1, 0)
    ids_SN = np.zeros(keys_SN.shape, np.int32)
    ids_SN[np.arange(shape.features) < index_SN[:, -1:]] = keys_SN[is_first_SN]
    shares_SB = (1 / np.maximum(sizes_SB, 1)).astype(np.float32)
    owners_SN += np.arange(0, sizes_SB.size, shape.bags, dtype=np.int32)[:, np.newaxis]
    return ids_SN, count_S1, entries_SN2, shares_SB.reshape(-1)[owners_SN] * is_real_SN


def _pack_labels(
    examples: Examples,
    shape: Packing,
    weights_C: np.ndarray,
    is_text_SB: np.ndarray,
    examples_K: np.ndarray,
    draw: np.random.Generator,
) -> list[np.ndarray]:
    """Return the parts of `Bags` from `labels_BM` on, (S, B, ...), of the texts at given places."""
    starts_K1 = examples.label_starts_E[examples_K, np.newaxis]
    counts_K1 = examples.label_starts_E[examples_K + 1, np.newaxis] - starts_K1
    if shape.labels == 1:
        chosen_KM = (draw.random(counts_K1.shape) * counts_K1).astype(np.int64)
    else:
        chosen_KM = np.arange(shape.labels)[np.newaxis]
    is_label_KM = chosen_KM < counts_K1
    index_KM = np.where(is_label_KM, starts_K1 + chosen_KM, 0)
    labels_KM = np.where(is_label_KM, examples.labels_N[index_KM], 0)
    shares_KM = is_label_KM.astype(np.float32)
    if examples.shares_N is not None:
        shares_KM *= examples.shares_N[index_KM]
    text_weights_K = np.ones(len(examples_K), np.float32)
    if examples.weights_E is not None:
        text_weights_K = examples.weights_E[examples_K]
        shares_KM *= text_weights_K[:, np.newaxis]
    parts = [labels_KM.astype(np.int32), weights_C[labels_KM] * shares_KM]
    if shape.has_shares:
        parts += [text_weights_K, shares_KM]
    return [_scatter(part, is_text_SB) for part in parts]


def _scatter(part_K: np.ndarray, is_text_SB: np.ndarray) -> np.ndarray:
    """Return an array (S, B, ...) with the parts of the texts at their places, and 0 elsewhere."""
    part_SB = np.zeros((*is_text_SB.shape, *part_K.shape[1:]), part_K.dtype)
    part_SB[is_text_SB] = part_K
    return part_SB
