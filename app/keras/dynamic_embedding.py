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

from ..tables.dynamic.dynamic import DynamicTable
from ..tables.dynamic.keys import KeyMap
from .backend import refuse_strategy, require_tensorflow
from .initial_values import by_id
from .stored_rows import StoreByPart
from .table_memory import memory_of_keys, require_room
from .table_variable import TableVariable

_KEY_MAP = "key_map."  # begins the names of the files of the key map in a weights file


@keras.saving.register_keras_serializable(package="lexrow")
class DynamicEmbedding(keras.layers.Layer):
    """Embedding layer for keys as they come: any int64, or any strings.

    A key gets a row when it is first trained, so no `StringLookup` or `Hashing` is needed before
    the layer. A key without a row reads as its initial row, which depends on the key alone.

    Example:
        inputs = keras.Input((), dtype="string")
        vectors = app.keras.DynamicEmbedding(64, "string", capacity=10_000_000)(inputs)

    Args:
        output_dim: The columns of a row, D.
        key_dtype: "int64" or "string".
        capacity: The most keys that have a row at the same time. If all rows are taken, one in 16
            is evicted: the keys seen the fewest times, then those not seen for longest.
        min_count: The number of steps that must train a key before it gets a row.
        max_age: A key that was not trained for this many steps is evicted; 0 for never.
        embeddings_initializer: The initial rows: "zeros", "ones", a constant, or "uniform".
        **kwargs: As for `keras.layers.Layer`.

    Raises:
        ValueError: A value is out of range, or Keras does not run on TensorFlow.
    """

    def __init__(
        self,
        output_dim: int,
        key_dtype: str = "int64",
        *,
        capacity: int = 1_000_000,
        min_count: int = 1,
        max_age: int = 0,
        embeddings_initializer: Any = "uniform",
        **kwargs: Any,
    ):
        require_tensorflow()
        super().__init__(**kwargs)
        if key_dtype not in ("int64", "string"):
            raise ValueError(f"{self.name}: key_dtype={key_dtype!r}; give 'int64' or 'string'")
        self.output_dim, self.key_dtype, self.capacity = output_dim, key_dtype, capacity
        self.min_count, self.max_age = min_count, max_age
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.supports_jit = False  # keys are looked up by Python, which XLA cannot compile
        self.autocast = False

    def build(self, input_shape: Any = None) -> None:
        """Create the table.

        Args:
            input_shape: Not used.

        Raises:
            ValueError: With all rows in use, the table needs more memory than is free.
        """
        refuse_strategy(self.name)
        require_room(memory_of_keys(self))
        self.key_map = KeyMap(self.capacity, self.key_dtype, self.min_count, self.max_age)
        self.key_map.remedy = f"{self.name}: give a greater capacity, or smaller batches"
        table = DynamicTable(self.key_map, self.output_dim, by_id(self.embeddings_initializer))
        self.embeddings = TableVariable(table, "embeddings")
        self._keys = _KeysInCheckpoint(self.key_map)
        self.built = True

    def call(self, inputs: Any) -> tf.Tensor | tf.RaggedTensor:
        """Return the rows of the given keys.

        Args:
            inputs: Keys of any shape, dense or ragged.

        Returns:
            The rows (..., output_dim) in the compute dtype, ragged for ragged keys.
        """
        return tf.ragged.map_flat_values(self._look_up, inputs)

    def compute_output_shape(self, input_shape: Any) -> tuple:
        """Return the shape of the rows of keys of this shape."""
        return (*input_shape, self.output_dim)

    def save_own_variables(self, store: Any) -> None:
        """Write the keys and their rows.

        Args:
            store: A store of arrays by name.
        """
        StoreByPart(store)["0"] = self.embeddings
        for name, data in _read_files(self.key_map).items():
            store[_KEY_MAP + name] = np.frombuffer(data, np.uint8)

    def load_own_variables(self, store: Any) -> None:
        """Read the keys and their rows.

        Args:
            store: A store of arrays by name.
        """
        files = {name: store[name] for name in list(store.keys()) if name.startswith(_KEY_MAP)}
        _load_files(
            self.key_map,
            {name.removeprefix(_KEY_MAP): np.asarray(a).tobytes() for name, a in files.items()},
        )
        self.embeddings.assign(StoreByPart(store)["0"])

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the layer."""
        initializer = keras.initializers.serialize(self.embeddings_initializer)
        if hasattr(self.embeddings_initializer, "seed"):
            # Keras leaves out a seed that it drew. Keys without a row would read other rows.
            initializer["config"]["seed"] = int(self.embeddings_initializer.seed)
        return super().get_config() | {
            "output_dim": self.output_dim,
            "key_dtype": self.key_dtype,
            "capacity": self.capacity,
            "min_count": self.min_count,
            "max_age": self.max_age,
            "embeddings_initializer": initializer,
        }

    def _look_up(self, keys: tf.Tensor) -> tf.Tensor:
        """Return the rows of dense keys in the compute dtype."""
        if self.key_dtype == "int64" and keys.dtype.is_integer:
            keys = tf.cast(keys, tf.int64)
        if keys.dtype != self.key_dtype:
            raise ValueError(
                f"{self.name}: the keys are {keys.dtype.name}, where the layer has "
                f"{self.key_dtype} keys; give these, or another key_dtype"
            )
        return tf.cast(self.embeddings.look_up(keys), self.compute_dtype)


class _KeysInCheckpoint(tf.train.experimental.PythonState):
    """The keys of a layer as a part of a `tf.train.Checkpoint`.

    Args:
        key_map: The keys.
    """

    def __init__(self, key_map: KeyMap):
        self._key_map = key_map

    def serialize(self) -> bytes:
        """Return the keys as bytes."""
        buffer = io.BytesIO()
        files = _read_files(self._key_map)
        np.savez(buffer, **{name: np.frombuffer(data, np.uint8) for name, data in files.items()})
        return buffer.getvalue()

    def deserialize(self, string_value: bytes) -> None:
        """Replace the keys by those that `serialize` returned."""
        with np.load(io.BytesIO(string_value)) as files:
            _load_files(self._key_map, {name: files[name].tobytes() for name in files})


def _read_files(key_map: KeyMap) -> dict[str, bytes]:
    """Return the content of the files that `KeyMap.save` writes, by name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "keys"
        key_map.save(path)
        return {file.name: file.read_bytes() for file in path.iterdir()}


def _load_files(key_map: KeyMap, files: Mapping[str, bytes]) -> None:
    """Replace the content of a key map by that of files that `_read_files` returned."""
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            (Path(folder) / name).write_bytes(data)
        key_map.load(Path(folder))
