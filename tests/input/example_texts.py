"""Random labelled texts, and their features in plain Python."""

import collections

import numpy as np

from app.input.features import Examples

WORDS, BUCKETS, LABELS = 40, 1000, 5


def make_examples(count=60, several=True, seed=0, longest=9):
    draw = np.random.default_rng(seed)
    lengths = draw.integers(1, longest, size=count)
    labels = [draw.permutation(LABELS)[: draw.integers(1, 4 if several else 2)] for _ in lengths]
    return Examples(
        [f"w{number}" for number in range(WORDS)],
        [f"l{number}" for number in range(LABELS)],
        draw.integers(WORDS, size=lengths.sum()).astype(np.int32),
        np.append(0, np.cumsum(lengths)),
        np.concatenate(labels).astype(np.int32),
        np.append(0, np.cumsum([*map(len, labels)])),
    )


def features_of(tokens, ngrams):
    """fastText's Dictionary::addWordNgrams, on ids."""
    found = []
    for place, token in enumerate(tokens):
        found.append(token)
        number = token
        for other in tokens[place + 1 : place + ngrams]:
            number = (number * 116049371 + other) % 2**64
            found.append(WORDS + (number if number < 2**63 else number - 2**64) % BUCKETS)
    return found


def shares_of(ids):
    """Each feature once, by id, with its share of all."""
    counts = sorted(collections.Counter(ids).items())
    return [(id_, np.float32(count / len(ids)).round(5).item()) for id_, count in counts]


def texts_of(examples, longest=99):
    bounds = zip(examples.starts_E, examples.starts_E[1:], strict=False)
    return [examples.tokens_M[start:stop][:longest].tolist() for start, stop in bounds]
