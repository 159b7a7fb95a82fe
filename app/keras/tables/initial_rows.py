"""Initial rows of tables: made one by one from an initializer, or read from a file part by part."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from ...tables.arrays import row_slices
from ...tables.initial import Constant, Initial, Uniform
from ...types import HOST
from ..backend import named_files


def by_id(initializer: Any, layer: str) -> Initial:
    """Return the initial values of an initializer as a function of the id.

    Uniform values are other draws than those of Keras: each is a hash of the seed, the id and the
    column.

    Args:
        initializer: An initializer of Keras: zeros, ones, a constant, or RandomUniform(-x, x).

    Raises:
        ValueError: It is another initializer, which makes whole tables only.
    """
    constant = constant_of(initializer)
    if constant is not None:
        return constant
    if (
        isinstance(initializer, keras.initializers.RandomUniform)
        and initializer.minval == -initializer.maxval
        and isinstance(initializer.seed, int)
    ):
        return Uniform(initializer.maxval, int(initializer.seed))
    raise ValueError(
        f"{layer}: embeddings_initializer={type(initializer).__name__} makes whole tables, where "
        "each row is made by itself; give zeros, ones, a constant, or RandomUniform(-x, x)"
    )


def constant_of(initializer: Any) -> Constant | None:
    """Return the initial values of an initializer of Keras that makes one number, else None."""
    if isinstance(initializer, keras.initializers.Zeros):
        return Constant(0.0)
    if isinstance(initializer, keras.initializers.Ones):
        return Constant(1.0)
    if isinstance(initializer, keras.initializers.Constant) and np.ndim(initializer.value) == 0:
        return Constant(float(initializer.value))
    return None


@keras.saving.register_keras_serializable(package="lexrow")
class StoredRows(keras.initializers.Initializer):
    """Initializer that copies rows from a NumPy file or array, without a second copy in memory.

    Example:
        >>> numpy.save("vectors.npy", numpy.ones((1_000, 3)))
        >>> layer = lexrow.keras.RowEmbedding(1_000, 3, lexrow.keras.StoredRows("vectors.npy"))
        >>> layer(numpy.array([7])).numpy()
        array([[1., 1., 1.]], dtype=float32)

    Rows are read in parts of about 16 MB, whatever the kind of table. A model that was saved has
    the rows that were trained, and so loads without the file: a layer that is made from its
    configuration then starts with zeros, which its saved weights replace. A copy in the same
    process reads the file again. A file that only a configuration names is not opened.

    Args:
        rows: The name of a file in NumPy's format .npy, or an array (V, D), such as a
            `numpy.memmap`. Its numbers are converted to the dtype of the layer.

    Raises:
        ValueError: The file cannot be read, or the array has another rank or no real numbers. A
            call raises it if the table has another shape.
    """

    def __init__(self, rows: str | os.PathLike | np.ndarray):
        is_file = isinstance(rows, str | os.PathLike)
        self._path = os.fspath(rows) if is_file else None
        self._array = None if is_file else np.asanyarray(rows)
        if is_file:
            named_files.add(self._path)
        opened = self._open()
        self._shape, self._dtype = opened.shape, opened.dtype
        is_real = self._dtype.kind in "fiu" or self._dtype == tf.bfloat16.as_numpy_dtype
        if len(self._shape) != 2 or not is_real:
            raise ValueError(
                f"{self}: an array of shape {self._shape} and dtype {self._dtype}; give the rows "
                "of a table, (V, D) real numbers"
            )

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> tf.Tensor:
        """Return all rows as a tensor in host memory.

        Args:
            dtype: The dtype of the result; by default float32.

        Raises:
            ValueError: The stored rows have another shape.
        """
        self.check_shape(shape)
        dtype = tf.as_dtype(dtype or "float32")
        with tf.device(HOST):
            values_VD = tf.raw_ops.Empty(shape=list(shape), dtype=dtype, init=False)
            for part, rows_UD in self.parts():
                # It writes into the tensor and returns the same one.
                values_VD = tf.raw_ops.InplaceUpdate(
                    x=values_VD, i=tf.range(part.start, part.stop), v=tf.cast(rows_UD, dtype)
                )
        return values_VD

    def __str__(self) -> str:
        return f"{type(self).__name__}({self._path!r})" if self._path else type(self).__name__

    def parts(self) -> Iterator[tuple[slice, tf.Tensor]]:
        """Read the rows in order.

        Yields:
            The ids of a part of about 16 MB as a slice, and its rows (any number, D), float32.
        """
        for part in row_slices(*self._shape):
            rows = self._open()  # once more: mapped pages that were read count as memory
            if (rows.shape, rows.dtype) != (self._shape, self._dtype):
                raise ValueError(
                    f"{self._path} was replaced while it was read; make the layer again"
                )
            yield part, tf.cast(np.array(rows[part]), tf.float32)

    def check_shape(self, shape: Sequence[int]) -> None:
        """Raise ValueError if a table has another shape than the stored rows."""
        if tuple(shape) != self._shape:
            raise ValueError(
                f"{self} has rows of shape {self._shape}, and the table has {tuple(shape)}; give "
                "the layer the shape of the rows"
            )

    def get_config(self) -> dict[str, Any]:
        """Return the name of the file, or None for an array, and the shape of the rows."""
        return {"rows": self._path, "shape": list(self._shape)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> keras.initializers.Initializer:
        """Return the initializer; zeros and a logged warning if its rows are no longer there."""
        if config["rows"] is None:
            reason = f"an array of shape {tuple(config['shape'])} is not in a configuration"
        elif config["rows"] not in named_files:
            reason = "the file of a configuration is not opened"
        else:
            try:
                initializer = cls(config["rows"])
                initializer.check_shape(config["shape"])
                return initializer
            except ValueError as error:
                reason = str(error)
        logging.warning("initial rows are zeros until weights are loaded: %s", reason)
        return keras.initializers.Zeros()

    def _open(self) -> np.ndarray:
        """Return the array, or map the file; raise ValueError if it cannot be read."""
        if self._path is None:
            return self._array
        try:
            return np.lib.format.open_memmap(self._path, mode="r")
        except (OSError, ValueError, EOFError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ValueError(
                f"{self._path}: {reason}; give a file that numpy.save wrote"
            ) from error
