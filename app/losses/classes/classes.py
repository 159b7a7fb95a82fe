"""The choice of classes: which words share a class, so that a step touches few rows.

A word w of probability p(w) has -log P(w | h) = -log P(c(w) | h) - log P(w | c(w), h). This reads
the C rows of the classes and the s(w) rows of the word's class, not all V (Goodman 2001). The mean
number of rows depends on the sizes:

    E = C + sum_w p(w) s(w), and C = sum_w 1 / s(w), since a word of a class of s counts 1 / s.

The sum over words of 1 / s + p s is least if for each word -1 / s^2 + p = 0: **s(w) = 1 /
sqrt(p(w))**. Then C = sum sqrt(p), and E = 2 sum sqrt(p). For ten million words under Zipf's law E
is 3,000; with classes of equal size it is 6,300. With L levels of classes the sum is 1 / (s_1 ...
s_(L-1)) + p (s_1 + ... + s_(L-1)), and is least if every s is p^(-1/L).

By each rule a class is an interval of words by descending count. The cumulative sum of a mass m(w)
is cut into C equal parts, so s is proportional to 1 / m. The mass is 1 for classes of equal size, p
for equal frequency, and p^(1/L) for the fewest rows.

A step of N targets reads a class once for all of its targets, and then scores each of them:

    K (C + sum_c s_c (1 - (1 - p_c)^N)) + N (C + sum_c p_c s_c)

This is the cost in products of a row and a vector, where K products take as long as to read, update
and write a row. For one word it is (N + K) / s + N p s + K (1 - exp(-N p s)). If N p s is large,
the cost is least for s = sqrt((N + K) / (N p)); if it is small, for sqrt((N + K) / (N (1 + K) p)).
So s stays proportional to 1 / sqrt(p), and the number of classes depends on N. It is chosen by the
least cost.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# The mass of a word, from p(w) and an exponent: 1/2 for the classes of two levels; with three
# levels 1/3 for the classes of words, and 2/3 for the classes of classes.
RULES = {
    "equal_size": lambda p_V, below: np.ones_like(p_V),
    "equal_frequency": lambda p_V, below: p_V,
    "fewest_rows": lambda p_V, below: p_V**below,
}
# _ROW is K, which was measured as 70 to 140 (data/benchmarks/README.md). _BLOCK is the cost of a
# class that a step reads, besides its rows, in products: 0.12 ms in TensorFlow's loop, where a
# product of 300 columns takes 12 ns.
_ROW, _BLOCK = 100, 10_000
# The numbers of classes that are tried are V ^ (the share of levels above) times these factors.
# From one factor to the next the cost changes by a few per cent.
_FACTORS = 2.0 ** np.arange(-3, 4.5, 0.5)


def probabilities(counts_V: np.ndarray) -> np.ndarray:
    """Return each word's share of the text, (V,) float64.

    Args:
        counts_V: Occurrences of the words. A count below 1 is taken as 1.
    """
    counted = np.maximum(np.asarray(counts_V, np.float64), 1.0)
    return counted / counted.sum()


def partition(
    counts_V: np.ndarray, levels: int, rule: str, classes: int = 0, targets: int = 1
) -> list[np.ndarray]:
    """Cut the words into classes, and for three levels the classes into classes.

    Args:
        counts_V: Occurrences of the words, descending.
        levels: 2, or 3 for classes of classes.
        rule: A key of RULES.
        classes: The number of classes of words, or 0 to choose it by the least cost. There are
            fewer if one word has the mass of several classes.

    Returns:
        Where the classes of each level begin and the last one ends, top level first. For two levels
        [class starts (C + 1,) in words]; for three [starts (A + 1,) in classes, class starts].
    """
    p_V = probabilities(counts_V)
    masses = [RULES[rule](p_V, level / levels) for level in range(1, levels)]
    return _cheapest(p_V, masses, classes, targets)[1]


def expected_rows(counts_V: np.ndarray, starts: Sequence[np.ndarray], targets: int = 1) -> float:
    """Return the mean number of rows that a step touches, summed over all levels.

    Args:
        counts_V: Occurrences of the words, descending.
        starts: The result of `partition`.
    """
    p_N = probabilities(counts_V)
    rows = 0.0
    for starts_G in reversed(starts):
        p_N = np.add.reduceat(p_N, starts_G[:-1])
        rows += float(_chance(p_N, targets) @ np.diff(starts_G))
    return rows + len(p_N)


def rows_read(sizes_G: np.ndarray, targets: int | None) -> float:
    """Return about how many rows of classes of these sizes a step of so many targets reads.

    A class has a share of the text in proportion to 1 / s, as by the rule for the fewest rows. If
    the number of targets is not known, all rows are read.
    """
    if targets is None:
        return float(sizes_G.sum())
    share_G = 1.0 / sizes_G
    return float(_chance(share_G / share_G.sum(), targets) @ sizes_G)


def _cheapest(
    p_N: np.ndarray, masses: Sequence[np.ndarray], count: int, targets: int
) -> tuple[float, list[np.ndarray]]:
    """Return the least cost of a step, in products, and the partition of N units with this cost.

    The classes are the units of the level above. The number of classes of that level is always
    chosen by cost.
    """
    if not masses:
        return (_ROW + targets) * len(p_N), []
    share = len(masses) / (len(masses) + 1)
    counts = [count] if count else np.round(len(p_N) ** share * _FACTORS)
    candidates = []
    for parts in np.unique(np.clip(counts, 1, len(p_N))):
        cut_G = _cut(masses[0], parts)
        p_G, *above = (np.add.reduceat(mass, cut_G[:-1]) for mass in [p_N, *masses[1:]])
        sizes_G, touched_G = np.diff(cut_G), _chance(p_G, targets)
        level_cost = touched_G @ (_ROW * sizes_G + _BLOCK) + targets * (p_G @ sizes_G)
        cost_above, starts = _cheapest(p_G, above, 0, targets)
        candidates.append((level_cost + cost_above, [*starts, cut_G]))
    return min(candidates, key=lambda candidate: candidate[0])


def _chance(p_G: np.ndarray, targets: int) -> np.ndarray:
    """Return the probability of each segment to have at least one of the targets of a step."""
    return -np.expm1(targets * np.log1p(-np.minimum(p_G, 1 - 1e-12)))


def _cut(mass_N: np.ndarray, parts: float) -> np.ndarray:
    """Cut units into at most `parts` intervals of about equal mass, none of them empty."""
    middle_N = np.cumsum(mass_N) - mass_N / 2
    part_N = np.floor(middle_N * (parts / mass_N.sum()))
    return np.append(np.flatnonzero(np.diff(part_N, prepend=-1)), len(mass_N))
