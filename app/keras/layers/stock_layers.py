"""The way back: a model with layers of Keras alone."""

from __future__ import annotations

import collections
from typing import Any

import keras
from keras import ops

# Layers that several models share stay shared, and a Lambda of the model itself is no foreign code.
from keras.src.saving.serialization_lib import ObjectSharingScope, SafeModeScope

from ..backend import is_ours, require_model
from .embedding_reduce import RowEmbeddingReduce, form_of

_OURS = "lexrow>"  # begins the registered names of this package
_ROW, _REDUCE, _STORED = (
    f"{_OURS}{n}" for n in ("RowEmbedding", "RowEmbeddingReduce", "StoredRows")
)


def to_keras(model: keras.Model) -> keras.Model:
    """Return a copy of a model in which layers of Keras replace those of this package.

    A `RowEmbedding` becomes a `keras.layers.Embedding`. A `RowEmbeddingReduce` becomes a model of
    an embedding and of operations of Keras, which has a tensor with a row for each id. They are
    replaced in models inside the model and in layers around layers, such as `TimeDistributed`, too.

    The copy has the same weights. Its file, its weights file and its SavedModel open where this
    package is not installed. It is not compiled.

    Example:
        >>> [type(layer).__name__ for layer in lexrow.keras.to_keras(model).layers]
        ['Embedding', 'Flatten', 'Dense']

    Args:
        model: A sequential or functional model that is built.

    Raises:
        ValueError: The model is of another kind, or has another layer of this package, for which
            Keras has none; or a `RowEmbeddingReduce` has ragged or sparse ids, weights, or a mask
            of Keras.
    """
    require_model(model)
    if not isinstance(model, keras.Sequential | keras.src.models.functional.Functional):
        raise ValueError(
            f"{model.name} is a {type(model).__name__}, whose layers cannot be replaced; make it "
            "with keras.layers.Embedding, and give that set_weights(layer.get_weights())"
        )
    layers = model._flatten_layers()
    for layer in layers:
        if isinstance(layer, RowEmbeddingReduce):
            _check_ids(layer)
    own = {keras.saving.get_registered_name(type(layer)): type(layer) for layer in layers}
    names = collections.Counter(layer.name for layer in layers)
    config = _stock(model.get_config(), {name for name in names if names[name] == 1})
    with ObjectSharingScope(), SafeModeScope(False), keras.saving.custom_object_scope(own):
        copy = type(model).from_config(config)
    for layer in copy._flatten_layers():
        for kind in filter(is_ours, type(layer).__mro__):
            raise ValueError(_no_layer(layer.name, kind.__name__))
    for copied, weight in zip(copy.weights, model.weights, strict=True):
        copied.assign(weight.numpy())
    return copy


def _stock(node: Any, layers: set[str]) -> Any:
    """Return a part of a configuration with layers of Keras in place of those of this package.

    Raises ValueError for a layer that Keras has not.

    Args:
        layers: The names that only one layer has: where its configuration occurs twice, the layer
            is shared.
    """
    if isinstance(node, list | tuple):
        return type(node)(_stock(each, layers) for each in node)
    if not isinstance(node, dict):
        return node
    node = {key: _stock(value, layers) for key, value in node.items()}
    if isinstance(node.get("config"), dict) and node["config"].get("name") in layers:
        node["shared_object_id"] = node["config"]["name"]
    name = str(node.get("registered_name"))
    if name == _STORED:  # the rows follow as weights
        return keras.saving.serialize_keras_object(keras.initializers.Zeros())
    if name == _ROW:
        stock = {"module": "keras.layers", "class_name": "Embedding", "registered_name": None}
        return node | stock | {"config": _embedding_config(node["config"])}
    if name == _REDUCE:
        return _stock_reduce(node)
    if name.startswith(_OURS):
        layer = node["config"].get("name", "the model")
        raise ValueError(_no_layer(layer, node["class_name"]))
    return node


def _embedding_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of a `keras.layers.Embedding` for that of a `RowEmbedding`."""
    own = ("table", "table_file", "hot_rows", "combiner")
    return {name: value for name, value in config.items() if name not in own}


def _stock_reduce(node: dict[str, Any]) -> dict[str, Any]:
    """Return the serialized model that replaces a serialized `RowEmbeddingReduce`."""
    layer = RowEmbeddingReduce.from_config(node["config"])
    shape = (node.get("build_config") or {}).get("input_shape")
    calls = node.get("inbound_nodes", ())
    given = [(call["args"] or list(call["kwargs"].values()))[0] for call in calls]
    for ids in given:
        shape = ids["config"]["shape"]
    stock = keras.saving.serialize_keras_object(_reduce_model(layer, tuple(shape or (None, None))))
    kept: dict[str, Any] = {n: node[n] for n in ("name", "shared_object_id") if n in node}
    if given:
        kept["inbound_nodes"] = [{"args": [ids], "kwargs": {}} for ids in given]
    return stock | kept


def _reduce_model(layer: RowEmbeddingReduce, shape: tuple[int | None, ...]) -> keras.Model:
    """Return a model of Keras alone that combines rows as a layer does.

    Args:
        shape: The shape of the ids, with the batch.
    """
    inputs = keras.Input(batch_shape=shape, dtype="int64", name="ids")
    ids = ops.expand_dims(inputs, -1) if len(shape) == 1 else inputs
    config = _embedding_config(layer.get_config())
    config |= {"name": "embeddings", "dtype": layer.variable_dtype, "mask_zero": False}
    rows = ops.cast(keras.layers.Embedding.from_config(config)(ids), "float32")
    counted = ops.ones_like(ids, "float32")
    if layer.mask_zero:
        counted = ops.where(ops.equal(ids, 0), 0.0, counted)
    vectors = ops.sum(rows * ops.expand_dims(counted, -1), axis=-2)
    if layer.combiner != "sum":  # a weight of 1 equals its square
        norm = ops.sum(counted, axis=-1, keepdims=True)
        norm = norm if layer.combiner == "mean" else ops.sqrt(norm)
        vectors = ops.divide_no_nan(vectors, norm)
    return keras.Model(inputs, ops.cast(vectors, layer.compute_dtype), name=layer.name)


def _check_ids(layer: RowEmbeddingReduce) -> None:
    """Raise ValueError if a layer is called in a way that its stock form has not."""
    for node in layer._inbound_nodes:
        ids = node.input_tensors[0]
        forms = [] if form_of(ids) == "dense" else [f"{form_of(ids)} ids"]
        if getattr(ids, "_keras_mask", None) is not None:
            forms.append("ids with a mask of the layer before")
        if len(node.input_tensors) > 1:
            forms.append("weights or a mask")
        if forms:
            raise ValueError(
                f"{layer.name} has {forms[0]}, for which Keras has no layers; give it dense ids "
                "alone, and mask_zero=True"
            )


def _no_layer(name: str, kind: str) -> str:
    return (
        f"{name}: Keras has no layer like {kind}; model.export writes a SavedModel that needs "
        "TensorFlow alone"
    )
