"""Classes of words: which words go together so that a step touches few rows.

A word w of probability p(w) has -log P(w | h) = -log P(c(w) | h) - log P(w | c(w), h), which reads
the C rows of the classes and the s(w) rows of the word's class, not all V (Goodman 2001). How many
that is on average depends on the sizes:

    E = C + sum_w p(w) s(w), and C = sum_w 1 / s(w), as a class of s words counts 1 / s for each.

So the sum over words of 1 / s + p s is to be least, which for each word it is where -1 / s^2 + p is
0: **s(w) = 1 / sqrt(p(w))**, C = sum sqrt(p), and E = 2 sum sqrt(p). For ten million words under
Zipf's law E is 3,000 where classes of equal size have 6,300. With L levels of classes the same sum
is 1 / (s_1 ... s_(L-1)) + p (s_1 + ... + s_(L-1)), least where every s is p^(-1/L).

In each rule a class is an interval of words by descending count, cut from the cumulative sum of a
mass m(w), C equal parts of it, so that s is proportional to 1 / m: m is 1 for classes of equal
size, p for equal frequency, and p^(1/L) for the fewest rows.

A step of N targets reads a class once for all of its targets, and then scores each of them:

    K (C + sum_c s_c (1 - (1 - p_c)^N)) + N (C + sum_c p_c s_c)

in products of a row and a vector, if to read, update and write a row takes as long as K of them.
Per word that is (N + K) / s + N p s + K (1 - exp(-N p s)): where N p s is large it is least for s =
sqrt((N + K) / (N p)), where it is small for sqrt((N + K) / (N (1 + K) p)). So the law stays 1 /
sqrt(p), and the number of classes depends on N: it is the one of the least cost.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# From p(w) and the share of the levels that lie below a class to the mass of a word: 1/2 for the
# classes of two levels, 1/3 for those of three, and 2/3 for the classes of these.
RULES = {
    "equal_size": lambda p_V, below: np.ones_like(p_V),
    "equal_frequency": lambda p_V, below: p_V,
    "fewest_rows": lambda p_V, below: p_V**below,
}
# K: 70 to 140 where it was measured (data/benchmarks/README.md). What each class that a step reads
# costs besides its rows, in products: 0.12 ms in TensorFlow's loop, where one of 300 columns takes
# 12 ns.
_ROW, _BLOCK = 100, 10_000
# Numbers of classes that are tried: V ^ (share of levels above) times 1/8 to 16, half a power of 2
# apart; between neighbours the cost differs by a few per cent.
_FACTORS = 2.0 ** np.arange(-3, 4.5, 0.5)


def probabilities(counts_V: np.ndarray) -> np.ndarray:
    """Each word's share of the text, (V,) float64; a word never seen counts as seen once."""
    counted = np.maximum(np.asarray(counts_V, np.float64), 1.0)
    return counted / counted.sum()


def partition(
    counts_V: np.ndarray, levels: int, rule: str, classes: int = 0, targets: int = 1
) -> list[np.ndarray]:
    """Where the groups of every level but the first begin and the last one ends, top level first.

    counts_V: by descending count. levels: 2, or 3 for classes of classes. rule: a key of RULES.
    classes: how many the words are cut into; 0 for the number at which a step of so many targets
    costs least. There are fewer where a word alone has the mass of several. For two levels the
    result is [class starts (C + 1,)] in words; for three [starts (A + 1,) in classes, class
    starts].
    """
    p_V = probabilities(counts_V)
    masses = [RULES[rule](p_V, level / levels) for level in range(1, levels)]
    return _cheapest(p_V, masses, classes, targets)[1]


def expected_rows(counts_V: np.ndarray, starts: Sequence[np.ndarray], targets: int = 1) -> float:
    """The rows that a step touches on average, over all levels.

    starts: as `partition` gives them.
    """
    p_N = probabilities(counts_V)
    rows = 0.0
    for starts_G in reversed(starts):
        p_N = np.add.reduceat(p_N, starts_G[:-1])
        rows += float(_chance(p_N, targets) @ np.diff(starts_G))
    return rows + len(p_N)


def assign_devices(
    counts_V: np.ndarray, starts_C: np.ndarray, targets: int, devices: int
) -> np.ndarray:
    """A device for each class, (C,) int32, so that the rows which a step touches are shared evenly.

    The class with the greatest expected load goes to the device with the least so far (Graham 1969,
    longest processing time first). targets: of a step.
    """
    loads_C = expected_loads(counts_V, starts_C, targets)
    device_C = np.zeros(len(loads_C), np.int32)
    totals = np.zeros(devices)
    for place in np.argsort(-loads_C, kind="stable"):
        device_C[place] = np.argmin(totals)
        totals[device_C[place]] += loads_C[place]
    return device_C


def imbalance(
    counts_V: np.ndarray, starts_C: np.ndarray, targets: int, device_C: np.ndarray
) -> tuple[float, float]:
    """The rows that a step touches on the busiest device, over an even share of those of an
    average step: of the average step, and of the worst, whose targets are all in the largest
    classes of one device. 1 is even.
    """
    loads = np.bincount(device_C, expected_loads(counts_V, starts_C, targets))
    sizes_C = np.diff(starts_C)
    worst = max(
        np.sort(sizes_C[device_C == device])[-targets:].sum() for device in range(len(loads))
    )
    return float(loads.max() / loads.mean()), float(worst / loads.mean())


def expected_loads(counts_V: np.ndarray, starts_C: np.ndarray, targets: int) -> np.ndarray:
    """The rows of each class that a step touches on average, (C,): none, or all of a class."""
    p_C = np.add.reduceat(probabilities(counts_V), starts_C[:-1])
    return np.diff(starts_C) * _chance(p_C, targets)


def _cheapest(
    p_N: np.ndarray, masses: Sequence[np.ndarray], count: int, targets: int
) -> tuple[float, list[np.ndarray]]:
    """The cost of a step, in products, and the partition of N units that makes it the least.

    masses: of the units, for each level. count: of classes at the first, if not 0.
    """
    if not masses:
        return (_ROW + targets) * len(p_N), []
    share = len(masses) / (len(masses) + 1)
    counts = [count] if count else np.round(len(p_N) ** share * _FACTORS)
    found = []
    for parts in np.unique(np.clip(counts, 1, len(p_N))):
        cut_G = _cut(masses[0], parts)
        p_G, *above = (np.add.reduceat(mass, cut_G[:-1]) for mass in [p_N, *masses[1:]])
        sizes_G, touched_G = np.diff(cut_G), _chance(p_G, targets)
        here = touched_G @ (_ROW * sizes_G + _BLOCK) + targets * (p_G @ sizes_G)
        cost, starts = _cheapest(p_G, above, 0, targets)
        found.append((here + cost, [*starts, cut_G]))
    return min(found, key=lambda pair: pair[0])


def _chance(p_G: np.ndarray, targets: int) -> np.ndarray:
    """The chance of each group that some target of a step is in it."""
    return -np.expm1(targets * np.log1p(-np.minimum(p_G, 1 - 1e-12)))


def _cut(mass_N: np.ndarray, parts: float) -> np.ndarray:
    """Where the intervals of equal mass begin, and the end, (C + 1,); empty ones are left out."""
    middle_N = np.cumsum(mass_N) - mass_N / 2
    part_N = np.floor(middle_N * (parts / mass_N.sum()))
    return np.append(np.flatnonzero(np.diff(part_N, prepend=-1)), len(mass_N))
