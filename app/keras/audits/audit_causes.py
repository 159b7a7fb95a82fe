"""The causes of operations on whole tables: a layer, an optimizer or a line of source."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from ...auditing.findings import Touch, instead, source_line
from ..step_parts import StepParts

_OPTIMIZERS = {
    "Adam": "LazyAdam",
    "AdamW": "LazyAdamW",
    "Adagrad": "Adagrad or RowwiseAdagrad",
    "Ftrl": "Ftrl",
    "SGD": "SGD",
}
# What to use instead of a constraint, a regularizer, and a sum of gradients of a whole table.
_BY_ROW = (
    "an embeddings_constraint by row of lexrow.keras.RowEmbedding, "
    "with an optimizer of lexrow.keras"
)
_REGULARIZED = (
    "weight_decay of lexrow.keras.LazyAdamW, or activity_regularizer, on the rows of the batch"
)
_SUMMED = "the rows of the batch wherever the table is used; one use of the whole makes it dense"
_BEFORE_LOOP = (
    "look up the rows of all passes before the loop or RNN, and pass them to it: inside a loop, "
    "the gradient of a look-up is dense"
)
# Operations made in these files of Keras have a known cause.
_KERAS = pathlib.PurePath(keras.__file__).parent
_CONSTRAINTS = str(_KERAS / "src/constraints/constraints.py")
_REGULARIZERS = str(_KERAS / "src/regularizers/regularizers.py")
_LOSS_SCALE = str(_KERAS / "src/optimizers/loss_scale_optimizer.py")
_AUDIT = str(pathlib.PurePath(__file__).with_name("keras_audit.py"))
_GRADIENT = str(pathlib.PurePath(tf.__file__).parent / "python/eager/backprop.py")


class Causes:
    """Finds the part of a step that made an operation, by its name scope and call stack.

    Args:
        parts: The layers and optimizers of the step.
        loops: For each table with a look-up inside loops, the names of these loops (see
            `auditing.loops.look_ups_in_loops`).
    """

    def __init__(self, parts: StepParts, loops: Mapping[str, Sequence[str]]):
        self._layers, self._optimizers = parts.layers, parts.optimizers
        self._loops = loops
        # Outer layers come first, so that a variable belongs to the innermost.
        self._owners = {v.path: (layer, v) for layer in self._layers for v in layer.variables}

    def explain(self, touch: Touch) -> tuple[str, str]:
        """Return the layer, optimizer or line that made an operation, and what to use instead.

        Args:
            touch: The operation.
        """
        owner, variable = self._owner(touch.variable)
        table = f"{type(owner).__name__} {owner.name!r}" if owner else touch.variable
        files = {frame.filename for frame in touch.frames}
        if _CONSTRAINTS in files:
            return f"the constraint of {table}", _BY_ROW
        if _REGULARIZERS in files:
            return f"the regularizer of {table}", _REGULARIZED
        scopes = touch.name.split("/")[:-1]
        optimizer = self._optimizer(scopes, files)
        in_loop = self._is_from_loop(touch)
        if optimizer is not None and not (in_loop and _is_ours(optimizer)):
            cause, remedy = _explain_optimizer(optimizer)
            return cause, f"{remedy}; {_BEFORE_LOOP}" if in_loop else remedy
        if in_loop:
            return f"the look-up in {table} inside a loop", _BEFORE_LOOP
        layer = owner if owner and _has_scope(owner, scopes) else self._innermost(scopes)
        if layer is not None:
            return _explain_layer(layer, touch)
        if _GRADIENT in files and getattr(variable, "regularizer", None):
            return f"the regularizer of {table}", _REGULARIZED
        if _GRADIENT in files:  # a sum of gradients that made one dense
            return f"the gradient of {table}", _SUMMED
        return source_line(_frames_in_step(touch.frames), _is_keras), instead(touch.operation)

    def describe(self, variable: keras.Variable) -> str:
        """Return the layer of a variable in words, or the path of the variable if it has none.

        Args:
            variable: The variable.
        """
        layer, _ = self._owners.get(variable.path, (None, None))
        return f"{type(layer).__name__} {layer.name!r}" if layer else variable.path

    def _optimizer(self, scopes: Sequence[str], files: set[str]) -> Any:
        """Return the optimizer that made an operation, by its name scopes and files, or None."""
        for optimizer in self._optimizers:
            if _has_scope(optimizer, scopes):
                return optimizer
        scales = keras.optimizers.LossScaleOptimizer
        wrapping = (o for o in self._optimizers if isinstance(o, scales))
        return next(wrapping, None) if _LOSS_SCALE in files else None

    def _is_from_loop(self, touch: Touch) -> bool:
        """Return whether the table is looked up in a loop that does not contain the operation."""
        loops = (
            loop
            for table, loops in self._loops.items()
            if table == touch.variable or is_slot(touch.variable, table)
            for loop in loops
        )
        return any(not touch.name.startswith(loop) for loop in loops)

    def _owner(self, name: str) -> tuple[keras.layers.Layer | None, keras.Variable | None]:
        """Return the layer and the variable of a name or of its slot's name, or (None, None)."""
        if name in self._owners:
            return self._owners[name]
        kept = (owned for path, owned in self._owners.items() if is_slot(name, path))
        return next(kept, (None, None))

    def _innermost(self, scopes: Iterable[str]) -> keras.layers.Layer | None:
        """Return the layer of the last scope that belongs to a layer, or None."""
        for scope in reversed(list(scopes)):
            for layer in self._layers:
                if _has_scope(layer, [scope]):
                    return layer
        return None


def _has_scope(named: Any, scopes: Iterable[str]) -> bool:
    """Return whether a scope has the name of a layer or optimizer, with or without _1, _2, ..."""
    return any(re.fullmatch(re.escape(named.name) + r"(_\d+)?", scope) for scope in scopes)


def _frames_in_step(frames: list[Any]) -> list[Any]:
    """Return the frames below the last one of the audit, or all frames if it has none."""
    way = [index for index, frame in enumerate(frames) if frame.filename == _AUDIT]
    return frames[way[-1] + 1 :] if way else frames


def _is_keras(path: str) -> bool:
    """Return whether a file of source belongs to Keras."""
    return path.startswith(str(_KERAS))


def _is_ours(optimizer: Any) -> bool:
    """Return whether the class of an optimizer is one of this package."""
    return type(optimizer).__module__.startswith(f"{__name__.partition('.')[0]}.keras")


def _explain_optimizer(optimizer: Any) -> tuple[str, str]:
    """Return an optimizer as a cause, and what to use instead: for one of ours, another layer."""
    kind = type(optimizer)
    cause = f"{kind.__name__} {optimizer.name!r}"
    if _is_ours(optimizer):
        return cause, "a layer with a row-sparse gradient, such as lexrow.keras.RowEmbedding"
    if kind.__name__ == "LossScaleOptimizer":
        return cause, "lexrow.keras.LossScaleOptimizer"
    ours = _OPTIMIZERS.get(kind.__name__, "LazyAdam, Adagrad or SGD")
    return cause, f"lexrow.keras.{ours}, with lexrow.keras.RowEmbedding"


def _explain_layer(layer: keras.layers.Layer, touch: Touch) -> tuple[str, str]:
    """Return a layer as a cause, and what to use instead: `RowEmbedding`, or advice by row."""
    stock = isinstance(layer, keras.layers.Embedding)
    remedy = "lexrow.keras.RowEmbedding" if stock else instead(touch.operation)
    return f"{type(layer).__name__} {layer.name!r}", remedy


def is_slot(name: str, table: str) -> bool:
    """Return whether Keras would give this name to an optimizer slot of the table.

    Args:
        name: The name of a variable.
        table: The name of the table.
    """
    return name.rpartition("/")[2].startswith(table.replace("/", "_") + "_")
