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
    "Ftrl": "Ftrl",
    "SGD": "SGD",
}
# What to use instead of a constraint, a regularizer, and a sum of gradients of a whole table.
_BY_ROW = (
    f"an embeddings_constraint by row of {PACKAGE}.keras.RowEmbedding, "
    f"with an optimizer of {PACKAGE}.keras"
)
_REGULARIZED = (
    f"weight_decay of {PACKAGE}.keras.LazyAdamW, or activity_regularizer, on the rows of the batch"
)
_SUMMED = "the rows of the batch wherever the table is used; one use of the whole makes it dense"
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
        ValueError: The model is not compiled, it needs data, or data is not made of tensors.
    """
    require_tensorflow()
    if getattr(model, "optimizer", None) is None:
        raise ValueError(f"{model.name} has no optimizer; call model.compile first")
    function = _trace_step(model, data)
    variables = _variables(model, function)
    tables = whole.taken_by_row(function, variables, least_bytes)
    tables |= {name for name in variables if any(_is_slot(name, table) for table in tables)}
    return whole.findings(function, variables, least_bytes, tables, _Causes(model).explain)


def _trace_step(model: keras.Model, data: Any) -> Any:
    """Trace one training step, compiled as `fit` would, without running it; return the function.

    Without data the step is `_make_train_step_without_targets`, else that of the model.
    """
    if data is None:
        batch, train = _input_specs(model), _make_train_step_without_targets(model)
    else:
        batch, train = _data_specs(data), model.train_step
    known = len(_all_variables(model))
    function = _trace(model, train, batch)
    # With a strategy, a trace that creates variables also initializes them: trace once more.
    new = model._distribute_strategy is not None and len(_all_variables(model)) > known
    return _trace(model, train, batch) if new else function


def _trace(model: keras.Model, train: Callable[[Any], Any], batch: Any) -> Any:
    """Return the ConcreteFunction of `train` under the model's strategy, for a batch of specs."""
    # Without autograph, as Keras does for its own functions.
    step = tf.function(train, autograph=False, jit_compile=model.jit_compile)
    strategy = model.distribute_strategy
    run = tf.function(lambda batch: strategy.run(step, (batch,)), autograph=False)
    return run.get_concrete_function(batch)


def _all_variables(model: keras.Model) -> list[keras.Variable]:
    """Return the variables of the model, then those of its optimizers."""
    return [*model.variables, *(v for each in _optimizers(model.optimizer) for v in each.variables)]


def _input_specs(model: keras.Model) -> Any:
    """Return the specs of the inputs; raise ValueError if only data can tell them."""
    if type(model).train_step is not keras.Model.train_step:
        raise ValueError(f"{model.name} has a train_step of its own; pass data, a batch for it")
    if not getattr(model, "inputs", None):
        raise ValueError(f"{model.name} has no known inputs; pass data, a batch (x, y)")
    inputs = model.inputs[0] if isinstance(model, keras.Sequential) else model.input
    return tf.nest.map_structure(_input_spec, inputs)


def _input_spec(value: keras.KerasTensor) -> tf.TypeSpec:
    """Return the spec of one input: sparse, ragged or dense."""
    if value.sparse:
        return tf.SparseTensorSpec(value.shape, value.dtype)
    if value.ragged:
        return tf.RaggedTensorSpec(value.shape, value.dtype)
    return tf.TensorSpec(value.shape, value.dtype)


def _data_specs(data: Any) -> Any:
    """Return the specs of the batches of a dataset, or of one batch; a list counts as a tuple."""
    if isinstance(data, tf.data.Dataset):
        return data.element_spec
    return tf.nest.map_structure(_spec, tuple(data) if isinstance(data, list) else data)


def _spec(value: Any) -> Any:
    """Return the spec of one value of a batch, of any length; None and specs are unchanged.

    Raises ValueError for a value that is no tensor.
    """
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


def _make_train_step_without_targets(model: keras.Model) -> Any:
    """Return a training step from inputs alone, whose gradients reach the same variables.

    Its loss is the sum of the means of all floating-point outputs and of the model's own losses.
    """

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
    """Return variables by path: of the model, of the optimizer, then others that the step uses.

    Each is listed once. A path that is taken already gets one apostrophe or more.
    """
    named = [(variable.path, variable.value) for variable in _all_variables(model)]
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
    """Return whether Keras would give this name to an optimizer slot of the table."""
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
            return f"the constraint of {table}", _BY_ROW
        if _REGULARIZERS in files:
            return f"the regularizer of {table}", _REGULARIZED
        scopes = touch.name.split("/")[:-1]
        for optimizer in self._optimizers:
            if _has_scope(optimizer, scopes):
                return _optimizer(optimizer)
        if _LOSS_SCALE in files:
            scales = keras.optimizers.LossScaleOptimizer
            return _optimizer(next(o for o in self._optimizers if isinstance(o, scales)))
        layer = owner if owner and _has_scope(owner, scopes) else self._innermost(scopes)
        if layer is not None:
            return _layer(layer, touch)
        if _GRADIENT in files and getattr(variable, "regularizer", None):
            return f"the regularizer of {table}", _REGULARIZED
        if _GRADIENT in files:  # a sum of gradients that made one dense
            return f"the gradient of {table}", _SUMMED
        return source_line(_frames_in_step(touch.frames), _is_keras), instead(touch.operation)

    def _owner(self, name: str) -> tuple[keras.layers.Layer | None, keras.Variable | None]:
        """Return the layer and the variable of a name or of its slot's name, or (None, None)."""
        if name in self._owners:
            return self._owners[name]
        kept = (owned for path, owned in self._owners.items() if _is_slot(name, path))
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
    """Return the frames below the last one of this file, or all frames if none is of this file."""
    way = [index for index, frame in enumerate(frames) if frame.filename == __file__]
    return frames[way[-1] + 1 :] if way else frames


def _is_keras(path: str) -> bool:
    return path.startswith(str(_KERAS))


def _optimizer(optimizer: Any) -> tuple[str, str]:
    """Return an optimizer as a cause, and what to use instead: for one of ours, another layer."""
    kind = type(optimizer)
    cause = f"{kind.__name__} {optimizer.name!r}"
    if kind.__module__.startswith(f"{PACKAGE}.keras"):
        return cause, f"a layer with a row-sparse gradient, such as {PACKAGE}.keras.RowEmbedding"
    if kind.__name__ == "LossScaleOptimizer":
        return cause, f"{PACKAGE}.keras.LossScaleOptimizer"
    ours = _OPTIMIZERS.get(kind.__name__, "LazyAdam, Adagrad or SGD")
    return cause, f"{PACKAGE}.keras.{ours}, with {PACKAGE}.keras.RowEmbedding"


def _layer(layer: keras.layers.Layer, touch: Touch) -> tuple[str, str]:
    """Return a layer as a cause, and what to use instead: `RowEmbedding`, or advice by row."""
    stock = isinstance(layer, keras.layers.Embedding)
    remedy = f"{PACKAGE}.keras.RowEmbedding" if stock else instead(touch.operation)
    return f"{type(layer).__name__} {layer.name!r}", remedy
