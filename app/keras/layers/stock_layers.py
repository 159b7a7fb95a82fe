"""The way back: a model with layers of Keras alone."""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import Any

import keras
from keras import ops

# Layers that several models share stay shared, and a Lambda of the model itself is no foreign code.
from keras.src.saving.serialization_lib import ObjectSharingScope, SafeModeScope

from ..backend import is_ours
from .embedding_reduce import RowEmbeddingReduce

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

    Args:
        model: A sequential or functional model that is built.

    Raises:
        ValueError: The model is of another kind, or has another layer of this package, for which
            Keras has none; or a `RowEmbeddingReduce` has ragged or sparse ids, or ids with a mask
            of Keras.
    """
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
        _refuse(layer.name, type(layer).__mro__)
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
    """Return the serialized model that replaces a serialized `RowEmbeddingReduce`.

    Its inputs are the ids, then the weights and the mask if the layer was called with them.
    """
    calls = [_arguments(call) for call in node.get("inbound_nodes", ())]
    names = {tuple(call) for call in calls} or {("ids",)}
    if len(names) > 1:
        raise ValueError(
            f"{node['config']['name']}: called with weights or a mask and without; the layers of "
            "Keras that replace it need the same inputs in all calls"
        )
    shape = (node.get("build_config") or {}).get("input_shape")
    if calls:
        shape = calls[0]["ids"]["config"]["shape"]
    layer = RowEmbeddingReduce.from_config(node["config"])
    model = _reduce_model(layer, tuple(shape or (None, None)), *names)
    stock = keras.saving.serialize_keras_object(model)
    kept: dict[str, Any] = {
        name: node[name] for name in ("name", "shared_object_id") if name in node
    }
    if calls:
        inputs = [list(call.values()) for call in calls]
        kept["inbound_nodes"] = [
            {"args": [each if len(each) > 1 else each[0]], "kwargs": {}} for each in inputs
        ]
    return stock | kept


def _arguments(call: dict[str, Any]) -> dict[str, Any]:
    """Return the serialized ids, weights and mask of a call of a `RowEmbeddingReduce` by name."""
    names = {"inputs": "ids", "weights": "weights", "mask": "mask"}
    given = dict(zip(names.values(), call["args"], strict=False))
    given |= {names[name]: value for name, value in call["kwargs"].items() if name in names}
    return {name: given[name] for name in names.values() if given.get(name) is not None}


def _reduce_model(
    layer: RowEmbeddingReduce, shape: tuple[int | None, ...], names: tuple[str, ...]
) -> keras.Model:
    """Return a model of Keras alone that combines rows as a layer does.

    Args:
        shape: The shape of the ids, with the batch.
        names: The inputs, in this order: "ids", "weights", "mask".
    """
    dtypes = {"ids": "int64", "weights": "float32", "mask": "bool"}
    inputs = {name: keras.Input(batch_shape=shape, dtype=dtypes[name], name=name) for name in names}
    ids, weights, mask = (
        ops.expand_dims(each, -1) if each is not None and len(shape) == 1 else each
        for each in map(inputs.get, dtypes)
    )
    config = _embedding_config(layer.get_config())
    config |= {"name": "embeddings", "dtype": layer.variable_dtype, "mask_zero": False}
    rows = ops.cast(keras.layers.Embedding.from_config(config)(ids), "float32")
    counted = weights if weights is not None else ops.ones_like(ids, "float32")
    if mask is not None:
        counted = ops.where(mask, counted, 0.0)
    if layer.mask_zero:
        counted = ops.where(ops.equal(ids, 0), 0.0, counted)
    vectors = ops.sum(rows * ops.expand_dims(counted, -1), axis=-2)
    if layer.combiner != "sum":
        is_mean = layer.combiner == "mean"
        norm = ops.sum(counted if is_mean else ops.square(counted), axis=-1, keepdims=True)
        vectors = ops.divide_no_nan(vectors, norm if is_mean else ops.sqrt(norm))
    given = list(inputs.values())
    return keras.Model(
        given if len(given) > 1 else given[0],
        ops.cast(vectors, layer.compute_dtype),
        name=layer.name,
    )


def _check_ids(layer: RowEmbeddingReduce) -> None:
    """Raise ValueError if a layer is called in a way that its stock form has not."""
    for node in layer._inbound_nodes:
        ids = node.input_tensors[0]
        forms = [form for form in ("ragged", "sparse") if getattr(ids, form, False)]
        if forms or getattr(ids, "_keras_mask", None) is not None:
            what = f"{forms[0]} ids" if forms else "ids with a mask of the layer before"
            raise ValueError(
                f"{layer.name} has {what}, for which Keras has no layers; give it dense ids, and "
                "mask_zero=True or mask="
            )


def _refuse(name: str, classes: Iterable[type]) -> None:
    """Raise ValueError if a layer is of a class of this package, or derived from one."""
    for each in classes:
        if is_ours(each):
            raise ValueError(_no_layer(name, each.__name__))


def _no_layer(name: str, kind: str) -> str:
    return (
        f"{name}: Keras has no layer like {kind}; model.export writes a SavedModel that needs "
        "TensorFlow alone"
    )
