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


def probabilities(counts_V: np.ndarray) -> np.ndarray:
    """Each word's share of the text, (V,) float64; a word never seen counts as seen once."""
    counted = np.maximum(np.asarray(counts_V, np.float64), 1.0)
    return counted / counted.sum()


def partition(counts_V: np.ndarray, levels: int, rule: str, classes: int = 0) -> list[np.ndarray]:
    """Where the groups of every level but the first begin and the last one ends, top level first.

    counts_V: by descending count. levels: 2, or 3 for classes of classes. rule: a key of RULES.
    classes: how many the words are cut into; 0 for the number for which the rule touches the fewest
    rows. There are fewer where a word alone has the mass of several. For two levels the result is
    [class starts (C + 1,)] in words; for three [starts (A + 1,) in classes, class starts].
    """
    p_V = probabilities(counts_V)
    mass = RULES[rule]
    starts = [np.arange(len(p_V))]  # of the units of each level, in words; at first the words
    found: list[np.ndarray] = []
    for level in range(1, levels):
        mass_V = mass(p_V, level / levels)
        if classes:
            count = classes ** ((levels - level) / (levels - 1))
        elif rule == "fewest_rows":
            count = mass_V.sum()
        else:  # E is C + V / C for either, and least where all levels have as many to choose from
            count = len(p_V) ** (1 - level / levels)
        cut = _cut(np.add.reduceat(mass_V, starts[-1]), max(1, round(count)))
        starts.append(starts[-1][cut[:-1]])
        found.insert(0, cut)
    return found


def expected_rows(counts_V: np.ndarray, starts: Sequence[np.ndarray]) -> float:
    """The rows that the prediction of one word touches on average, over all levels.

    starts: as `partition` gives them.
    """
    p_N = probabilities(counts_V)
    rows = 0.0
    for starts_G in reversed(starts):
        p_G = np.add.reduceat(p_N, starts_G[:-1])
        rows += float(p_G @ np.diff(starts_G))
        p_N = p_G
    return rows + len(p_N)


def deal(counts_V: np.ndarray, starts_C: np.ndarray, targets: int, devices: int) -> np.ndarray:
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
    touched_C = -np.expm1(targets * np.log1p(-np.minimum(p_C, 1 - 1e-12)))
    return np.diff(starts_C) * touched_C


def _cut(mass_N: np.ndarray, parts: int) -> np.ndarray:
    """Where the intervals of equal mass begin, and the end, (C + 1,); empty ones are left out."""
    middle_N = np.cumsum(mass_N) - mass_N / 2
    part_N = np.floor(middle_N * (parts / mass_N.sum()))
    return np.append(np.flatnonzero(np.diff(part_N, prepend=-1)), len(mass_N))
