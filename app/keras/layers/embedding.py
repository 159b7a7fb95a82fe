"""An embedding layer that reads only the rows of the batch, for models with large tables."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from ...system.scoped import Scoped
from ...tables.cached import CachedTable, is_cached_only
from ...tables.id_checks import check_ids, require
from ...tables.joined import StackedTable, concat_ids
from ..backend import (
    by_name,
    by_row,
    check_xla,
    in_place,
    in_replica,
    require_tensorflow,
)
from ..saving import RowsByPart
from ..tables.table_kinds import (
    check_is_variable,
    check_kind,
    make_table,
    place_config,
    with_new_file,
)
from ..tables.table_memory import require_room
from ..tables.table_variable import StackedVariable, TableVariable, look_up_together
from ..tables.table_warnings import StockOptimizerWarning

# Rows that were read with those of other features.
_given: Scoped[tf.Tensor | None] = Scoped(None)

_MANTISSA_BITS = {tf.float64: 53, tf.float32: 24, tf.float16: 11, tf.bfloat16: 8}


@keras.saving.register_keras_serializable(package="lexrow")
class RowEmbedding(RowsByPart, keras.layers.Embedding):
    """Drop-in replacement for `keras.layers.Embedding` that reads only the rows of the batch.

    Arguments, weights and masks are those of the Keras layer. The Keras layer reads its whole
    table in every step. This layer gathers the rows of the batch, and its gradient is row-sparse
    (`tf.IndexedSlices`). Use an optimizer of `lexrow.keras` with it: the Keras optimizers write
    every row of a table, even if the gradient has few.

    Example:
        >>> model = keras.Sequential([
        ...     lexrow.keras.RowEmbedding(10_000_000, 64),
        ...     keras.layers.GlobalAveragePooling1D(),
        ...     keras.layers.Dense(1),
        ... ])
        >>> model.compile(lexrow.keras.LazyAdam(0.001), loss="mse")

    Ids must be whole numbers from 0 to input_dim - 1. Otherwise the call raises
    `tf.errors.InvalidArgumentError` with the smallest and the largest id that is wrong. Code
    compiled by XLA, the default of Keras on a GPU, cannot check this: use `check_inputs`.
    On a machine with a GPU, the vector of a wrong id is NaN there, which shows in the loss.

    A constraint is applied to the rows that are trained; other rows keep their initial values.

    Weights of a trained `keras.layers.Embedding` are loaded by `set_weights` or
    `tf.train.Checkpoint`. A weights file names layers by their class, so rename them first:
    `keras.saving.KerasFileEditor` and `rename_object("layers/embedding", "row_embedding")`.

    Args:
        input_dim: As for `keras.layers.Embedding`, like every argument that is not listed here.
        table: Where the rows and their optimizer state are: "device" (a variable, as in Keras),
            "host" (memory of the host), "file", or "sharded" (over all GPUs).
        table_file: With table="file", the name of a file, which belongs to this layer while it
            lives. A file of an earlier layer is replaced. A layer that is made from a configuration
            gets a new file elsewhere (see `lexrow.keras.load_model`), which is removed with it.
        hot_rows: The number of rows of a cache on the device, for a table that is elsewhere.
            `lexrow.keras.prefetch_rows` fills it. By default there is none. Without a GPU, host
            memory is as near as a cache, and there is none for table="host".

    Raises:
        ValueError: `embeddings_regularizer` is given, or a constraint that needs more than one
            row at a time; both would read the whole table in every step. There is no such table,
            or its file cannot be used. A call raises it for floating-point ids whose dtype cannot
            represent every id.
    """

    built: bool
    _embeddings: Any  # a variable of Keras
    _stacked: StackedTable | None = None  # made by a `FeatureEmbedding`

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None,
        embeddings_constraint: Any = None,
        mask_zero: bool = False,
        weights: Any = None,
        lora_rank: int | None = None,
        lora_alpha: float | None = None,
        quantization_config: Any = None,
        *,
        table: str = "device",
        table_file: str | os.PathLike | None = None,
        hot_rows: int | None = None,
        **kwargs: Any,
    ):
        options = by_name(locals(), "table", "table_file", "hot_rows")
        if quantization_config is None:
            del options["quantization_config"]  # Keras 3.12 has no such argument
        require_tensorflow()
        self.table, self.table_file, self.hot_rows = table, table_file, hot_rows
        super().__init__(**options)
        check_kind(self)
        if self.embeddings_regularizer is not None:
            raise ValueError(
                f"{self.name}: embeddings_regularizer would read and change all {self.input_dim:,} "
                "rows at each step; use weight_decay of lexrow.keras.LazyAdamW, or "
                "activity_regularizer, which sees the rows of the batch"
            )
        if self.embeddings_constraint is not None and not by_row(self.embeddings_constraint):
            raise ValueError(
                f"{self.name}: embeddings_constraint={type(self.embeddings_constraint).__name__} "
                f"would read and change all {self.input_dim:,} rows at each step; use NonNeg, or "
                "MaxNorm, MinMaxNorm or UnitNorm with axis=1"
            )

    def add_weight(
        self, shape: Any = None, initializer: Any = None, *args: Any, **kwargs: Any
    ) -> keras.Variable:
        """Create a weight as Keras does, without a temporary copy of the initial value."""
        return super().add_weight(shape, in_place(initializer), *args, **kwargs)

    def build(self, input_shape: Any = None) -> None:
        """Create the table, and mark it as one for the optimizers of `lexrow.keras`.

        Raises:
            ValueError: The table needs more memory, or disk, than is free, its file cannot be used,
                or a strategy of tf.distribute is in use whose replicas may not share the table.
                Nothing is allocated then.
        """
        if self.built:
            return
        if self._stacked is None:
            require_room(self)
        if self.table == "device" and self._stacked is None:
            super().build(input_shape)
            self._embeddings.is_table = True  # read by the optimizers of lexrow.keras
        else:
            check_kind(self)  # with `weights`, Keras builds the layer before its constructor's end
            kind = StackedVariable if self.table == "device" else TableVariable
            with tf.init_scope():
                table: Any = self._stacked or make_table(self)
                self._embeddings = kind(table, "embeddings", self.variable_dtype)
            self._embeddings.constraint = self.embeddings_constraint
            self._embeddings.trainable = self.trainable  # as `add_weight` does
            self.built = True
        if self.table == "device":
            self._embeddings._overwrite_with_gradient = StockOptimizerWarning(self._embeddings)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the layer; those of the table only where not the default."""
        # The default is left out: Keras reads the rest, too.
        config = super().get_config() | place_config(self)
        return config | ({"hot_rows": self.hot_rows} if self.hot_rows else {})

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> RowEmbedding:
        """Make a layer from the result of `get_config`; a table in a file gets a new one."""
        return super().from_config(with_new_file(config))

    def enable_lora(
        self,
        rank: int,
        lora_alpha: float | None = None,
        a_initializer: Any = "he_uniform",
        b_initializer: Any = "zeros",
    ) -> None:
        """Add low-rank factors and freeze the table, as the Keras layer does.

        Raises:
            ValueError: The table is not a variable of the device.
        """
        check_is_variable(self, "LoRA")
        super().enable_lora(rank, lora_alpha, a_initializer, b_initializer)

    def call(self, inputs: Any) -> tf.Tensor | tf.RaggedTensor:
        """Return the rows of the given ids.

        Args:
            inputs: Ids of any shape, dense, ragged or sparse. A sparse tensor has id 0 where it
                has no value, as in Keras.

        Returns:
            The rows (..., output_dim) in the compute dtype, ragged for ragged ids.

        Raises:
            tf.errors.InvalidArgumentError: An id is out of range or not whole (see the class).
            ValueError: The dtype of floating-point ids cannot represent every id.
        """
        if isinstance(inputs, tf.SparseTensor):
            inputs = tf.sparse.to_dense(inputs)
        return tf.ragged.map_flat_values(self._look_up, inputs)

    def compute_output_spec(self, inputs: Any) -> keras.KerasTensor:
        """Return the shape and dtype of the result of `call`, as a symbolic tensor."""
        self._check_dtype(tf.as_dtype(inputs.dtype))
        return super().compute_output_spec(inputs)

    def _look_up(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return the rows of dense ids in the compute dtype, after a check of the ids.

        LoRA is added if enabled. Where TensorFlow sees a GPU and the table is a variable of the
        device, the row of an id out of range is NaN.
        """
        inputs = tf.convert_to_tensor(inputs)
        self._check_dtype(inputs.dtype)
        ids = to_integers(inputs, self.input_dim, self.name)
        ids = check_ids(ids, self.input_dim, self.name)
        table = getattr(self._embeddings, "table", None)
        on_cache = is_cached_only() and isinstance(table, CachedTable)
        check_xla(self, [self._embeddings], on_cache)
        if (rows_ND := _given.get()) is None:
            rows = _read(self._embeddings, ids)
        else:
            rows = tf.reshape(rows_ND, tf.concat([tf.shape(ids), [self.output_dim]], axis=0))
        if self.lora_enabled:
            factors = _read(self.lora_embeddings_a, ids)
            scale = self.lora_alpha / self.lora_rank
            rows += tf.cast(
                scale * tf.matmul(factors, tf.cast(self.lora_embeddings_b, factors.dtype)),
                rows.dtype,
            )
        if self.table == "device" and tf.config.list_physical_devices("GPU"):
            outside = tf.logical_or(ids < 0, ids >= self.input_dim)
            rows = tf.where(outside[..., tf.newaxis], tf.cast(math.nan, rows.dtype), rows)
        return tf.cast(rows, self.compute_dtype)

    def _check_dtype(self, dtype: tf.DType) -> None:
        """Raise ValueError if ids of this dtype are no numbers."""
        if not (dtype.is_integer or dtype.is_floating or dtype.is_bool):
            raise ValueError(
                f"{self.name}: the ids are {dtype.name}, where the layer takes integers; put "
                "keras.layers.StringLookup before it, or use lexrow.keras.DynamicEmbedding"
                f"({self.output_dim}, 'string'), which takes strings"
            )


# For `keras.layers.deserialize`, which finds other classes as "lexrow>Softmax": in a saved model, a
# bare name would win over that of a class of somebody else.
keras.saving.get_custom_objects()["RowEmbedding"] = RowEmbedding


def rows_given(rows_ND: tf.Tensor | None) -> contextlib.AbstractContextManager:
    """Let a layer that is called in the block take rows that were read before, if not None."""
    return _given.set(rows_ND)


def read_together(layers: Sequence[RowEmbedding], ids: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
    """Return the rows (N, D) of each layer, read by one operation, with row-sparse gradients.

    Args:
        layers: The same layer several times, or some whose tables are in one variable.
        ids: The ids (N,) for each, integers.
    """
    if layers[0]._stacked is not None:
        return look_up_together([layer._embeddings for layer in layers], ids)
    rows_ND = _read(layers[0]._embeddings, concat_ids(ids))
    return tf.split(rows_ND, [tf.size(own) for own in ids])


def _read(variable: keras.Variable, ids: tf.Tensor) -> tf.Tensor:
    """Return the rows of the ids, with a row-sparse gradient, in the dtype of a variable of Keras.

    Those of a `TableVariable` are float32.
    """
    if isinstance(variable, TableVariable):
        return variable.look_up(ids)
    # The value is as stored: `autocast` is off in keras.layers.Embedding. tf.gather would read a
    # whole variable of tf.distribute; its part in this replica is gathered.
    return tf.gather(in_replica(variable.value), ids)


def to_integers(inputs: tf.Tensor, rows: int, name: str) -> tf.Tensor:
    """Return ids as int32 or int64; floating-point ids as int64.

    Args:
        inputs: Ids of any shape and any dtype of real numbers.
        rows: The number of rows of the table, V.

    Raises:
        ValueError: A floating-point dtype cannot represent every id of the table.
        tf.errors.InvalidArgumentError: An id is not whole; in a graph, when it runs.
    """
    if inputs.dtype in (tf.int32, tf.int64):
        return inputs
    if inputs.dtype == tf.uint64:  # ids that int64 does not hold would become negative
        inputs = tf.minimum(inputs, tf.constant(2**63 - 1, tf.uint64))
    short = inputs.dtype.is_integer and inputs.dtype.size < 4
    ids = tf.cast(inputs, tf.int32 if short else tf.int64)
    if not inputs.dtype.is_floating:
        return ids
    exact = 2 ** _MANTISSA_BITS[inputs.dtype]  # every integer up to it has a number
    if rows > exact:
        raise ValueError(
            f"{name}: the ids are {inputs.dtype.name}, which represents every integer only up to "
            f"{exact:,}, and the table has {rows:,} rows; pass integers, with "
            "keras.Input(..., dtype='int32')"
        )
    whole = tf.reduce_all(tf.equal(tf.cast(ids, inputs.dtype), inputs))
    return require(whole, f"{name}: ids must be whole numbers, and some are not", ids)
