"""Pack labelled texts into the sparse matrices that a step of a text classifier takes."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from .encoded_texts import EncodedTexts, intervals
from .labelled import Examples


class Bags(NamedTuple):
    """The batch of a step: the features of B texts, at most N.

    The unique ids of a step are in one or two groups, for as many cores (see `UniqueIds`). The mean
    of the rows of a text's features is a sum of products with sparse matrices (B, U), one for each
    group of U ids. A matrix has an entry for each feature of each text: how often the text has the
    feature, as a share of all its features. Entries are in order, by text and then by id; the
    groups follow one another, then padding.

    Attributes:
        ids_N: The unique ids of words and n-grams, int32, group after group, each ascending; then
            zeros.
        counts_G2: The number of unique ids of each group, U, int32, at least 1; and its number of
            entries.
        entries_N2: The text of each entry, and the index of its id in its group, int32.
        shares_N: The share of each entry in the mean of its text, float32.
        labels_BM: Labels of each text, int32; 0 for padding.
        weights_BM: Weight of each label, float32; 0 for padding.
        text_weights_B: Weight of each text, float32; only for texts with weights and losses that
            score all labels of a text (`Packing.has_shares`).
        shares_BM: How much of the text's weight each label has, float32; as the one before.
    """

    ids_N: Any
    counts_G2: Any
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
        groups: G, the number of groups of unique ids, 1 or 2.
    """

    steps: int
    features: int
    bags: int
    labels: int
    micro: int = 1
    has_shares: bool = False
    groups: int = 1

    def spec(self) -> Bags:
        """Return the shapes and dtypes of one micro-batch, without a dimension of steps."""
        features, labels = [self.features], [self.bags, self.labels]
        return Bags(
            tf.TensorSpec(features, tf.int32),
            tf.TensorSpec([self.groups, 2], tf.int32),
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


def pack_call(
    examples: Examples,
    texts: EncodedTexts,
    shape: Packing,
    weights_C: np.ndarray,
    examples_SB: np.ndarray,
    draw: np.random.Generator,
    index_V: np.ndarray,
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
        index_V: Memory for a number for each feature id, int32, which is overwritten.
    """
    is_text_SB = examples_SB >= 0
    examples_K = examples_SB[is_text_SB]
    parts = (
        *_pack_features(texts, shape, is_text_SB, examples_K, index_V),
        *_pack_labels(examples, shape, weights_C, is_text_SB, examples_K, draw),
    )
    specs = given(shape.call_spec())
    return Bags(*(part.reshape(spec.shape) for part, spec in zip(parts, specs, strict=True)))


def _pack_features(
    texts: EncodedTexts,
    shape: Packing,
    is_text_SB: np.ndarray,
    examples_K: np.ndarray,
    index_V: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """Return the first four parts of `Bags` of S steps, (S, ...), of the texts at given places."""
    steps, features, groups = len(is_text_SB), shape.features, shape.groups
    ids_SN = np.zeros((steps, features), np.int32)
    counts_SG2 = np.zeros((steps, groups, 2), np.int32)
    entries_SN2 = np.empty((steps, features, 2), np.int32)
    shares_SN = np.empty((steps, features), np.float32)
    ends_S = np.cumsum(is_text_SB.sum(axis=1)).tolist()
    # The arrays of one step fit the processor's caches.
    for step, (first, stop) in enumerate(itertools.pairwise([0, *ends_S])):
        starts_K = texts.starts_E[examples_K[first:stop]]
        sizes_K = texts.starts_E[examples_K[first:stop] + 1] - starts_K
        owners_N, index_N = intervals(starts_K, sizes_K)
        ids_N, count = texts.ids_F[index_N], len(index_N)
        unique_U = _unique(ids_N)
        if len(unique_U) < groups:  # no group is empty; rows without an entry do not change
            unique_U = np.union1d(unique_U, np.arange(groups, dtype=np.int32))
        index_V[unique_U] = np.arange(len(unique_U), dtype=np.int32)
        # Neighbours go to different groups: low ids are the most frequent ones.
        ids_G = [unique_U[group::groups] for group in range(groups)]
        rows_N = index_V[ids_N]
        rows_N, group_N = rows_N >> groups - 1, rows_N & groups - 1  # there are 1 or 2 groups
        entries_G = [np.flatnonzero(group_N == group) for group in range(groups)]
        counts_SG2[step] = [*zip(map(len, ids_G), map(len, entries_G), strict=True)]
        ids_SN[step, : len(unique_U)] = np.concatenate(ids_G)
        order_N, texts_K = np.concatenate(entries_G), np.flatnonzero(is_text_SB[step])
        entries_SN2[step, :count, 0] = texts_K[owners_N[order_N]]
        entries_SN2[step, :count, 1] = rows_N[order_N]
        shares_SN[step, :count] = texts.shares_F[index_N[order_N]]
        entries_SN2[step, count:] = 0
        shares_SN[step, count:] = 0
    return ids_SN, counts_SG2, entries_SN2, shares_SN


def _unique(ids_N: np.ndarray) -> np.ndarray:
    """Return the unique ids, ascending: a sort is faster than `np.unique` of NumPy 2.3."""
    ids_N = np.sort(ids_N)
    is_first_N = np.ones(len(ids_N), bool)
    np.not_equal(ids_N[1:], ids_N[:-1], out=is_first_N[1:])
    return ids_N[is_first_N]


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
