from __future__ import annotations

import numpy as np
import pytest

from app.losses.tree.huffman import canonical_code
from app.tasks.classify import fasttext_start
from app.text.fasttext.line_features import build_tree


def path_of(parents, is_right, leaf):
    """The inner nodes from a leaf to the root, and whether each turn is to the right."""
    found = []
    while leaf < len(parents):
        found.append((int(parents[leaf]), bool(is_right[leaf])))
        leaf = parents[leaf]
    return found


@pytest.mark.parametrize("labels", [2, 3, 8, 9, 150])
@pytest.mark.parametrize("kind", ["equal", "many ties", "few ties", "steep"])
def test_our_tree_from_counts(labels, kind):
    draw = np.random.default_rng(labels)
    counts = {
        "equal": np.ones(labels, int),
        "many ties": draw.integers(1, 4, labels),
        "few ties": draw.integers(1, 10**9, labels),
        "steep": (1.5 ** np.minimum(np.arange(labels), 40)).astype(int) + 1,
    }[kind]
    code = canonical_code(np.sort(counts)[::-1])
    made = fasttext_start.make_counts(code)
    tree, order = build_tree(made), fasttext_start.order_rows(code)
    assert fasttext_start.has_tree(code) and fasttext_start.is_canonical(made)
    assert (np.diff(made) <= 0).all() and sorted(order) == [*range(labels - 1)]
    for leaf in range(labels):
        length = int(np.searchsorted(code.ends_E, leaf, side="right"))
        place, expected = code.last_E[length] - leaf, []
        for depth in reversed(range(length)):
            expected.append((code.rows_E[depth] + (place >> 1), bool(place & 1)))
            place >>= 1
        found = path_of(tree.parents, tree.is_right, leaf)
        assert [(order[node - labels], is_right) for node, is_right in found] == expected


def test_a_tree_that_is_too_deep():
    fibonacci = [1, 1]
    while len(fibonacci) < 60:
        fibonacci.append(sum(fibonacci[-2:]))
    assert not fasttext_start.has_tree(canonical_code(np.array(fibonacci[::-1])))
    assert not fasttext_start.is_canonical(np.array(fibonacci[::-1]))
    assert not fasttext_start.is_canonical(np.array([5, 3, 2]))
