"""Update rules for one row, in float64, as their papers write them.

Each takes the row, its state by name (empty before the row's first gradient), its gradient (summed
over occurrences), the rate and the number of the step, and gives the row and its state afterwards.
"""

import numpy as np


def sgd(row, state, gradient, rate, step):
    return row - rate * gradient, {}


def momentum(row, state, gradient, rate, step, momentum=0.9, nesterov=False):
    """Sutskever et al. 2013, equations 1 and 2; Nesterov's as moved on by its next look-ahead."""
    velocity = momentum * state.get("velocity", 0.0) - rate * gradient
    change = momentum * velocity - rate * gradient if nesterov else velocity
    return row + change, {"velocity": velocity}


def adagrad(row, state, gradient, rate, step, initial=0.1, epsilon=0.0):
    """Duchi et al. 2011, section 1.1, the diagonal form."""
    accumulator = state.get("accumulator", initial) + gradient**2
    return row - rate * gradient / np.sqrt(accumulator + epsilon), {"accumulator": accumulator}


def rowwise_adagrad(row, state, gradient, rate, step, initial=0.1, epsilon=0.0, power=-0.5):
    accumulator = state.get("accumulator", initial) + sum(gradient**2) / len(gradient)
    return row - rate * gradient * (accumulator + epsilon) ** power, {"accumulator": accumulator}


def ftrl(row, state, gradient, rate, step, l1=0.0, l2=0.0, beta=0.0, initial=0.1):
    """McMahan et al. 2013, equation 3 and algorithm 1.

    Equation 3 holds for learning rates 1 / sigma that change in any way. z starts as the one whose
    minimum the first row is, and moves along with a row that is rounded where it is kept.
    """
    accumulator = state.get("accumulator", initial)
    sigma = state.get("sigma", (beta + np.sqrt(accumulator)) / rate)
    linear = state.get("linear", -row * (sigma + l2) - l1 * np.sign(row))
    linear = linear - (row - state.get("row", row)) * (sigma + l2)
    accumulator = accumulator + gradient**2
    new_sigma = (beta + np.sqrt(accumulator)) / rate
    linear = linear + gradient - (new_sigma - sigma) * row
    row = np.where(np.abs(linear) <= l1, 0.0, -(linear - l1 * np.sign(linear)) / (new_sigma + l2))
    return row, {"accumulator": accumulator, "sigma": new_sigma, "linear": linear, "row": row}


def lazy_adam(
    row,
    state,
    gradient,
    rate,
    step,
    beta_1=0.9,
    beta_2=0.999,
    epsilon=1e-7,
    correct_skipped=False,
    amsgrad=False,
    weight_decay=0.0,
):
    """Kingma & Ba 2015, before section 2.1; AMSGrad: Reddi et al. 2018; decay: Loshchilov 2019."""
    first, second, greatest, last = (
        state.get(name, 0.0) for name in ("momentum", "velocity", "greatest_velocity", "last_step")
    )
    skipped = step - last - 1 if correct_skipped else 0
    first, second = first * beta_1**skipped, second * beta_2**skipped
    row = row * (1 - rate * weight_decay) ** skipped

    first = beta_1 * first + (1 - beta_1) * gradient
    second = beta_2 * second + (1 - beta_2) * gradient**2
    greatest = np.maximum(greatest, second)
    rate_t = rate * np.sqrt(1 - beta_2**step) / (1 - beta_1**step)
    change = rate_t * first / (np.sqrt(greatest if amsgrad else second) + epsilon)
    row = row * (1 - rate * weight_decay) - change
    names = ("momentum", "velocity", "greatest_velocity", "last_step")
    return row, dict(zip(names, (first, second, greatest, step), strict=True))


def lazy_adamw(*arguments, weight_decay=0.004, **options):
    return lazy_adam(*arguments, weight_decay=weight_decay, **options)


def train(rule, values_VD, stream, stored=lambda row: row):
    """Applies the rule, in place, to each step's ids (with repeats) and gradients, one each.

    stored: how a table keeps a row. Gives the state of every row that had a gradient, by id.
    """
    states = {}
    for step, (ids, gradients, rate) in enumerate(stream, 1):
        for row in set(ids.tolist()):
            gradient = gradients[ids == row].astype(np.float64).sum(axis=0)
            if gradient.any():
                new, states[row] = rule(values_VD[row], states.get(row, {}), gradient, rate, step)
                values_VD[row] = stored(new)
    return states
