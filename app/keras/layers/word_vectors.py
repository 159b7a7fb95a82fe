"""Word vectors of other programs, loaded by word into the table of a layer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from ...errors import UsageError
from ...system.files import check_path
from ...tables.base import Table
from ...tables.device import VariableRows
from ...text import vector_files
from ..tables.table_variable import TableVariable
from .embedding import RowEmbedding

_PART_BYTES = 16 << 20


def load_vectors(layer: RowEmbedding, path: str | Path, vocabulary: Sequence[str | bytes]) -> int:
    """Replace the rows of a layer by the vectors of their words in a file.

    The file is one of word2vec, fastText (.vec or .bin) or GloVe, text or binary. Text may be
    compressed. All but .bin is read row by row. Rows of words that the file lacks keep their
    values. The layer is built if it is not yet. Optimizer state does not change, so load vectors
    before the model is trained.

    Example:
        >>> vocabulary = ["", "[UNK]", "king", "lexrow"]  # as of TextVectorization.get_vocabulary()
        >>> layer = lexrow.keras.RowEmbedding(len(vocabulary), 3)
        >>> lexrow.keras.load_vectors(layer, "vectors.vec", vocabulary)  # those that it has
        1

    Args:
        layer: A `RowEmbedding` or `RowEmbeddingReduce`, with a table of any kind.
        path: The file. Of a repeated word the first vector is used.
        vocabulary: The word of each id, from 0; rows of further ids keep their values.

    Returns:
        The number of words that have a vector in the file.

    Raises:
        ValueError: The file cannot be read, or its vectors have another number of columns; the
            vocabulary is one text, has more words than the table has rows, or a word twice; or the
            layer is of another class. If the file is damaged, rows before the damage can be loaded
            already.
    """
    if not isinstance(layer, RowEmbedding):
        name = getattr(layer, "name", "layer")
        raise ValueError(f"{name} is a {type(layer).__name__}; give a RowEmbedding")
    ids = _ids_by_word(layer, vocabulary)
    if not layer.built:
        layer.build()
    variable = layer._embeddings
    table = variable.table if isinstance(variable, TableVariable) else VariableRows(variable.value)
    loaded_V = np.zeros(len(ids), bool)
    part: dict[int, bytes] = {}
    try:
        for word, row in vector_files.rows(check_path(path)):
            if len(row) != 4 * layer.output_dim:
                raise UsageError(
                    f"{path} has vectors of {len(row) // 4} numbers, where the rows have "
                    f"{layer.output_dim}; give the layer output_dim={len(row) // 4}"
                )
            position = ids.get(word)
            if position is None or loaded_V[position]:
                continue
            loaded_V[position] = True
            part[position] = row
            if len(part) * len(row) >= _PART_BYTES:
                _assign(table, part, layer.output_dim)
        _assign(table, part, layer.output_dim)
    except UsageError as error:
        raise ValueError(f"{layer.name}: {error}") from error
    return int(loaded_V.sum())


def _ids_by_word(layer: RowEmbedding, vocabulary: Sequence[str | bytes]) -> dict[str, int]:
    """Return the id of each word; raise ValueError if the vocabulary does not fit the layer."""
    if isinstance(vocabulary, (str, bytes)):
        raise ValueError(
            f"{layer.name}: vocabulary={vocabulary[:60]!r} is one text; give a list of words"
        )
    if len(vocabulary) > layer.input_dim:
        raise ValueError(
            f"{layer.name}: the vocabulary has {len(vocabulary):,} words, and the table "
            f"{layer.input_dim:,} rows; give the layer input_dim={len(vocabulary)} or more"
        )
    ids: dict[str, int] = {}
    for position, word in enumerate(vocabulary):
        text = word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word)
        if ids.setdefault(text, position) != position:
            raise ValueError(
                f"{layer.name}: the vocabulary has {text!r} as id {ids[text]} and as id "
                f"{position}; give each word once"
            )
    return ids


def _assign(table: Table | VariableRows, part: dict[int, bytes], columns: int) -> None:
    """Write the rows of a part to the table by their ids, and empty the part."""
    ids_U = tf.constant(list(part), tf.int64)
    numbers = np.frombuffer(b"".join(part.values()), "<f4")
    table.assign(ids_U, tf.constant(numbers.reshape(len(part), columns)))
    part.clear()
