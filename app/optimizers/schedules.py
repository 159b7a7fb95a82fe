"""Learning-rate schedules: from the share of the training that is done to a factor of the rate."""

from __future__ import annotations

import math
from collections.abc import Callable

# What the rate never falls below, as a factor: word2vec.c's (`starting_alpha * 0.0001`).
LEAST = 1e-4

SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    # word2vec.c's.
    "linear": lambda done: 1.0 - done,
    # Loshchilov & Hutter 2017 (SGDR), equation 5, without restarts.
    "cosine": lambda done: (1.0 + math.cos(math.pi * done)) / 2.0,
}


def factor(schedule: str, warmup: float, done: float) -> float:
    """The factor of the learning rate, above 0 and at most 1.

    schedule: a key of SCHEDULES. done: share of the training behind, 0 to 1. warmup: the share, 0
    to 1, in which the rate first rises in a straight line from 0 (Goyal et al. 2017, section 2.2);
    the schedule runs over what is left.
    """
    if done < warmup:
        value = done / warmup
    else:
        value = SCHEDULES[schedule](min((done - warmup) / (1.0 - warmup), 1.0))
    return max(value, LEAST)
