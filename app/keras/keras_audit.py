"""The audit of a Keras model: operations of its step on whole tables, and their causes."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable, Iterable
from typing import Any

import keras
import tensorflow as tf

from .. import __name__ as PACKAGE
from ..auditing import whole
from ..auditing.findings import Findings, Touch, instead, source_line
from .backend import require_tensorflow

_OPTIMIZERS = {
    "Adam": "LazyAdam",
    "AdamW": "LazyAdamW",
    "Adagrad": "Adagrad or RowwiseAdagrad",
    "SGD": "SGD",
}
# Operations made in these files of Keras have a known cause.
_KERAS = pathlib.PurePath(keras.__file__).parent
_CONSTRAINTS = str(_KERAS / "src/constraints/constraints.py")
_REGULARIZERS = str(_KERAS / "src/regularizers/regularizers.py")
_LOSS_SCALE = str(_KERAS / "src/optimizers/loss_scale_optimizer.py")
_GRADIENT = str(pathlib.PurePath(tf.__file__).parent / "python/eager/backprop.py")


def audit(model: keras.Model, data: Any = None, least_bytes: int = whole.LEAST_BYTES) -> Findings:
    """Return the operations of a training step that read, copy or write a whole table.

    Print the result. It is empty if every table is trained row by row. A table is a variable of
    which the step reads single rows, or its optimizer state. The kernel of a Dense layer is not a
    table, because every step needs all of it.

    The step is traced but not run, and no weight changes. Like the first step of `fit`, the trace
    creates the slots of the optimizer and the weights of layers that are not built.

    Example:
        print(app.keras.audit(model, (x, y)))

    Args:
        model: A compiled model: functional, Sequential or subclassed.
        data: A batch (x, y) or (x, y, weights), or a tf.data.Dataset of batches. Its shapes and
            dtypes are used. By default the inputs of the model, with the mean of the outputs as
            the loss; a subclassed model or one with its own train_step needs data.
        least_bytes: The size of the smallest table to report, in bytes.

    Returns:
        The findings in descending order of bytes (see `auditing.whole.findings`).

    Raises:
        ValueError: The model is not compiled, or it needs data.
    """
    require_tensorflow()
    if getattr(model, "optimizer", None) is None:
        raise ValueError(f"{model.name} has no optimizer; call model.compile first")
    function = _traced(model, data)
    variables = _variables(model, function)
    tables = whole.taken_by_row(function, variables, least_bytes)
    tables |= {name for name in variables if any(_is_slot(name, table) for table in tables)}
    return whole.findings(function, variables, least_bytes, tables, _Causes(model).explain)


def _traced(model: keras.Model, data: Any) -> Any:
    """Return the traced function of one training step, compiled as `fit` would."""
    if data is None:
        batch, train = _input_specs(model), _stand_in(model)
    else:
        batch, train = _data_specs(data), model.train_step
    known = len(_kept(model))
    function = _trace(model, train, batch)
    # With a strategy, a trace that creates variables also initializes them: trace once more.
    new = model._distribute_strategy is not None and len(_kept(model)) > known
    return _trace(model, train, batch) if new else function


def _trace(model: keras.Model, train: Callable[[Any], Any], batch: Any) -> Any:
    # Without autograph, as Keras does for its own functions.
    step = tf.function(train, autograph=False, jit_compile=model.jit_compile)
    strategy = model.distribute_strategy
    run = tf.function(lambda batch: strategy.run(step, (batch,)), autograph=False)
    return run.get_concrete_function(batch)


def _kept(model: keras.Model) -> list[keras.Variable]:
    """Return the variables of the model, then those of its optimizers."""
    return [*model.variables, *(v for each in _optimizers(model.optimizer) for v in each.variables)]


def _input_specs(model: keras.Model) -> Any:
    if type(model).train_step is not keras.Model.train_step:
        raise ValueError(f"{model.name} has a train_step of its own; pass data, a batch for it")
    if not getattr(model, "inputs", None):
        raise ValueError(f"{model.name} has no known inputs; pass data, a batch (x, y)")
    inputs = model.inputs[0] if isinstance(model, keras.Sequential) else model.input
    return tf.nest.map_structure(_input_spec, inputs)


def _input_spec(value: keras.KerasTensor) -> tf.TypeSpec:
    if value.sparse:
        return tf.SparseTensorSpec(value.shape, value.dtype)
    if value.ragged:
        return tf.RaggedTensorSpec(value.shape, value.dtype)
    return tf.TensorSpec(value.shape, value.dtype)


def _data_specs(data: Any) -> Any:
    if isinstance(data, tf.data.Dataset):
        return data.element_spec
    return tf.nest.map_structure(_spec, tuple(data) if isinstance(data, list) else data)


def _spec(value: Any) -> Any:
    if value is None or isinstance(value, tf.TypeSpec):
        return value
    try:
        spec = tf.type_spec_from_value(value)
    except TypeError:
        kind = type(value).__name__
        raise ValueError(f"data has a {kind}; pass a batch (x, y) or a tf.data.Dataset") from None
    if isinstance(spec, tf.TensorSpec) and spec.shape.rank:
        return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)
    return spec


def _stand_in(model: keras.Model) -> Any:
    """Return a training step without targets, whose gradients reach the same variables."""

    def train_step(x: Any) -> tf.Tensor:
        with tf.GradientTape() as tape:
            outputs = tf.nest.flatten(model(x, training=True))
            means = [tf.reduce_mean(tf.cast(y, tf.float32)) for y in outputs if y.dtype.is_floating]
            losses = [tf.cast(loss, tf.float32) for loss in model.losses]
            loss = model.optimizer.scale_loss(tf.add_n(means + losses))
        weights = model.trainable_weights
        model.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    return train_step


def _variables(model: keras.Model, function: Any) -> dict[str, tf.Variable]:
    """Return variables by path: of the model, of the optimizer, then others that the step uses."""
    named = [(variable.path, variable.value) for variable in _kept(model)]
    named += [(variable.name.removesuffix(":0"), variable) for variable in function.variables]
    by_path: dict[str, tf.Variable] = {}
    seen: set[int] = set()
    for name, variable in named:
        if id(variable) not in seen:
            seen.add(id(variable))
            while name in by_path:  # Keras variables may share a path
                name += "'"
            by_path[name] = variable
    return by_path


def _optimizers(optimizer: Any) -> list[Any]:
    """Return the optimizers inside this one (LossScaleOptimizer, MultiOptimizer), then itself."""
    wrapped = getattr(optimizer, "inner_optimizer", None)
    wrapped = getattr(optimizer, "optimizers", []) if wrapped is None else [wrapped]
    return [*(inner for each in wrapped for inner in _optimizers(each)), optimizer]


def _is_slot(name: str, table: str) -> bool:
    """Return whether a name is one that Keras gives to the optimizer state of a table."""
    return name.rpartition("/")[2].startswith(table.replace("/", "_") + "_")


class _Causes:
    """Finds the part of a model that made an operation, by its name scope and call stack."""

    def __init__(self, model: keras.Model):
        self._optimizers = _optimizers(model.optimizer)
        # Outer layers first, so that a variable belongs to the innermost.
        self._layers = [layer for layer in model._flatten_layers() if layer is not model]
        self._owners = {v.path: (layer, v) for layer in self._layers for v in layer.variables}

    def explain(self, touch: Touch) -> tuple[str, str]:
        """Return the layer, optimizer or line that made an operation, and what to use instead."""
        owner, variable = self._owner(touch.variable)
        table = f"{type(owner).__name__} {owner.name!r}" if owner else touch.variable
        files = {frame.filename for frame in touch.frames}
        if _CONSTRAINTS in files:
            return _constraint(table)
        if _REGULARIZERS in files:
            return _regularizer(table)
        scopes = touch.name.split("/")[:-1]
        for optimizer in self._optimizers:
            if _within(optimizer, scopes):
                return _optimizer(optimizer)
        if _LOSS_SCALE in files:
            return _optimizer(
                next(
                    o
                    for o in self._optimizers
                    if isinstance(o, keras.optimizers.LossScaleOptimizer)
                )
            )
        layer = owner if owner and _within(owner, scopes) else self._innermost(scopes)
        if layer is not None:
            return _layer(layer, touch)
        if _GRADIENT in files:
            return _regularizer(table) if getattr(variable, "regularizer", None) else _sum(table)
        return source_line(_of_step(touch.frames), _is_keras), instead(touch.operation)

    def _owner(self, name: str) -> tuple[keras.layers.Layer | None, keras.Variable | None]:
        """Return the layer and the variable of a name, also for the name of its optimizer state."""
        if name in self._owners:
            return self._owners[name]
        kept = (owned for path, owned in self._owners.items() if _is_slot(name, path))
        return next(kept, (None, None))

    def _innermost(self, scopes: Iterable[str]) -> keras.layers.Layer | None:
        for scope in reversed(list(scopes)):
            for layer in self._layers:
                if _within(layer, [scope]):
                    return layer
        return None


def _within(named: Any, scopes: Iterable[str]) -> bool:
    """Return whether a scope is that of the layer or optimizer; TensorFlow numbers repeats."""
    return any(re.fullmatch(re.escape(named.name) + r"(_\d+)?", scope) for scope in scopes)


def _of_step(frames: list[Any]) -> list[Any]:
    """Return the part of a call stack that is inside the step."""
    way = [index for index, frame in enumerate(frames) if frame.filename == __file__]
    return frames[way[-1] + 1 :] if way else frames


def _is_keras(path: str) -> bool:
    return path.startswith(str(_KERAS))


def _constraint(layer: str) -> tuple[str, str]:
    return (
        f"the constraint of {layer}",
        f"an embeddings_constraint by row of {PACKAGE}.keras.RowEmbedding, "
        f"with an optimizer of {PACKAGE}.keras",
    )


def _regularizer(layer: str) -> tuple[str, str]:
    return (
        f"the regularizer of {layer}",
        f"weight_decay of {PACKAGE}.keras.LazyAdamW, or activity_regularizer, "
        "on the rows of the batch",
    )


def _sum(layer: str) -> tuple[str, str]:
    return (
        f"the gradient of {layer}",
        "the rows of the batch wherever the table is used; one use of the whole makes it dense",
    )


def _optimizer(optimizer: Any) -> tuple[str, str]:
    kind = type(optimizer)
    cause = f"{kind.__name__} {optimizer.name!r}"
    if kind.__module__.startswith(f"{PACKAGE}.keras"):
        return cause, f"a layer with a row-sparse gradient, such as {PACKAGE}.keras.RowEmbedding"
    if kind.__name__ == "LossScaleOptimizer":
        return cause, f"{PACKAGE}.keras.LossScaleOptimizer"
    ours = _OPTIMIZERS.get(kind.__name__, "LazyAdam, Adagrad or SGD")
    return cause, f"{PACKAGE}.keras.{ours}, with {PACKAGE}.keras.RowEmbedding"


def _layer(layer: keras.layers.Layer, touch: Touch) -> tuple[str, str]:
    stock = isinstance(layer, keras.layers.Embedding)
    remedy = f"{PACKAGE}.keras.RowEmbedding" if stock else instead(touch.operation)
    return f"{type(layer).__name__} {layer.name!r}", remedy
