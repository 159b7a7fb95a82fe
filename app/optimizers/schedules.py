"""Learning-rate schedules: factors of the learning rate over the course of the training."""

from __future__ import annotations

import math
from collections.abc import Callable

# The smallest factor, as in word2vec.c (`starting_alpha * 0.0001`).
LEAST = 1e-4

# From the share of the training that is done, 0 to 1, to a factor.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    # As in word2vec.c.
    "linear": lambda done: 1.0 - done,
    # Loshchilov & Hutter 2017 (SGDR), equation 5, without restarts.
    "cosine": lambda done: (1.0 + math.cos(math.pi * done)) / 2.0,
}


def factor(schedule: str, warmup: float, done: float) -> float:
    """Return the factor of the learning rate at one moment of the training, from `LEAST` to 1.

    Args:
        schedule: A key of SCHEDULES. It runs over the part of the training after the warmup, and
            gives no factor below `LEAST`, even at the end.
        warmup: The share of the training, 0 to 1, in which the rate first rises linearly from 0
            (Goyal et al. 2017, section 2.2).
        done: The share of the training that is done, 0 to 1.
    """
    if done < warmup:
        value = done / warmup
    else:
        value = SCHEDULES[schedule](min((done - warmup) / (1.0 - warmup), 1.0))
    return max(value, LEAST)
