"""The Keras layers and optimizers that a training step uses."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf


class StepParts(NamedTuple):
    """The Keras layers and optimizers of a training step.

    Attributes:
        layers: The layers of the models, then other layers; outer ones first.
        optimizers: The optimizers; one that wraps others comes after them.
    """

    models: list[keras.Model]
    layers: list[keras.layers.Layer]
    optimizers: list[Any]

    @property
    def variables(self) -> list[keras.Variable]:
        """The variables of the models and layers, then those of the optimizers, each once."""
        parts = [*self.models, *self.layers, *self.optimizers]
        return _once(variable for part in parts for variable in part.variables)


def parts_of(roots: Iterable[Any]) -> StepParts:
    """Return the layers and optimizers inside the given ones.

    Args:
        roots: Layers, models and optimizers. The optimizer of a compiled model is included.
    """
    roots = list(roots)
    models = [root for root in roots if isinstance(root, keras.Model)]
    layers = [root for root in roots if isinstance(root, keras.layers.Layer)]
    layers = [layer for root in layers for layer in root._flatten_layers()]
    optimizers = [root for root in roots if isinstance(root, keras.optimizers.Optimizer)]
    optimizers += [getattr(model, "optimizer", None) for model in models]
    return StepParts(
        models,
        _once(layer for layer in layers if layer not in models),
        _once(inner for optimizer in optimizers for inner in _wrapped(optimizer)),
    )


def find_parts(function: Any) -> StepParts:
    """Return the layers and optimizers whose variables a traced function uses.

    Args:
        function: A ConcreteFunction.
    """
    used = {id(handle) for handle, _ in function.graph.captures}

    def is_used(part: Any) -> bool:
        values = [v._value for v in getattr(part, "variables", ()) if v._value is not None]
        return any(id(each.handle) in used for value in values for each in replicas_of(value))

    kinds = keras.layers.Layer, keras.optimizers.Optimizer
    found = [each for each in gc.get_objects() if issubclass(type(each), kinds) and is_used(each)]
    found.sort(key=lambda part: -len(part.variables))  # outer ones first
    return parts_of(found)


def replicas_of(value: tf.Variable) -> Sequence[tf.Variable]:
    """Return the variables of all replicas of a variable of tf.distribute, or any other itself."""
    return value.values if isinstance(value, tf.distribute.DistributedValues) else [value]


def _wrapped(optimizer: Any) -> list[Any]:
    """Return the optimizers inside this one, at any depth, then itself; nothing for None."""
    if optimizer is None:
        return []
    wrapped = getattr(optimizer, "inner_optimizer", None)
    wrapped = getattr(optimizer, "optimizers", []) if wrapped is None else [wrapped]
    return [*(inner for each in wrapped for inner in _wrapped(each)), optimizer]


def _once(values: Iterable[Any]) -> list[Any]:
    """Return the values without repetition, in the order of their first occurrences."""
    return list({id(value): value for value in values}.values())
