"""The keys of a `DynamicEmbedding` in its weights, in weights files and in checkpoints."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ...errors import RunError
from ...system.checked_files import read_json
from ...tables import arrays
from ...tables.dynamic.key_files import FILES, SHAPE, STATE
from ...tables.dynamic.keys import KeyMap
from ..tables.table_variable import HandleVariable
from .weights_by_part import StoreByPart

_PREFIX = "key_map."  # begins the names of the files of the key map in a weights file


class KeysOfRows(HandleVariable):
    """The hashes of the keys of all rows, (V,) int64, as a weight beside the rows.

    `get_weights` has them, and `set_weights` gives rows to no other keys: copies of the weights, in
    whatever way they are made, keep them.

    Args:
        layer: The `DynamicEmbedding`.
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

    def sample(self) -> np.ndarray:
        """Return the hashes."""
        return self.numpy()

    def assign(self, value: Any) -> None:
        """Check that keys are those of the layer, which stay as they are.

        Args:
            value: An array (V,) that `numpy` returned, or a copy of one.

        Raises:
            ValueError: They are other keys.
        """
        value = np.asarray(value)
        if value.dtype != np.int64 or not np.array_equal(value, self.numpy()):
            raise ValueError(
                f"{self._layer.name}: these rows belong to other keys than the layer has now; save "
                "the model or its weights, which have the keys, and load them: ModelCheckpoint, "
                "for example, instead of EarlyStopping(restore_best_weights=True)"
            )


def write_keys(store: Any, key_map: KeyMap) -> None:
    """Write keys to a weights file.

    Args:
        store: A store of arrays by name.
        key_map: The keys.
    """
    for name, data in _read_files(key_map).items():
        store[_PREFIX + name] = np.frombuffer(data, np.uint8)


def read_keys(store: Any, layer: Any) -> None:
    """Replace the keys of a layer by those of a weights file.

    Args:
        store: A store of arrays by name.
        layer: The `DynamicEmbedding`.

    Raises:
        ValueError: They are those of another kind of layer, or of one with other arguments.
            Nothing is loaded.
    """
    names = [name for name in FILES if _PREFIX + name in store.keys()]  # noqa: SIM118
    if not names:
        raise ValueError(
            f"{layer.name}: the weights have no keys, so they are not those of a "
            "DynamicEmbedding; load them into a layer of the kind that was saved"
        )
    if (columns := StoreByPart(store)["0"].shape[1]) != layer.output_dim:
        raise ValueError(
            f"{layer.name}: the saved rows have {columns} columns, where the layer has "
            f"{layer.output_dim}; make the layer with output_dim={columns}"
        )
    _load_files(layer, {name: np.asarray(store[_PREFIX + name]).tobytes() for name in names})


class KeysInCheckpoint(tf.train.experimental.PythonState):
    """The keys of a layer as a part of a `tf.train.Checkpoint`.

    Args:
        layer: The `DynamicEmbedding`.
    """

    def __init__(self, layer: Any):
        self._layer = layer

    def serialize(self) -> bytes:
        """Return the keys as bytes."""
        buffer = io.BytesIO()
        files = _read_files(self._layer.key_map)
        np.savez(buffer, **{name: np.frombuffer(data, np.uint8) for name, data in files.items()})
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
        _load_files(self._layer, {name: part.tobytes() for name, part in files.items()})


def _read_files(key_map: KeyMap) -> dict[str, bytes]:
    """Return the content of the files that `KeyMap.save` writes, by name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "keys"
        key_map.save(path)
        return {file.name: file.read_bytes() for file in path.iterdir()}


def _load_files(layer: Any, files: Mapping[str, bytes]) -> None:
    """Replace the keys of a layer by those of files that `_read_files` returned.

    The names are those of `FILES`, so that no file is written outside of a folder for them.

    Raises ValueError if they are damaged, or those of a layer with other arguments. Nothing is then
    loaded.
    """
    keys = layer.key_map
    own = {"capacity": keys.capacity, "kind": keys.kind, "admits": keys.min_sightings > 1}
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            (Path(folder) / name).write_bytes(data)
        try:
            saved = read_json(Path(folder) / STATE, SHAPE)
            if all(saved[name] == value for name, value in own.items()):
                keys.load(Path(folder))
                return
        except RunError as error:
            reason = str(error).replace(f"{folder}/", "").partition(";")[0]
            raise ValueError(
                f"{layer.name}: the saved keys cannot be read: {reason}; load a file of this model"
            ) from error
    raise ValueError(
        f"{layer.name}: the saved keys are those of a layer with capacity={saved['capacity']}, "
        f"key_dtype={saved['kind']!r} and min_count={'2 or more' if saved['admits'] else 1}; "
        "make the layer with these arguments"
    )
