"""Code lengths against Huffman's algorithm as it is told, and the tree that they span."""

import heapq

import numpy as np
import pytest

from app.losses.tree.huffman import canonical_code, code_length_counts


def one_by_one(counts):
    """The sum of counts times lengths, and the longest length: of equal weights words go first."""
    heap = [(max(int(count), 1), 0, number, 0) for number, count in enumerate(counts)]
    heapq.heapify(heap)
    cost = made = 0
    while len(heap) > 1:
        one, other = heapq.heappop(heap), heapq.heappop(heap)
        cost += one[0] + other[0]
        made += 1
        heapq.heappush(heap, (one[0] + other[0], 1, made, max(one[3], other[3]) + 1))
    return cost, heap[0][3]


def fibonacci(count):
    found = [1, 1]
    while len(found) < count:
        found.append(found[-1] + found[-2])
    return np.array(found[:count][::-1])


def cost_and_depth(counts):
    words_E = code_length_counts(counts)
    descending = np.sort(np.maximum(counts, 1))[::-1]
    return int(descending @ np.repeat(np.arange(len(words_E)), words_E)), len(words_E) - 1


SETS = {
    "zipf": 10**6 // np.arange(1, 2000),
    "equal": np.full(1000, 7),
    "one": np.array([5]),
    "two": np.array([5, 5]),
    "three": np.array([5, 5, 5]),
    "none seen": np.zeros(37, int),
    "some never seen": np.array([9, 3, 0, 0, 0]),
    "a power of two": np.ones(64, int),
    "as skewed as can be": fibonacci(80),
    "one word is nearly all": np.array([10**15, 2, 1, 1, 1]),
}


@pytest.mark.parametrize("counts", SETS.values(), ids=SETS)
def test_lengths_are_huffmans(counts):
    assert cost_and_depth(counts) == one_by_one(counts)


@pytest.mark.parametrize("seed", range(40))
def test_lengths_are_huffmans_for_random_counts(seed):
    random = np.random.default_rng(seed)
    most = [2, 6, 50, 10**9][seed % 4]
    counts = np.sort(random.integers(0, most, size=random.integers(1, 300)))[::-1]
    assert cost_and_depth(counts) == one_by_one(counts)


@pytest.mark.parametrize("counts", SETS.values(), ids=SETS)
def test_every_word_has_its_place_in_a_whole_tree(counts):
    tree = canonical_code(counts)
    assert tree.words_E.sum() == len(counts) and tree.inner_E.sum() == len(counts) - 1
    # At each depth there are the children of the nodes above, with children or words.
    assert tree.words_E[0] + tree.inner_E[0] == 1 and tree.inner_E[-1] == 0
    np.testing.assert_array_equal((tree.words_E + tree.inner_E)[1:], 2 * tree.inner_E[:-1])
    np.testing.assert_array_equal(tree.rows_E, np.cumsum([0, *tree.inner_E[:-1]]))

    ids = np.arange(len(counts))
    depths = np.searchsorted(tree.ends_E, ids, side="right")
    assert (np.diff(depths) >= 0).all()  # frequent words have short paths
    for depth in range(tree.depth + 1):
        indices = tree.last_E[depth] - ids[depths == depth]
        inner = tree.inner_E[depth]
        assert sorted(indices) == list(range(inner, inner + tree.words_E[depth]))


def test_the_mean_length_is_about_the_entropy():
    counts = np.maximum(10**9 // np.arange(1, 10**6 + 1), 1)
    words_E, p = code_length_counts(counts), counts / counts.sum()
    mean, entropy = p @ np.repeat(np.arange(len(words_E)), words_E), -(p @ np.log2(p))
    assert entropy <= mean < entropy + p[0] + 0.086  # Gallager 1978
