"""The two models of the benchmark `keras`, with the embedding layers of any side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import numpy as np

from .keras_batches import DENSE, FEATURES
from .keras_job import TableSize

# Called with a table and the ids of its feature, (B,) or (B, L). Returns the vectors (B, D).
Embed = Callable[[TableSize, keras.KerasTensor], keras.KerasTensor]

_CODE = 32  # numbers of the codes that the models compare


class Built(NamedTuple):
    """A model.

    Attributes:
        model: The model, not compiled.
        vectors: A model of the same layers and inputs that returns the vectors of all tables.
        loss: The loss.
    """

    model: keras.Model
    vectors: keras.Model
    loss: keras.Loss


def two_tower(tables: Sequence[TableSize], embed: Embed) -> Built:
    """Return a recommender: the codes of users and items, compared within the batch.

    Each tower is an embedding and two dense layers. The score of a user and an item is the inner
    product of their codes; the loss is the softmax over the items of the batch, without a
    correction for frequent items.

    Args:
        tables: The table of users and the table of items.
        embed: The embedding layers of the side.
    """
    ids = _inputs(tables)
    vectors = _vectors(tables, ids, embed)
    users_BE, items_BE = (
        _dense(vector, (64, _CODE), table.name)
        for table, vector in zip(tables, vectors, strict=True)
    )
    scores_BB = keras.ops.matmul(users_BE, keras.ops.transpose(items_BE))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return Built(keras.Model(ids, scores_BB), keras.Model(ids, vectors), loss)


def dlrm(tables: Sequence[TableSize], embed: Embed) -> Built:
    """Return a ranking model like DLRM (Naumov et al. 2019): a logit from dense features and ids.

    The vectors of all tables are mapped to one size, as tables have different columns (Ginart et
    al. 2019). The inner products of each pair of them, and of each with the code of the dense
    features, are the input of the upper layers.

    Args:
        tables: The tables.
        embed: The embedding layers of the side.
    """
    dense = keras.Input((FEATURES,), name=DENSE)
    ids = _inputs(tables)
    vectors = _vectors(tables, ids, embed)
    code_BE = _dense(dense, (64, _CODE), DENSE)
    codes = [code_BE]
    for table, vector in zip(tables, vectors, strict=True):
        codes.append(_dense(vector, (_CODE,), table.name))
    codes_BFE = keras.ops.stack(codes, axis=1)
    products_BFF = keras.ops.matmul(codes_BFE, keras.ops.transpose(codes_BFE, (0, 2, 1)))
    first, second = np.triu_indices(len(codes), 1)
    products_BP = keras.ops.take(
        keras.ops.reshape(products_BFF, (-1, len(codes) ** 2)),
        (first * len(codes) + second).astype(np.int32),
        axis=1,
    )
    interactions = keras.ops.concatenate([code_BE, products_BP], axis=1)
    logits_B1 = _dense(interactions, (64, 32, 1), "top")
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    inputs = {DENSE: dense, **ids}
    return Built(
        keras.Model(inputs, keras.ops.squeeze(logits_B1, 1)), keras.Model(ids, vectors), loss
    )


MODELS: dict[str, Callable[[Sequence[TableSize], Embed], Built]] = {
    "two_tower": two_tower,
    "dlrm": dlrm,
}


def _inputs(tables: Sequence[TableSize]) -> dict[str, keras.KerasTensor]:
    """Return the inputs of all ids by the names of their tables."""
    return {
        table.name: keras.Input(
            () if table.ids == 1 else (table.ids,), dtype="int32", name=table.name
        )
        for table in tables
    }


def _vectors(
    tables: Sequence[TableSize], ids: dict[str, keras.KerasTensor], embed: Embed
) -> list[keras.KerasTensor]:
    return [embed(table, ids[table.name]) for table in tables]


def _dense(inputs: keras.KerasTensor, units: Sequence[int], name: str) -> keras.KerasTensor:
    """Return the output of the dense layers `name_0`, `name_1`, ..., with ReLU between them."""
    for number, width in enumerate(units):
        activation = "relu" if number < len(units) - 1 else None
        inputs = keras.layers.Dense(width, activation, name=f"{name}_{number}")(inputs)
    return inputs
