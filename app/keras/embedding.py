"""A drop-in for keras.layers.Embedding that reads the rows of the batch and no others."""

from __future__ import annotations

import math
from typing import Any

import keras
import tensorflow as tf

from ..tables.id_checks import check_ids
from .backend import in_place, require_tensorflow
from .constraints import by_row


@keras.saving.register_keras_serializable(package="lexrow")
class RowEmbedding(keras.layers.Embedding):
    """keras.layers.Embedding, row by row: same arguments, weights and masks.

    Keras' layer reads its whole table to look up a batch, and copies it if an optimizer has written
    single rows; this one gathers the rows of the batch. The gradient is row-sparse, and stays so
    with the optimizers of `app.keras`.

    It differs in what it refuses (ValueError): an `embeddings_regularizer` and a constraint that
    looks at more than one row at a time would read and write the whole table at each step; and
    floating-point ids where the dtype cannot tell them apart. Ids must be whole numbers in 0 ..
    input_dim - 1, or a call fails with InvalidArgumentError, which names the smallest and the
    largest that is not. Code compiled by XLA (Keras' default where there is a GPU) runs no such
    check; where there is a GPU, the vector of an id out of range is therefore NaN, so that the loss
    tells. `compile(jit_compile=False)` has the error.

    Give the model an optimizer of `app.keras` too: those of Keras write every row all the same.
    A constraint holds for the rows that were trained; the others stay as they were made.

    Weights of a trained keras.layers.Embedding come by `set_weights` or tf.train.Checkpoint. In a
    weights file Keras calls layers by their class: rename them first, with
    keras.saving.KerasFileEditor and `rename_object("layers/embedding", "row_embedding")`.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        require_tensorflow()
        super().__init__(*args, **kwargs)
        if self.embeddings_regularizer is not None:
            raise ValueError(
                f"{self.name}: embeddings_regularizer would read and change all {self.input_dim:,} "
                "rows at each step; use weight_decay of app.keras.LazyAdamW, or "
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
        """As Keras', with a table's initial value made in one buffer."""
        return super().add_weight(shape, in_place(initializer), *args, **kwargs)

    def build(self, input_shape: Any = None) -> None:
        """Makes the table, once."""
        super().build(input_shape)
        self._embeddings.is_table = True  # for the optimizers of app.keras

    def call(self, inputs: Any) -> tf.Tensor | tf.RaggedTensor:
        """The rows of the ids, with one more axis, (..., output_dim), as the compute dtype.

        inputs: ids of any shape; dense, ragged, or sparse (0 where there is none, as in Keras).
        """
        if isinstance(inputs, tf.SparseTensor):
            inputs = tf.sparse.to_dense(inputs)
        return tf.ragged.map_flat_values(self._look_up, inputs)

    def quantize(self, mode: str, type_check: bool = True, config: Any = None) -> None:
        """Makes the table int8 or int4, for inference, as Keras' layer does."""
        if type_check and type(self) is not RowEmbedding:
            raise self._not_implemented_error(self.quantize)
        super().quantize(mode, type_check=False, config=config)

    def quantized_call(self, inputs: Any) -> tf.Tensor | tf.RaggedTensor:
        """As `call`."""
        return self.call(inputs)

    def _look_up(self, inputs: tf.Tensor) -> tf.Tensor:
        ids = check_ids(self._whole(inputs), self.input_dim, self.name)
        rows = self._dequantized(ids) if self.quantization_mode else _read(self._embeddings, ids)
        if self.lora_enabled:
            factors = _read(self.lora_embeddings_a, ids)
            scale = self.lora_alpha / self.lora_rank
            rows += tf.cast(
                scale * tf.matmul(factors, tf.cast(self.lora_embeddings_b, factors.dtype)),
                rows.dtype,
            )
        if tf.config.list_physical_devices("GPU"):
            outside = tf.logical_or(ids < 0, ids >= self.input_dim)
            rows = tf.where(outside[..., tf.newaxis], tf.cast(math.nan, rows.dtype), rows)
        return tf.cast(rows, self.compute_dtype)

    def _dequantized(self, ids: tf.Tensor) -> tf.Tensor:
        """The rows of the ids in a table of int8 or int4, as float numbers."""
        rows = _read(self._embeddings, ids)
        if self.quantization_mode == "int4":
            rows = keras.quantizers.unpack_int4(rows, self.output_dim, axis=-1)
        scales = _read(self.embeddings_scale, ids)
        rows = tf.cast(rows, scales.dtype)
        if not hasattr(self, "embeddings_zero"):
            return rows / scales[..., tf.newaxis]
        # Keras' scale of blocks is that to multiply with, and each block has a zero of its own.
        blocks = tf.cast(self.g_idx, tf.int32)
        zeros = tf.cast(_read(self.embeddings_zero, ids), scales.dtype)
        return (rows - tf.gather(zeros, blocks, axis=-1)) * tf.gather(scales, blocks, axis=-1)

    def _whole(self, inputs: tf.Tensor) -> tf.Tensor:
        """The ids as int32 or int64."""
        inputs = tf.convert_to_tensor(inputs)
        if inputs.dtype in (tf.int32, tf.int64):
            return inputs
        short = inputs.dtype.is_integer and inputs.dtype.size < 4
        ids = tf.cast(inputs, tf.int32 if short else tf.int64)
        if not inputs.dtype.is_floating:
            return ids
        if self.input_dim > _counted(inputs.dtype):
            raise ValueError(
                f"{self.name}: ids come as {inputs.dtype.name}, which counts to "
                f"{_counted(inputs.dtype):,} without a gap, and the table has {self.input_dim:,} "
                "rows; pass integers, with keras.Input(..., dtype='int32')"
            )
        message = f"{self.name}: ids are to be whole numbers, and some are not"
        whole = tf.reduce_all(tf.equal(tf.cast(ids, inputs.dtype), inputs))
        with tf.control_dependencies([tf.debugging.Assert(whole, [message, inputs])]):
            return tf.identity(ids)


def _read(variable: keras.Variable, ids: tf.Tensor) -> tf.Tensor:
    """The rows of the ids, with a row-sparse gradient."""
    values = variable.value  # as stored: Keras casts no variable of this layer (`autocast`)
    # A variable of tf.distribute is read whole by tf.gather; its part in this replica is not.
    values = values._get() if isinstance(values, tf.distribute.DistributedValues) else values
    return tf.gather(values, ids)


def _counted(dtype: tf.DType) -> int:
    """The number up to which a floating-point dtype has every integer."""
    mantissa = {tf.float64: 53, tf.float32: 24, tf.float16: 11, tf.bfloat16: 8}
    return 2 ** mantissa[dtype]
