"""Build the optimizer and the learning rate. Only this module maps names of optimizers to rules."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from ..optimizers import adagrad, adam, ftrl, schedules, sgd
from ..optimizers.base import Gradients, Optimizer, clip_by_global_norm, clip_by_row_norm
from ..settings import OptimizerConfig

OPTIMIZERS: dict[str, Callable[[OptimizerConfig], Optimizer]] = {
    "sgd": lambda settings: sgd.sgd(),
    "momentum": lambda settings: sgd.momentum(settings.momentum, settings.nesterov),
    "adagrad": lambda settings: adagrad.adagrad(settings.initial_accumulator),
    "rowwise_adagrad": lambda settings: adagrad.rowwise_adagrad(
        settings.initial_accumulator, power=settings.learning_rate_power
    ),
    "ftrl": lambda settings: ftrl.ftrl(
        settings.l1, settings.l2, initial=settings.initial_accumulator
    ),
    "lazy_adam": lambda settings: adam.lazy_adam(**_adam(settings)),
    "lazy_adamw": lambda settings: adam.lazy_adamw(
        **_adam(settings), weight_decay=settings.weight_decay
    ),
}


def make_optimizer(settings: OptimizerConfig) -> Optimizer:
    """Return the optimizer that --optimizer names, with the clipping that the flags ask for.

    Args:
        settings: The flags of the optimizer.

    Returns:
        The update rule of rows.
    """

    def clip(gradients: Gradients) -> Gradients:
        """Return the gradients, clipped row by row, then all together, if the flags ask for it."""
        if settings.clip_row_norm:
            gradients = clip_by_row_norm(gradients, settings.clip_row_norm)
        if settings.clip_global_norm:
            gradients = clip_by_global_norm(gradients, settings.clip_global_norm)
        return gradients

    return dataclasses.replace(OPTIMIZERS[settings.optimizer](settings), clip=clip)


def make_learning_rate(settings: OptimizerConfig) -> Callable[[float], float]:
    """Return a function from the finished share of the training, 0 to 1, to the learning rate.

    Args:
        settings: The flags of the optimizer. The peak is --learning_rate, or the optimizer's
            default if that is 0.

    Returns:
        The function, which follows --schedule and --warmup.
    """
    peak = settings.learning_rate or OPTIMIZERS[settings.optimizer](settings).learning_rate
    return lambda progress: peak * schedules.factor(settings.schedule, settings.warmup, progress)


def _adam(settings: OptimizerConfig) -> dict[str, Any]:
    """Return the arguments of both forms of Adam by name: decays, epsilon, `correct_skipped`."""
    names = ("beta_1", "beta_2", "epsilon", "correct_skipped")
    return {name: getattr(settings, name) for name in names}
