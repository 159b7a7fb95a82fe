"""The keys of a `DynamicEmbedding` in weights files and checkpoints."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ...tables.dynamic.key_files import STATE
from ...tables.dynamic.keys import KeyMap
from .weights_by_part import StoreByPart

_PREFIX = "key_map."  # begins the names of the files of the key map in a weights file


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
    names = [name for name in list(store.keys()) if name.startswith(_PREFIX)]
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
    files = {n.removeprefix(_PREFIX): np.asarray(store[n]).tobytes() for n in names}
    _load_files(layer, files)


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
        with np.load(io.BytesIO(string_value)) as files:
            _load_files(self._layer, {name: files[name].tobytes() for name in files})


def _read_files(key_map: KeyMap) -> dict[str, bytes]:
    """Return the content of the files that `KeyMap.save` writes, by name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "keys"
        key_map.save(path)
        return {file.name: file.read_bytes() for file in path.iterdir()}


def _load_files(layer: Any, files: Mapping[str, bytes]) -> None:
    """Replace the keys of a layer by those of files that `_read_files` returned.

    Raises ValueError if they are those of a layer with other arguments. Nothing is then loaded.
    """
    saved, keys = json.loads(files[STATE]), layer.key_map
    own = {"capacity": keys.capacity, "kind": keys.kind, "admits": keys.min_sightings > 1}
    if any(saved[name] != value for name, value in own.items()):
        raise ValueError(
            f"{layer.name}: the saved keys are those of a layer with capacity={saved['capacity']}, "
            f"key_dtype={saved['kind']!r} and min_count={'2 or more' if saved['admits'] else 1}; "
            "make the layer with these arguments"
        )
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            (Path(folder) / name).write_bytes(data)
        keys.load(Path(folder))
