"""Skip-gram and CBOW with shared negatives: float64 loops over rows, centres, contexts, samples.

tokens_BL: written as `app.input.token_rows` says. reach_BT: how far each centre looks. pairs_BTL:
the weight of each centre and token. samples_GK: the negatives of each group of centres.
per_pair: the weight of a group's negatives together.
"""

import numpy as np

from app.input.token_rows import PAD


def read_row(tokens_L):
    """An (id, document) for every place, None where there is no token."""
    found, document = [], 0
    for token in tokens_L.tolist():
        if token == PAD:
            found.append(None)
            continue
        document += token < 0
        found.append((~token if token < 0 else token, document))
    return found


def contexts(row, place, reach):
    """The places within reach of one, in its document; none if no token is there."""
    return [
        other
        for other in range(len(row))
        if row[place] and row[other] and 0 < abs(other - place) <= reach
        if row[other][1] == row[place][1]
    ]


def pairs(tokens_BL, reach_BT):
    """The mask of pairs, (B, T, L) float64."""
    (size, length), centres = tokens_BL.shape, reach_BT.shape[1]
    window = (length - centres) // 2
    mask_BTL = np.zeros((size, centres, length))
    for b in range(size):
        row = read_row(tokens_BL[b])
        for t in range(centres):
            mask_BTL[b, t, contexts(row, t + window, reach_BT[b, t])] = 1
    return mask_BTL


def weights(tokens_BL, window):
    """The weight of each pair, (B, T, L) float64: the mean of `pairs` over all reaches."""
    size, length = tokens_BL.shape
    shape = size, length - 2 * window
    reaches = range(1, window + 1)
    return np.mean([pairs(tokens_BL, np.full(shape, reach)) for reach in reaches], axis=0)


class _Loss:
    """Sums -log sigmoid terms and their gradients."""

    def __init__(self):
        self.value = 0.0

    def term(self, hidden, output, observed, weight, d_hidden, d_output):
        score = hidden @ output
        self.value += weight * np.log1p(np.exp(-score if observed else score))
        error = weight * (1 / (1 + np.exp(-score)) - observed)
        d_hidden += error * output
        d_output += error * hidden


def skipgram(inputs_VD, outputs_VD, tokens_BL, pairs_BTL, samples_GK, per_pair):
    """The loss, the weight of all pairs, and the gradients of both tables."""
    loss, examples = _Loss(), 0
    d_inputs, d_outputs = np.zeros_like(inputs_VD), np.zeros_like(outputs_VD)
    for row, place, pairs_L, samples in _centres(tokens_BL, pairs_BTL, samples_GK):
        centre = row[place][0]
        for other in np.flatnonzero(pairs_L):
            word = row[other][0]
            loss.term(
                inputs_VD[centre],
                outputs_VD[word],
                True,
                pairs_L[other],
                d_inputs[centre],
                d_outputs[word],
            )
        for sample in samples:
            loss.term(
                inputs_VD[centre],
                outputs_VD[sample],
                False,
                sum(pairs_L) * per_pair / len(samples),
                d_inputs[centre],
                d_outputs[sample],
            )
        examples += sum(pairs_L)
    return loss.value, examples, d_inputs, d_outputs


def cbow(inputs_VD, outputs_VD, tokens_BL, pairs_BTL, samples_GK, per_pair):
    """The loss, the number of centres with a context, and the gradients of both tables."""
    loss, examples = _Loss(), 0
    d_inputs, d_outputs = np.zeros_like(inputs_VD), np.zeros_like(outputs_VD)
    for row, place, pairs_L, samples in _centres(tokens_BL, pairs_BTL, samples_GK):
        centre, around = row[place][0], np.flatnonzero(pairs_L)
        if not len(around):
            continue
        words = [row[other][0] for other in around]
        hidden = sum(inputs_VD[word] for word in words) / len(words)
        d_hidden = np.zeros_like(hidden)
        loss.term(hidden, outputs_VD[centre], True, 1, d_hidden, d_outputs[centre])
        for sample in samples:
            weight = per_pair / len(samples)
            loss.term(hidden, outputs_VD[sample], False, weight, d_hidden, d_outputs[sample])
        for word in words:
            d_inputs[word] += d_hidden / len(words)
        examples += 1
    return loss.value, examples, d_inputs, d_outputs


def _centres(tokens_BL, pairs_BTL, samples_GK):
    """For every centre with a token: its row, its place there, its pairs, its group's samples."""
    size, centres, length = pairs_BTL.shape
    group = size * centres // len(samples_GK)
    for b in range(size):
        row = read_row(tokens_BL[b])
        for t in range(centres):
            place = t + (length - centres) // 2
            if row[place]:
                yield row, place, pairs_BTL[b, t], samples_GK[(b * centres + t) // group]
