"""Predict labels with a classifier of fastText, in its own arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ...text.fasttext import line_features, model_file
from ...text.fasttext.line_features import CountTree, LineFeatures, mean_rows
from ...text.fasttext.model_file import Model
from ...text.reading import grouped

# Bytes of text whose features are gathered at a time, and the most probabilities at a time.
_TEXT_BYTES, _MAX_PROBABILITIES = 1 << 15, 1 << 22
# The table of src/loss.cc from which fastText takes a sigmoid: SIGMOID_TABLE_SIZE, MAX_SIGMOID.
_TABLE_SIZE, _LARGEST_SCORE = 512, 8
# fastText adds this to a probability before its logarithm, and so to what it prints (std_log).
ADDED = 1e-5


def make_scorer(model: Model) -> tuple[list[str], Callable[[list[bytes]], Iterator[np.ndarray]]]:
    """Return the labels of a classifier of fastText, and what computes their probabilities.

    Args:
        model: The classifier.

    Returns:
        The labels without their prefix, and a function from texts in UTF-8 to the probabilities
        (E, C) of some texts after the other, as fastText prints them; 0 for a text without
        features. Of these, fastText predicts those of at least a threshold plus `ADDED`.
    """
    features, probabilities = LineFeatures(model), _probabilities(model)
    names = [label.decode(errors="replace") for label in model.dictionary.labels]
    names = [name.removeprefix(model_file.LABEL_PREFIX) for name in names]

    def score(texts: list[bytes]) -> Iterator[np.ndarray]:
        """Yield the probabilities of the labels of some texts after the other, (E, C) each."""
        most = max(1, _MAX_PROBABILITIES // max(1, len(names)))
        for batch in grouped(texts, most, _TEXT_BYTES):
            rows_N, owners_N = features.of_lines(batch)
            chances_EC = probabilities(mean_rows(model, rows_N, owners_N, len(batch)))
            has_features_E = np.bincount(owners_N, minlength=len(batch)) > 0
            yield np.where(has_features_E[:, np.newaxis], chances_EC, np.zeros_like(chances_EC))

    return names, score


def _probabilities(model: Model) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function from hidden vectors (E, D) to the probabilities of all labels (E, C)."""
    output_CD = np.array(model.output[:])  # aligned, in memory
    loss = model_file.LOSSES[model.args.loss]
    if loss == "hierarchical_softmax":
        tree = line_features.build_tree(model.dictionary.counts_C)
        levels = tree.levels()
        return lambda hidden_ED: _tree_probabilities(tree, levels, hidden_ED @ output_CD.T)
    normalize = _softmax if loss == "softmax" else _table_sigmoid
    return lambda hidden_ED: normalize(hidden_ED @ output_CD.T) + np.float32(ADDED)


def _softmax(scores_EC: np.ndarray) -> np.ndarray:
    """Return the softmax of scores (E, C)."""
    powers_EC = np.exp(scores_EC - scores_EC.max(axis=1, keepdims=True))
    return powers_EC / powers_EC.sum(axis=1, keepdims=True)


def _table_sigmoid(scores_EC: np.ndarray) -> np.ndarray:
    """Return the sigmoid of scores, from a table of 512 steps as Loss::sigmoid does."""
    clipped_EC = np.clip(scores_EC, -_LARGEST_SCORE, _LARGEST_SCORE)
    steps_EC = ((clipped_EC + _LARGEST_SCORE) * (_TABLE_SIZE / _LARGEST_SCORE / 2)).astype(int)
    points = np.arange(_TABLE_SIZE + 1) * (2 * _LARGEST_SCORE / _TABLE_SIZE) - _LARGEST_SCORE
    table = (1 / (1 + np.exp(-points))).astype(np.float32)
    chances_EC = np.where(scores_EC > _LARGEST_SCORE, np.float32(1), table[steps_EC])
    return np.where(scores_EC < -_LARGEST_SCORE, np.float32(0), chances_EC)


def _tree_probabilities(
    tree: CountTree, levels: list[np.ndarray], scores_EC: np.ndarray
) -> np.ndarray:
    """Return the probabilities of the leaves, (E, C), from the scores of inner nodes.

    As HierarchicalSoftmaxLoss::dfs, it adds 0.00001 to the probability of each turn.
    """
    logs_EN = np.zeros((len(scores_EC), 2 * tree.leaves - 1))
    for nodes_L in levels:
        parents_L = tree.parents[nodes_L]
        scores_EL = scores_EC[:, parents_L - tree.leaves].astype(np.float64)
        turns_EL = np.where(tree.is_right[nodes_L], scores_EL, -scores_EL)
        with np.errstate(over="ignore"):
            logs_EL = np.log(1 / (1 + np.exp(-turns_EL)) + ADDED)
        logs_EN[:, nodes_L] = logs_EN[:, parents_L] + logs_EL
    return np.exp(logs_EN[:, : tree.leaves])
