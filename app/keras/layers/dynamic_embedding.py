"""An embedding layer whose keys are any integers or strings, and whose rows are made as needed."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ...errors import RunError
from ...tables import arrays
from ...tables.dynamic.dynamic import DynamicTable
from ...tables.dynamic.key_index import LFU, LRU, MAX_COUNT
from ...tables.dynamic.keys import FILES, KeyMap, key_bytes
from ..backend import (
    check_xla,
    is_dtype_guessed,
    mirrors_workers,
    one_copy,
    require_tensorflow,
    with_seed_of_chief,
)
from ..saving import StoreByPart
from ..tables.initial_rows import by_id
from ..tables.table_memory import require_room
from ..tables.table_variable import HandleVariable, TableVariable

_CAPACITY = 1_000_000  # unless `capacity` or `max_bytes` is given
_MOST = 2**31 - 2  # rows of a key map
_FLOAT_BYTES = 4
# The least and the greatest value of the arguments that are integers.
_BOUNDS = {
    "output_dim": (1, 2**31 - 1),
    "min_count": (1, MAX_COUNT),
    "max_age": (0, 2**63 - 1),
    "capacity": (1, _MOST),
    "max_bytes": (1, 2**63 - 1),
}
_PREFIX = "key_map."  # begins the names of the files of the key map in a weights file


@keras.saving.register_keras_serializable(package="lexrow")
class DynamicEmbedding(keras.layers.Layer):
    """Embedding layer for keys as they come: any int64, or any strings.

    A key gets a row when it is first trained, so no `StringLookup` or `Hashing` is needed before
    the layer. A key without a row reads as its initial row, which depends on the key alone.

    Example:
        >>> inputs = keras.Input((), dtype="string")
        >>> layer = lexrow.keras.DynamicEmbedding(64, "string", capacity=10_000_000)
        >>> vectors = layer(inputs)

    `fit` takes strings from a dataset or a `tf.constant`, not from NumPy. Split texts in the
    dataset, to a fixed number of words, and mask their padding where the vectors are used.

    Example:
        >>> texts = tf.constant(["a good film", "bad"])
        >>> words = tf.strings.split(texts).to_tensor("", shape=(None, 16))
        >>> inputs = keras.Input((16,), dtype="string")
        >>> vectors = lexrow.keras.DynamicEmbedding(8, "string")(inputs)
        >>> mask = keras.ops.not_equal(inputs, "")
        >>> model = keras.Model(inputs, keras.layers.LSTM(4)(vectors, mask=mask))
        >>> model(words).shape
        TensorShape([2, 4])

    Args:
        output_dim: The columns of a row, D.
        key_dtype: "int64" or "string".
        capacity: The most keys that have a row at the same time, by default 1,000,000. If all rows
            are taken, one in 16 is evicted.
        max_bytes: The most memory of the rows and of the map of their keys, in place of
            `capacity`, or as a further limit. A string counts as 12 bytes. The state of an
            optimizer is not counted, as the layer does not know it: Adagrad stores as much as the
            rows take, and `LazyAdam` twice as much.
        eviction: The rule of eviction: "lfu" for the keys trained in the fewest steps, of these the
            keys not trained for longest; "lru" for the keys not trained for longest, of these the
            keys trained in the fewest steps.
        min_count: The number of steps that must train a key before it gets a row.
        max_age: A key that was not trained for this many steps is evicted; 0 for never.
        embeddings_initializer: The initial rows: "zeros", "ones", a constant, or "uniform".

    Raises:
        ValueError: A value is out of range, or Keras does not run on TensorFlow.
    """

    def __init__(
        self,
        output_dim: int,
        key_dtype: str = "int64",
        *,
        capacity: int | None = None,
        max_bytes: int | None = None,
        eviction: str = LFU,
        min_count: int = 1,
        max_age: int = 0,
        embeddings_initializer: Any = "uniform",
        **kwargs: Any,
    ):
        require_tensorflow()
        super().__init__(**kwargs)
        if key_dtype not in ("int64", "string"):
            raise ValueError(
                f"{self.name}: key_dtype={key_dtype!r}; give 'int64' or 'string'; the argument "
                "before it is the number of columns, and that of rows is capacity="
            )
        if eviction not in (LFU, LRU):
            raise ValueError(f"{self.name}: eviction={eviction!r}; give {LFU!r} or {LRU!r}")
        self.output_dim, self.key_dtype = output_dim, key_dtype
        self.min_count, self.max_age, self.eviction = min_count, max_age, eviction
        self.max_bytes, self.capacity = max_bytes, capacity
        for name, (least, greatest) in _BOUNDS.items():
            value = getattr(self, name)
            if value is None and name in ("capacity", "max_bytes"):
                continue
            is_integer = isinstance(value, int) and not isinstance(value, bool)
            if not is_integer or not least <= value <= greatest:
                raise ValueError(
                    f"{self.name}: {name}={value!r}; give an integer from {least:,} to {greatest:,}"
                )
        self.capacity = self._count_rows(capacity, max_bytes)
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        by_id(self.embeddings_initializer, self.name)  # raises ValueError if it cannot be
        self.supports_jit = False  # keys are looked up by Python, which XLA cannot compile
        self.autocast = False

    def build(self, input_shape: Any = None) -> None:
        """Create the table and its key map.

        Raises:
            ValueError: With all rows in use, the table needs more memory than is free, or a
                strategy of tf.distribute is in use whose replicas do not train in step, or are in
                several processes, which cannot exchange strings.
        """
        if self.key_dtype == "string" and mirrors_workers():
            raise ValueError(
                f"{self.name}: MultiWorkerMirroredStrategy cannot exchange keys that are strings; "
                "give key_dtype='int64', and keys by tf.strings.to_hash_bucket_fast(keys, 2**62)"
            )
        require_room(self)
        self.key_map = KeyMap(
            self.capacity, self.key_dtype, self.min_count, self.max_age, eviction=self.eviction
        )
        self.key_map.remedy = f"{self.name}: give a greater capacity, or smaller batches"
        self.embeddings_initializer = with_seed_of_chief(self.embeddings_initializer)
        with one_copy(self.name):
            initial = by_id(self.embeddings_initializer, self.name)
            table = DynamicTable(self.key_map, self.output_dim, initial)
        self.embeddings = TableVariable(table, "embeddings")
        self.embeddings.trainable = self.trainable  # as `add_weight` does
        self._keys = KeysInCheckpoint(self)
        # Keras and TensorFlow save only variables that they see, and the keys have files already.
        self._keys.variable = KeysOfRows(self)
        self.built = True

    @property
    def weights(self) -> list[keras.Variable]:
        """The hashes of the keys, int64, and their rows, in the order of `get_weights`."""
        return [self._keys.variable, *super().weights] if self.built else []

    def call(self, inputs: Any) -> tf.Tensor | tf.RaggedTensor:
        """Return the rows of the given keys.

        Args:
            inputs: Keys of any shape, dense or ragged.

        Returns:
            The rows (..., output_dim) in the compute dtype, ragged for ragged keys.

        Raises:
            ValueError: The keys are of another dtype than those of the layer, or sparse.
        """
        if isinstance(inputs, tf.SparseTensor):
            raise ValueError(
                f"{self.name}: the keys are a sparse tensor; give ragged keys, or dense ones by "
                "tf.sparse.to_dense with a key that stands for no value"
            )
        return tf.ragged.map_flat_values(self._look_up, inputs)

    def compute_output_shape(self, input_shape: Any) -> tuple:
        """Return the shape of the rows of keys of this shape: one more axis, `output_dim`."""
        return (*input_shape, self.output_dim)

    def compute_output_spec(self, inputs: Any) -> keras.KerasTensor:
        """Return the shape and dtype of the result of `call`, as a symbolic tensor."""
        self._check_dtype(tf.as_dtype(inputs.dtype))
        return super().compute_output_spec(inputs)

    def save_own_variables(self, store: Any) -> None:
        """Write the keys and their rows."""
        if not self.built:
            return
        StoreByPart(store)["0"] = self.embeddings
        for name, data in _read_files(self.key_map).items():
            store[_PREFIX + name] = data

    def load_own_variables(self, store: Any) -> None:
        """Replace the keys and their rows by those of a store.

        Raises:
            ValueError: They are those of another kind of layer, or of one with other arguments.
                Nothing is loaded.
        """
        if not self.built:  # a copy of a layer that was not built has nothing to load
            if not list(store.keys()):
                return
            self.build()
        names = [name for name in FILES if _PREFIX + name in store.keys()]  # noqa: SIM118
        if not names:
            raise ValueError(
                f"{self.name}: the weights have no keys, so they are not those of a "
                "DynamicEmbedding; load them into a layer of the kind that was saved"
            )
        rows = StoreByPart(store)["0"]
        if (columns := rows.shape[1]) != self.output_dim:
            raise ValueError(
                f"{self.name}: the saved rows have {columns} columns, where the layer has "
                f"{self.output_dim}; make the layer with output_dim={columns}"
            )
        _load_files(self, {name: np.asarray(store[_PREFIX + name]) for name in names})
        self.embeddings.assign(rows)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the layer."""
        initializer = keras.initializers.serialize(self.embeddings_initializer)
        if hasattr(self.embeddings_initializer, "seed"):
            # Keras leaves out a seed that it drew. Keys without a row would read other rows.
            initializer["config"]["seed"] = int(self.embeddings_initializer.seed)
        return super().get_config() | {
            **{name: getattr(self, name) for name in ("key_dtype", "eviction", *_BOUNDS)},
            "embeddings_initializer": initializer,
        }

    def _count_rows(self, capacity: int | None, max_bytes: int | None) -> int:
        """Return the number of rows that both limits allow.

        Raises ValueError if `max_bytes` is not enough for one row.
        """
        if max_bytes is None:
            return _CAPACITY if capacity is None else capacity
        row_bytes = self.output_dim * _FLOAT_BYTES + key_bytes(self.key_dtype, self.min_count)
        if max_bytes < row_bytes:
            raise ValueError(
                f"{self.name}: max_bytes={max_bytes}, and a row with its key takes {row_bytes} "
                "bytes; give more"
            )
        return int(min(max_bytes // row_bytes, _MOST if capacity is None else capacity))

    def _look_up(self, keys: tf.Tensor) -> tf.Tensor:
        """Return the rows of dense keys in the compute dtype; integers are cast to int64.

        Raises ValueError for keys of another dtype than `key_dtype`.
        """
        self._check_dtype(keys.dtype)
        check_xla(self)
        if self.key_dtype == "int64":
            keys = tf.cast(keys, tf.int64)
        elif keys.dtype != tf.string:  # guessed by Keras
            keys = tf.strings.as_string(keys)
        return tf.cast(self.embeddings.look_up(keys), self.compute_dtype)

    def _check_dtype(self, dtype: tf.DType) -> None:
        """Raise ValueError if keys of this dtype are not those of the layer.

        Any dtype passes where Keras guessed it: to build a model, and to find its variables.
        """
        fits = dtype.is_integer if self.key_dtype == "int64" else dtype == tf.string
        if not fits and not is_dtype_guessed():
            raise ValueError(
                f"{self.name}: the keys are {dtype.name}, where the layer has {self.key_dtype} "
                "keys; give these, or another key_dtype; a Sequential model needs "
                f"keras.Input(..., dtype={self.key_dtype!r}) before the layer"
            )


class KeysOfRows(HandleVariable):
    """The hashes of the keys of all rows, (V,) int64, as a weight beside the rows.

    `get_weights` has them, and `set_weights` gives rows to no other keys: copies of the weights, in
    whatever way they are made, keep them.
    """

    def __init__(self, layer: Any):
        super().__init__((0,), "int64", trainable=False, name="keys")
        self._layer = layer

    @property
    def shape(self) -> tf.TensorShape:
        """The shape (V,); V is the number of rows that were ever in use."""
        return tf.TensorShape((self._layer.key_map.used,))

    def numpy(self) -> np.ndarray:
        """Return the hashes, (V,) int64; of int64 keys these are the keys."""
        return self._layer.key_map.hashes_V[: self._layer.key_map.used].copy()

    def assign(self, value: Any) -> None:
        """Check that keys are those of the layer, which stay as they are.

        Args:
            value: An array (V,) that `numpy` returned, or a copy of one.
        """
        value = np.asarray(value)
        if value.dtype != np.int64 or not np.array_equal(value, self.numpy()):
            raise ValueError(
                f"{self._layer.name}: these rows belong to other keys than the layer has now; save "
                "the model or its weights, which have the keys, and load them: ModelCheckpoint, "
                "for example, instead of EarlyStopping(restore_best_weights=True)"
            )


class KeysInCheckpoint(tf.train.experimental.PythonState):
    """The keys of a layer as a part of a `tf.train.Checkpoint`."""

    def __init__(self, layer: Any):
        self._layer = layer

    def serialize(self) -> bytes:
        """Return the keys as bytes."""
        buffer = io.BytesIO()
        np.savez(buffer, **_read_files(self._layer.key_map))
        return buffer.getvalue()

    def deserialize(self, string_value: bytes) -> None:
        """Replace the keys by those that `serialize` returned; see `_load_files`."""
        try:
            files = arrays.parse_npz(string_value, FILES)
        except ValueError as error:
            raise ValueError(
                f"{self._layer.name}: the keys in the checkpoint are damaged: {error}; give a "
                "checkpoint of this model"
            ) from error
        _load_files(self._layer, files)


def _read_files(key_map: KeyMap) -> dict[str, np.ndarray]:
    """Return the bytes of the files that `KeyMap.save` writes, uint8, by name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "keys"
        key_map.save(path)
        return {file.name: np.fromfile(file, np.uint8) for file in path.iterdir()}


def _load_files(layer: Any, files: Mapping[str, np.ndarray]) -> None:
    """Replace the keys of a layer by those of files that `_read_files` returned.

    The names are those of `FILES`, so that no file is written outside of a folder for them.

    Raises ValueError if they are damaged, or those of a layer with other arguments. Nothing is then
    loaded.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            (Path(folder) / name).write_bytes(data.tobytes())
        try:
            layer.key_map.load(Path(folder))
        except RunError as error:
            reason = str(error).replace(f"{folder}/", "").partition(";")[0]
            raise ValueError(
                f"{layer.name}: the saved keys cannot be read: {reason}; make the layer with the "
                "arguments of the saved one, or load a file of this model"
            ) from error
