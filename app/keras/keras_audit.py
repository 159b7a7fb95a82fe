"""The audit of a training step of Keras: operations on whole tables, and their causes."""

from __future__ import annotations

import inspect
import pathlib
import re
from collections.abc import Callable, Iterable
from typing import Any

import keras
import tensorflow as tf

from ..system.console import size_text
from ..system.loops import creation_stack
from ..tables.device import named_variables
from .auditing import LEAST_BYTES, Findings, Walk, instead, source_line
from .backend import is_ours, require_tensorflow
from .step_parts import StepParts, find_parts, parts_of
from .tables.table_variable import StackedVariable, TableVariable
from .tables.table_warnings import variable_bytes

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
_SPARSE = (
    "a layer with a row-sparse gradient, such as lexrow.keras.RowEmbedding, before a loop or an "
    "RNN: inside, the gradient of a look-up is dense"
)
_SUMMED = "the rows of the batch wherever the table is used; one use of the whole makes it dense"
# About tables without a variable of their own.
_STACKED = (
    "share a variable with other tables, so an operation on all of them is not found; "
    "table_stacking=None shows it"
)
_ELSEWHERE = "are not in a variable of the model; a step reads and writes only rows of its batch"
# Operations made in these files of Keras have a known cause.
_KERAS = pathlib.PurePath(keras.__file__).parent
_CONSTRAINTS = str(_KERAS / "src/constraints/constraints.py")
_REGULARIZERS = str(_KERAS / "src/regularizers/regularizers.py")
_LOSS_SCALE = str(_KERAS / "src/optimizers/loss_scale_optimizer.py")
_AUDIT = str(pathlib.PurePath(__file__).with_name("keras_audit.py"))
_GRADIENT = str(pathlib.PurePath(tf.__file__).parent / "python/eager/backprop.py")


def audit(
    model: keras.Model | Callable[..., Any], data: Any = None, least_bytes: int = LEAST_BYTES
) -> Findings:
    """Return the operations of a training step that read, copy or write a whole table.

    Print the result. It is empty if every table is trained row by row. A table is a variable of
    which the step reads single rows, or its optimizer state. The kernel of a Dense layer is not a
    table, because every step needs all of it.

    The step is traced but not run, and no weight changes. Like the first step of `fit`, the trace
    creates the slots of the optimizer and the weights of layers that are not built.

    Example:
        >>> print(lexrow.keras.audit(model, (x, y), least_bytes=1_000))
        no operation on a whole table of 1.00 kB or more

    A training loop of your own has a step function, usually with a `tf.GradientTape`. Pass this
    function with its arguments. The report names the layers and optimizers whose variables the
    function uses.

    Example:
        >>> optimizer = lexrow.keras.LazyAdam(0.001)
        >>> @tf.function
        ... def step(x, y):
        ...     with tf.GradientTape() as tape:
        ...         loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        ...     gradients = tape.gradient(loss, model.trainable_variables)
        ...     optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        >>> findings = lexrow.keras.audit(step, (x, y))

    Args:
        model: A compiled model: functional, Sequential or subclassed. Or the function of a step: a
            `tf.function`, or a function that is traced as one.
        data: For a model, a batch (x, y) or (x, y, weights), or a tf.data.Dataset of batches; only
            shapes and dtypes are used. For a function, the tuple of its arguments, or a
            tf.data.Dataset of such tuples; a single argument needs no tuple.
        least_bytes: The size of the smallest table to report, in bytes.

    Returns:
        The findings in descending order of bytes (see `auditing.Walk.findings`). Their text
        also names the tables whose rows are not in a variable of the model.

    Raises:
        ValueError: The model is not compiled, data is lacking or not made of tensors, or the
            function does not take these arguments.
    """
    require_tensorflow()
    function, parts = _trace(model, data)
    variables = _variables(parts, function)
    walk, causes = Walk(function, variables, least_bytes), Causes(parts)
    tables = walk.by_row()
    tables |= {name for name in variables if any(is_slot(name, table) for table in tables)}
    findings, notes = Findings(walk.findings(tables, causes.explain)), causes.notes()
    largest = max(map(variable_bytes, variables.values()), default=0)
    if largest < least_bytes and not notes:  # notes are of tables outside of variables
        notes.append(
            f"the largest variable has {size_text(largest)}; give least_bytes=0 to audit small ones"
        )
    findings.least_bytes, findings.notes = least_bytes, notes
    return findings


def _trace(model: Any, data: Any) -> tuple[Any, StepParts]:
    """Trace a step of a model, or a function of one; return it with the parts that it uses.

    Args:
        data: A batch, the arguments of the function, or a dataset of either.
    """
    data = data.element_spec if isinstance(data, tf.data.Dataset) else data
    if not isinstance(model, keras.Model):
        arguments = _arguments(model, data)
        traced = model if hasattr(model, "get_concrete_function") else tf.function(model)
        function = traced.get_concrete_function(*arguments)
        return function, find_parts(function)
    if getattr(model, "optimizer", None) is None:
        raise ValueError(
            f"{model.name} has no optimizer; call model.compile first, or pass the function of "
            "your own training step and its arguments"
        )
    if data is None:
        raise ValueError(f"the step of {model.name} depends on data; pass a batch (x, y)")
    return _trace_step(model, data), parts_of([model])


def _arguments(function: Any, data: Any) -> tuple[Any, ...]:
    """Return the arguments of a step function; none if data is None.

    Raises ValueError if the function is not callable or does not take these arguments.
    """
    if not callable(function):
        kind = type(function).__name__
        raise ValueError(f"cannot audit a {kind}; pass a model, or the function of a training step")
    arguments = tuple(data) if isinstance(data, (tuple, list)) else (data,)
    arguments = () if data is None else arguments
    if data is None and getattr(function, "input_signature", None) is not None:
        return arguments  # the signature has the specs of all arguments
    try:
        called = getattr(function, "python_function", function)
        inspect.signature(called).bind(*arguments)
    except TypeError as error:
        name = getattr(function, "__name__", type(function).__name__)
        raise ValueError(
            f"{name}: {error}; pass data, the tuple of the arguments of one step"
        ) from None
    return arguments


def _trace_step(model: keras.Model, data: Any) -> Any:
    """Trace one training step, compiled as `fit` would, without running it; return the function."""
    batch = tf.nest.map_structure(_spec, tuple(data) if isinstance(data, list) else data)
    strategy = model._distribute_strategy
    # With a strategy, a trace that creates variables also initializes them: trace once more.
    for _ in range(1 if strategy is None else 2):
        # Without autograph, as Keras does for its own functions.
        step = tf.function(model.train_step, autograph=False, jit_compile=model.jit_compile)
        run = tf.function(model.distribute_strategy.run, autograph=False)
        function = run.get_concrete_function(step, (batch,))
    return function


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


def _variables(parts: StepParts, function: Any) -> dict[str, tf.Variable]:
    """Return variables by path: of the layers and optimizers, then others that the step uses.

    Each is listed once. A path that is taken already gets one apostrophe or more. A variable of
    changing shape, such as a sum of gradients of rows, is no table and is left out.
    """
    named = [pair for variable in parts.variables for pair in _stored(variable)]
    named += [(variable.name.removesuffix(":0"), variable) for variable in function.variables]
    by_path: dict[str, tf.Variable] = {}
    seen: set[int] = set()
    for name, variable in named:
        if id(variable) not in seen and variable.shape.is_fully_defined():
            seen.add(id(variable))
            while name in by_path:  # Keras variables may share a path
                name += "'"
            by_path[name] = variable
    return by_path


def _stored(variable: keras.Variable) -> list[tuple[str, tf.Variable]]:
    """Return each TensorFlow variable that stores a Keras variable, after the path of the latter.

    Slots of a table are left out. A table whose rows are not in variables has none.
    """
    if not isinstance(variable, TableVariable):
        return [(variable.path, variable.value)]
    if not isinstance(variable.table, tf.Module):
        return []
    stored = named_variables(variable.table)
    return [(variable.path, values) for keys, values in stored if "slots" not in keys]


class Causes:
    """Finds the part of a step that made an operation, by its name scope and call stack."""

    def __init__(self, parts: StepParts):
        self._layers, self._optimizers = parts.layers, parts.optimizers
        # Outer layers come first, so that a variable belongs to the innermost.
        self.owners = {v.path: (layer, v) for layer in self._layers for v in layer.variables}

    def notes(self) -> list[str]:
        """Return a note on each table whose rows are not in a variable of its own."""
        return [
            f"the rows of {_label(layer)} "
            + (_STACKED if isinstance(variable, StackedVariable) else _ELSEWHERE)
            for layer, variable in self.owners.values()
            if isinstance(variable, TableVariable)
        ]

    def explain(self, stored: str, operation: tf.Operation, name: str) -> tuple[str, str]:
        """Return the layer, optimizer or line that made an operation, and what to use instead.

        Args:
            stored: The name of the variable that the operation is on.
            name: The name of the operation, after those of the calls that contain it.
        """
        owned = (path for path in self.owners if is_slot(stored, path))
        path = stored if stored in self.owners else next(owned, None)
        owner, variable = self.owners.get(path, (None, None))
        table = _label(owner) if owner else stored
        frames = creation_stack(operation)  # empty for an operation of a SavedModel
        files = {frame.filename for frame in frames}
        if _CONSTRAINTS in files:
            return f"the constraint of {table}", _BY_ROW
        if _REGULARIZERS in files:
            return f"the regularizer of {table}", _REGULARIZED
        scopes = name.split("/")[:-1]
        made = [o for o in self._optimizers if _has_scope(o, scopes)]
        if _LOSS_SCALE in files:
            scales = keras.optimizers.LossScaleOptimizer
            made += [o for o in self._optimizers if isinstance(o, scales)]
        if made:
            return _explain_optimizer(made[0])
        inner = (
            layer
            for scope in reversed(scopes)
            for layer in self._layers
            if _has_scope(layer, [scope])
        )
        layer = owner if owner and _has_scope(owner, scopes) else next(inner, None)
        if isinstance(layer, keras.layers.Embedding):
            return _label(layer), "lexrow.keras.RowEmbedding"
        if layer is not None:
            return _label(layer), instead(operation)
        if _GRADIENT in files and getattr(variable, "regularizer", None):
            return f"the regularizer of {table}", _REGULARIZED
        if _GRADIENT in files:  # a sum of gradients that made one dense
            return f"the gradient of {table}", _SUMMED
        way = [i for i, frame in enumerate(frames) if frame.filename == _AUDIT]
        frames = frames[way[-1] + 1 if way else 0 :]  # below those of the audit
        line = source_line(frames, lambda path: path.startswith(str(_KERAS)))
        return line, instead(operation)


def _has_scope(named: Any, scopes: Iterable[str]) -> bool:
    """Return whether a scope has the name of a layer or optimizer, with or without _1, _2, ..."""
    return any(re.fullmatch(re.escape(named.name) + r"(_\d+)?", scope) for scope in scopes)


def _explain_optimizer(optimizer: Any) -> tuple[str, str]:
    """Return an optimizer as a cause, and what to use instead: for one of ours, another layer."""
    kind, cause = type(optimizer), _label(optimizer)
    if is_ours(kind):
        return cause, _SPARSE
    if kind.__name__ == "LossScaleOptimizer":
        return cause, "lexrow.keras.LossScaleOptimizer"
    ours = _OPTIMIZERS.get(kind.__name__, "LazyAdam, Adagrad or SGD")
    return cause, f"lexrow.keras.{ours}, with lexrow.keras.RowEmbedding"


def _label(named: Any) -> str:
    """Return the class and the name of a layer or an optimizer."""
    return f"{type(named).__name__} {named.name!r}"


def is_slot(name: str, table: str) -> bool:
    """Return whether Keras would give this name to an optimizer slot of the table."""
    return name.rpartition("/")[2].startswith(table.replace("/", "_") + "_")
