"""Update rules for one row, in float64, as their papers write them.

Each takes the row, its accumulator, its gradient (summed over occurrences) and the rate, and gives
the row and the accumulator after the update.
"""

from __future__ import annotations

import numpy as np


def sgd(row, accumulator, gradient, rate):
    return row - rate * gradient, accumulator


def adagrad(row, accumulator, gradient, rate):
    accumulator = accumulator + gradient**2
    return row - rate * gradient / np.sqrt(accumulator), accumulator


def rowwise_adagrad(row, accumulator, gradient, rate):
    accumulator = accumulator + sum(gradient**2) / len(gradient)
    return row - rate * gradient / np.sqrt(accumulator), accumulator


def train(rule, values_VD, accumulators, stream, rate):
    """Applies the rule, in place, for each step's ids (with repeats) and gradients, one each."""
    for ids, gradients in stream:
        for row in set(ids.tolist()):
            gradient = gradients[ids == row].astype(np.float64).sum(axis=0)
            values_VD[row], accumulators[row] = rule(
                values_VD[row], accumulators[row], gradient, rate
            )
