"""Helpers for Keras: the check of its backend, and initial values without temporary copies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

# The public classes would make a copy for each replica.
from tensorflow.python.ops.resource_variable_ops import default_variable_creator_v2

from ..system.python_functions import callers, locals_of_call
from ..system.xla import under_xla
from ..tables.device import compute_in_graph

# The files that arguments named in this process. A configuration may come from anybody, so a file
# that only a configuration names is neither opened nor made.
named_files: set[str] = set()

_RANDOM = (
    keras.initializers.RandomNormal,
    keras.initializers.RandomUniform,
    keras.initializers.TruncatedNormal,
    keras.initializers.VarianceScaling,
)
# All initializers that draw. `in_place` has no way to make an orthogonal matrix without copies.
_DRAWN = (*_RANDOM, keras.initializers.Orthogonal)

_BY_NORM = (
    keras.constraints.MaxNorm,
    keras.constraints.MinMaxNorm,
    keras.constraints.UnitNorm,
)

# The strategies whose replicas train in step, each of them in a process with all rows.
_IN_STEP = (
    tf.distribute.MirroredStrategy,
    tf.distribute.MultiWorkerMirroredStrategy,
    tf.distribute.OneDeviceStrategy,
)

# The functions of Keras that call a subclassed model to build it from shapes, and for the default
# signature of a SavedModel. They know no dtypes, and call it with float32.
_GUESSES = (
    "_build_by_run_for_single_pos_arg",
    "_build_by_run_for_kwargs",
    "_list_variables_used_by_fns",
    "serving_default",
    "tf__serving_default",  # as autograph names it
)

# The methods of Keras' models that take a batch apart, to train on it, evaluate or build the model.
_STEPS = ("train_step", "test_step", "_symbolic_build")


def by_name(values: Mapping[str, Any], *others: str) -> dict[str, Any]:
    """Return the arguments of a constructor by name, for the constructor of its base class.

    A constructor that lists its arguments, so that `help` and editors show them, passes them on so.

    Args:
        values: The `locals()` of the constructor, before it sets another name. Its `**kwargs` are
            among the arguments.
    """
    left_out = {"self", "__class__", "kwargs", *others}
    return {name: value for name, value in values.items() if name not in left_out} | values[
        "kwargs"
    ]


def is_dtype_guessed() -> bool:
    """Return whether Keras calls a model now with inputs whose dtype it guessed."""
    return bool(locals_of_call("keras.src.", *_GUESSES))


def owners_in_call(kind: type) -> Iterator[Any]:
    """Yield the objects of a class whose methods are in the call stack, the nearest first.

    Args:
        kind: A class of Keras. Only methods that Keras defines are looked at: `f_locals` keeps the
            locals of a frame alive, those of a user's function with a model that it deletes.
    """
    for frame in callers("keras."):
        if isinstance(owner := frame.f_locals.get("self"), kind):
            yield owner


def model_of_step() -> Any:
    """Return the model whose training step, that of Keras, runs or is traced now, or None.

    A step that a user has written is not looked at.
    """
    return locals_of_call("keras.", "train_step").get("self")


def weighs_samples() -> bool:
    """Return whether a training step of Keras runs or is traced now on batches with weights."""
    return locals_of_call("keras.", "train_step").get("sample_weight") is not None


def lacks_y() -> bool:
    """Return whether a step of Keras runs or is traced now whose loss needs a y that is None."""
    for frame in callers("keras."):
        if frame.f_code.co_name in _STEPS and frame.f_locals.get("y", frame) is None:
            model = frame.f_locals["self"]
            is_usual = type(model).compute_loss is keras.Model.compute_loss
            return is_usual and getattr(model, "_compile_loss", None) is not None
    return False


def require_model(model: Any, kind: type = keras.Model) -> None:
    """Raise ValueError if a model is no object of a kind: a model, or a layer."""
    if not isinstance(model, kind):
        raise ValueError(f"model is {type(model).__name__}; give a {kind.__name__} of Keras")


def is_ours(kind: type) -> bool:
    """Return whether a class is one of this package."""
    return kind.__module__.startswith(f"{__name__.partition('.')[0]}.")


def require_tensorflow() -> None:
    """Raise ValueError if Keras runs on another backend than TensorFlow."""
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"lexrow.keras needs Keras on TensorFlow, not on {keras.backend.backend()}; "
            "set KERAS_BACKEND=tensorflow before keras is imported"
        )


@contextlib.contextmanager
def one_copy(table: str) -> Iterator[None]:
    """Create variables in the block once in a process, for all its replicas under tf.distribute.

    Args:
        table: The table that they belong to, for the message.

    Raises:
        ValueError: The strategy has replicas that do not train in step.
    """
    if not tf.distribute.has_strategy():
        yield
        return
    if not trains_in_step():
        raise ValueError(
            f"{table} has its rows in each process, and the replicas of "
            f"{type(tf.distribute.get_strategy()).__name__} do not train in step; use RowEmbedding "
            "with table='device', or tf.distribute.MirroredStrategy or MultiWorkerMirroredStrategy"
        )
    with tf.variable_creator_scope(lambda _, **options: default_variable_creator_v2(**options)):
        yield


def trains_in_step() -> bool:
    """Return whether this process has all rows: without a strategy, and if replicas mirror it."""
    return not tf.distribute.has_strategy() or isinstance(tf.distribute.get_strategy(), _IN_STEP)


def mirrors_workers() -> bool:
    """Return whether a strategy of tf.distribute is in use that has replicas in several processes.

    Each of these processes has a copy of all rows, and applies the gradients of all replicas.
    """
    return isinstance(tf.distribute.get_strategy(), tf.distribute.MultiWorkerMirroredStrategy)


def with_seed_of_chief(initializer: Any) -> Any:
    """Return a random initializer of Keras with the seed that it has in the first process.

    Any other, and one in a strategy within this process, is returned unchanged.

    Raises:
        ValueError: Its seed is a `SeedGenerator`, which differs between the processes.
    """
    if not (mirrors_workers() and isinstance(initializer, _DRAWN)):
        return initializer
    if isinstance(initializer.seed, keras.random.SeedGenerator):
        raise ValueError(
            f"{type(initializer).__name__}: its seed is a SeedGenerator, whose draws differ "
            "between the processes of MultiWorkerMirroredStrategy; give a whole number as the seed"
        )
    # The strategy sends the initial value of a variable of its own to all processes.
    with tf.init_scope():
        seed = tf.Variable(initializer.seed, trainable=False, dtype=tf.int64)
        local = tf.distribute.get_strategy().experimental_local_results(seed)[0]
    return type(initializer).from_config(initializer.get_config() | {"seed": int(local)})


def check_xla(
    layer: keras.layers.Layer, variables: Iterable[Any] = (), on_device: bool = False
) -> None:
    """Check that XLA can read the table of a layer, if it compiles the code that is being traced.

    Args:
        variables: The Keras variables of its rows, of which some can be a `TableVariable`.
        on_device: Whether the code reads only rows on a device, such as those in a cache.
    """
    if not under_xla():
        return
    if not (layer.supports_jit or on_device):
        raise ValueError(
            f"{layer.name}: XLA cannot compile look-ups in this table; leave out jit_compile"
        )
    step = tf.zeros([]).device
    if not step:  # where the traced function runs, by default the first GPU
        with tf.init_scope():
            step = tf.zeros([]).device
    devices = [step]
    for variable in variables:
        table = getattr(variable, "table", variable.value)
        devices += [in_replica(each).device for each in (table, variable.value)]
    step, *places = [
        f"{spec.device_type}:{spec.device_index}"
        for spec in map(tf.DeviceSpec.from_string, filter(None, devices))  # not known of a tensor
    ]
    for place in places:
        if place != step:
            raise ValueError(
                f"{layer.name}: the table is on {place}, and XLA compiles the step for {step}, "
                "which cannot reach it; leave out jit_compile, or make the layer with "
                f"table='device' under tf.device('{step}')"
            )


def in_replica(value: tf.Variable | tf.Tensor) -> tf.Variable | tf.Tensor:
    """Return the part in this replica of a variable of tf.distribute, or any other value as it is.

    Args:
        value: A variable, or a tensor in a stateless call of Keras.
    """
    return value._get() if isinstance(value, tf.distribute.DistributedValues) else value


def in_place(initializer: Any) -> Any:
    """Return an initializer that makes the same values without temporary copies of them.

    Only random and constant initializers of Keras are replaced; any other is returned unchanged.
    """
    original = keras.initializers.get(initializer)
    if isinstance(original, _RANDOM):
        return lambda shape, dtype=None: compute_in_graph(lambda: original(shape, dtype=dtype))
    if isinstance(original, keras.initializers.Constant):
        return lambda shape, dtype=None: tf.broadcast_to(tf.cast(original.value, dtype), shape)
    return initializer


def by_row(constraint: Any) -> bool:
    """Return whether a constraint is known to treat each row of a (V, D) table by itself.

    Args:
        constraint: A Keras constraint or None. Only NonNeg and norms along the row count.
    """
    if isinstance(constraint, _BY_NORM):
        return constraint.axis in (1, -1, [1], [-1], (1,), (-1,))
    return isinstance(constraint, keras.constraints.NonNeg)


def row_constraint(variable: Any) -> Any:
    """Return the constraint of a Keras variable (V, D) if it is by row, or None."""
    if not isinstance(variable, keras.Variable) or variable.shape.rank != 2:
        return None
    return variable.constraint if by_row(variable.constraint) else None
