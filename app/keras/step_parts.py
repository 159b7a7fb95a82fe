"""The Keras layers and optimizers that a training step uses."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import keras

# Objects of these packages are not searched for layers; they have parts of their own.
_FOREIGN = ("keras", "numpy", "tensorflow")
_MOST_ITEMS = 1000  # a longer container has data


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
        return list({id(v): v for part in parts for v in part.variables}.values())


def parts_of(roots: Iterable[Any]) -> StepParts:
    """Return the layers and optimizers inside the given ones.

    Args:
        roots: Layers, models and optimizers. The optimizer of a compiled model is included.
    """
    roots = list(roots)
    models = [root for root in roots if isinstance(root, keras.Model)]
    others = [root for root in roots if isinstance(root, keras.layers.Layer)]
    layers = [layer for root in others for layer in root._flatten_layers()]
    optimizers = [root for root in roots if isinstance(root, keras.optimizers.Optimizer)]
    optimizers += [getattr(model, "optimizer", None) for model in models]
    return StepParts(
        models,
        _once(layer for layer in layers if layer not in models),
        _once(inner for optimizer in optimizers for inner in _wrapped(optimizer)),
    )


def find_parts(function: Any, arguments: Any) -> StepParts:
    """Return the layers and optimizers that a function uses.

    They are those that the function can name: in its closure, its global names, the attributes of
    its object, its arguments, and the same of the functions that it can name.

    Args:
        function: A function, a `tf.function`, a method or a callable object.
    """
    roots, waiting, seen = [], [arguments, function], {}
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value  # holds the value, so that no other gets its id
        if isinstance(value, (keras.layers.Layer, keras.optimizers.Optimizer)):
            roots.append(value)
        else:
            waiting += _named_by(value)
    return parts_of(reversed(roots))


def _named_by(value: Any) -> list[Any]:
    """Return the objects that a function, a container or an object of the user names.

    Nothing is returned for classes, modules, things of Keras, NumPy or TensorFlow, and containers
    of more than 1,000 items.
    """
    if hasattr(value, "python_function"):  # a tf.function
        return [inspect.unwrap(value.python_function)]
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, types.MethodType):
        owner: Any = value.__self__
        bound = hasattr(owner, "weakrefself_target__")  # TensorFlow's, for a tf.function
        return [owner.target if bound else owner, value.__func__]
    if isinstance(value, types.FunctionType):
        return [] if _is_foreign(value.__module__) else list(_names_of(value))
    if isinstance(value, (Mapping, list, tuple, set)):
        items = value.values() if isinstance(value, Mapping) else value
        return list(items) if len(items) <= _MOST_ITEMS else []
    if isinstance(value, (type, types.ModuleType)) or _is_foreign(type(value).__module__):
        return []
    return [*vars(value).values(), type(value).__call__] if hasattr(value, "__dict__") else []


def _names_of(function: types.FunctionType) -> Iterator[Any]:
    """Yield the objects in the closure, the defaults and the global names of a function."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # the name has no value yet
            continue
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    waiting = [function.__code__]
    while waiting:
        code = waiting.pop()
        waiting += [constant for constant in code.co_consts if inspect.iscode(constant)]
        yield from (function.__globals__[n] for n in code.co_names if n in function.__globals__)


def _is_foreign(module: str | None) -> bool:
    """Return whether the name of a module is of Keras, NumPy or TensorFlow; False for None."""
    return (module or "").partition(".")[0] in _FOREIGN


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
