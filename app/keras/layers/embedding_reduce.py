"""An embedding layer that adds or averages the rows of several ids to one vector."""

from __future__ import annotations

import os
from typing import Any

import keras
import tensorflow as tf

from ...system.python_functions import custom_gradient
from ...system.xla import under_xla
from ...tables.id_checks import require
from ...tables.row_reads import rows_to_read
from ...types import HOST
from ..backend import by_name
from .embedding import RowEmbedding

COMBINERS = ("sum", "mean", "sqrtn")


@keras.saving.register_keras_serializable(package="lexrow")
class RowEmbeddingReduce(RowEmbedding):
    """Embedding layer that combines the rows of several ids, such as the words of a text.

    The result equals `RowEmbedding`, weighted and summed over the last axis of the ids. But no
    tensor has a row for each id: each unique row is read once, and the sums are a product with a
    sparse matrix. Only the unique rows have a gradient. The arguments are those of
    `keras_rs.layers.EmbedReduce`.

    Example:
        >>> words = keras.Input((None,), dtype="int32")  # 0 stands for padding
        >>> vector = lexrow.keras.RowEmbeddingReduce(100_000, 64, mask_zero=True)(words)
        >>> texts = tf.ragged.constant([[3, 17, 17], [], [99]])
        >>> lexrow.keras.RowEmbeddingReduce(100_000, 64, combiner="mean")(texts).shape
        TensorShape([3, 64])

    Args:
        input_dim: As for `RowEmbedding`, like every argument that is not listed here.
        mask_zero: Whether id 0 stands for padding, and counts for nothing.
        combiner: "sum", "mean" (the sum divided by the sum of the weights) or "sqrtn" (the sum
            divided by the square root of the sum of the squared weights).

    Raises:
        ValueError: There is no such combiner, or as for `RowEmbedding`.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None,
        embeddings_constraint: Any = None,
        mask_zero: bool = False,
        weights: Any = None,
        combiner: str = "mean",
        *,
        table: str = "device",
        table_file: str | os.PathLike | None = None,
        hot_rows: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**by_name(locals(), "combiner"))
        if combiner not in COMBINERS:
            raise ValueError(
                f"{self.name}: combiner={combiner!r}; give one of {', '.join(COMBINERS)}"
            )
        self.combiner = combiner
        self.supports_masking = True

    def call(self, inputs: Any, weights: Any = None, mask: Any = None) -> tf.Tensor:
        """Return the combined rows of the given ids.

        Args:
            inputs: Ids (..., L), dense, ragged in the last axis, or sparse (B, L). A sparse tensor
                counts only the ids that it has. Dense ids (B,) are one for each example, and are
                combined like (B, 1).
            weights: The weight of each id, in the form of the ids; by default 1.
            mask: Whether to count each id, bool, in the form of the ids; by default all count.

        Returns:
            Vectors (..., output_dim) in the compute dtype; zeros where no id counts.

        Raises:
            ValueError: The ids have another number of axes, or the weights or the mask do not have
                the form and the shape of the ids.
            tf.errors.InvalidArgumentError: An id is out of range, or the weights or the mask are
                not at the places of the ids.
        """
        inputs = _tensor(inputs)
        self._check_axes(inputs)
        is_vector = form_of(inputs) == "dense" and inputs.shape.rank == 1
        if is_vector and weights is None and mask is None and not self.mask_zero:
            return super().call(inputs)  # there is nothing to combine
        ids_N, segments_N, shape = _flatten(inputs)
        weights_N = tf.ones_like(ids_N, tf.float32)
        if weights is not None:
            weights_N = tf.cast(self._checked("the weights", weights, inputs), tf.float32)
        if mask is not None:
            mask_N = self._checked("the values of the mask", mask, inputs)
            weights_N = tf.where(tf.cast(mask_N, tf.bool), weights_N, 0.0)
        if self.mask_zero:
            weights_N = tf.where(ids_N == 0, 0.0, weights_N)
        segments = tf.reduce_prod(shape)

        def total(values_N: tf.Tensor) -> tf.Tensor:
            """Return the sums of numbers or rows of the ids of each segment."""
            if not under_xla() or form_of(inputs) != "dense":
                return tf.math.unsorted_segment_sum(values_N, segments_N, segments)
            # A reduction, where each sum of segments is a scatter, and its gradient a gather.
            length = tf.size(ids_N, tf.int64) // tf.maximum(segments, 1)
            values = tf.reshape(values_N, [segments, length, *values_N.shape[1:]])
            return tf.reduce_sum(values, axis=1)

        if under_xla():  # which has no product with a sparse matrix, and would sort the ids
            rows_ND = tf.cast(self._look_up(ids_N), tf.float32) * weights_N[:, tf.newaxis]
            sums_BD = total(rows_ND)
        else:
            ids_U, inverse_N = rows_to_read(ids_N)
            rows_UD = tf.cast(self._look_up(ids_U), tf.float32)
            sums_BD = _weighted_sums(rows_UD, inverse_N, segments_N, weights_N, segments)
        if self.combiner != "sum":
            by = weights_N if self.combiner == "mean" else weights_N**2
            norm_B = total(by) if self.combiner == "mean" else tf.sqrt(total(by))
            sums_BD = tf.math.divide_no_nan(sums_BD, norm_B[:, tf.newaxis])
        vectors = tf.reshape(sums_BD, tf.concat([shape, [self.output_dim]], axis=0))
        return tf.cast(vectors, self.compute_dtype)

    def compute_mask(self, inputs: Any, mask: Any = None) -> None:
        """Return no mask: the masked axis is gone."""

    def compute_output_shape(self, input_shape: Any, *_: Any) -> tuple:
        """Return the shape of the result: columns in place of the last axis, but after a batch."""
        batch = input_shape if len(input_shape) == 1 else input_shape[:-1]
        return (*batch, self.output_dim)

    def compute_output_spec(self, inputs: Any, *_: Any, **__: Any) -> keras.KerasTensor:
        """Return the shape and dtype of the result, as a symbolic tensor."""
        self._check_dtype(tf.as_dtype(inputs.dtype))
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the layer."""
        return super().get_config() | {"combiner": self.combiner}

    def _check_axes(self, inputs: Any) -> None:
        """Raise ValueError if the ids have no last axis, or ragged or sparse ids not two axes."""
        form, rank = form_of(inputs), inputs.shape.rank
        if rank == 0 or (form != "dense" and rank not in (2, None)):  # None: it is not known yet
            raise ValueError(
                f"{self.name}: the ids are a {form} tensor of shape {inputs.shape}; the last axis "
                "is combined: give ragged and sparse ids two axes, and dense ids one or more"
            )

    def _checked(self, name: str, values: Any, inputs: Any) -> tf.Tensor:
        """Return the weights or the mask, (N,), after a check that each id has one at its place."""
        form, values = form_of(inputs), _tensor(values)
        start = f"{self.name}: {name}"
        if form_of(values) != form:
            raise ValueError(
                f"{start} are a {form_of(values)} tensor, the ids are a {form} one; give both in "
                "one form"
            )
        if values.dtype == tf.string:
            raise ValueError(f"{start} are strings; give numbers or bool")
        if not inputs.shape.is_compatible_with(values.shape):
            raise ValueError(
                f"{start} have shape {values.shape}, the ids have shape {inputs.shape}; give each "
                "id one"
            )
        with tf.device(HOST):  # as `check_ids` does
            places, others = _places(inputs), _places(values)
            count = tf.minimum(tf.shape(places)[0], tf.shape(others)[0])
            same = tf.shape(places)[0] == tf.shape(others)[0]
            same &= tf.reduce_all(tf.equal(places[:count], others[:count]))
        message = f"{start} are not at the places of the ids; give each id one"
        return require(same, message, _values(values))


keras.saving.get_custom_objects()["RowEmbeddingReduce"] = RowEmbeddingReduce  # as `RowEmbedding`


def form_of(tensor: Any) -> str:
    """Return "sparse", "ragged" or, for anything else, "dense"; the tensor can be symbolic."""
    if isinstance(tensor, tf.SparseTensor) or getattr(tensor, "sparse", False):
        return "sparse"
    is_ragged = isinstance(tensor, tf.RaggedTensor) or getattr(tensor, "ragged", False)
    return "ragged" if is_ragged else "dense"


def _values(tensor: Any) -> tf.Tensor:
    """Return the values of a dense, ragged or sparse tensor, flat."""
    return tf.reshape(tensor, [-1]) if form_of(tensor) == "dense" else tensor.values


def _tensor(value: Any) -> Any:
    """Return a value as a tensor; a ragged or sparse one is a tensor already."""
    return value if form_of(value) != "dense" else tf.convert_to_tensor(value)


def _flatten(inputs: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return flat ids (N,), the segment of each id, int64, and the shape of the segments."""
    if isinstance(inputs, tf.SparseTensor):
        segments_N, shape = inputs.indices[:, 0], inputs.dense_shape[:1]
    elif isinstance(inputs, tf.RaggedTensor):
        segments_N, shape = inputs.value_rowids(), inputs.nrows()[tf.newaxis]
    else:
        sizes = tf.shape(inputs, out_type=tf.int64)
        shape, length = (sizes, 1) if inputs.shape.rank == 1 else (sizes[:-1], sizes[-1])
        segments_N = tf.repeat(tf.range(tf.reduce_prod(shape)), length)
    return _values(inputs), segments_N, shape


def _places(tensor: Any) -> tf.Tensor:
    """Return a tensor that is equal for two tensors of one form with values at the same places."""
    if isinstance(tensor, tf.SparseTensor):
        return tensor.indices
    if isinstance(tensor, tf.RaggedTensor):
        return tf.cast(tensor.row_splits, tf.int64)
    return tf.shape(tensor)


def _weighted_sums(
    rows_UD: tf.Tensor,
    inverse_N: tf.Tensor,
    segments_N: tf.Tensor,
    weights_N: tf.Tensor,
    segments: tf.Tensor,
) -> tf.Tensor:
    """Return the weighted sum of the rows of each segment, (B, D), without a tensor (N, D).

    Args:
        rows_UD: The unique rows, float32.
        segments_N: The segment of each id, int64.
        weights_N: The weight of each id, float32.
    """
    positions_N2 = tf.stack([segments_N, tf.cast(inverse_N, tf.int64)], axis=1)
    shape = tf.stack([segments, tf.shape(rows_UD, out_type=tf.int64)[0]])

    @custom_gradient
    def sums(rows_UD: tf.Tensor, weights_N: tf.Tensor):
        """Return the sums (B, D), with gradients by the rows and by the weights."""
        matrix = tf.SparseTensor(positions_N2, weights_N, shape)

        def gradient(upstream_BD: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            by_row_UD = tf.sparse.sparse_dense_matmul(matrix, upstream_BD, adjoint_a=True)
            return by_row_UD, _dot(rows_UD, inverse_N, upstream_BD, segments_N)

        return tf.sparse.sparse_dense_matmul(matrix, rows_UD), gradient

    return sums(rows_UD, weights_N)


def _dot(
    rows_UD: tf.Tensor, inverse_N: tf.Tensor, upstream_BD: tf.Tensor, segments_N: tf.Tensor
) -> tf.Tensor:
    """Return the gradient of each weight, (N,): its row times the gradient of its segment.

    One column at a time, so that no tensor is (N, D).
    """

    def add(sums_N: tf.Tensor, column: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """Add the products of one column to the sums."""
        rows_U, upstream_B = column
        return sums_N + tf.gather(rows_U, inverse_N) * tf.gather(upstream_B, segments_N)

    columns = tf.transpose(rows_UD), tf.transpose(upstream_BD)
    return tf.foldl(add, columns, tf.zeros_like(inverse_N, tf.float32))
