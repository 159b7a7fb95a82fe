"""The way back: a model with layers of Keras alone."""

from __future__ import annotations

from typing import Any

import keras

from ... import __name__ as PACKAGE
from .embedding import RowEmbedding


def to_keras(model: keras.Model) -> keras.Model:
    """Return a copy of a model in which layers of Keras replace each `RowEmbedding`.

    The copy has the same weights. Its file, its weights file and its SavedModel open where this
    package is not installed. It is not compiled.

    Args:
        model: A sequential or functional model that is built.

    Raises:
        ValueError: The model is of another kind, or has another layer of this package, for which
            Keras has none.
    """
    if not isinstance(model, keras.Sequential | keras.src.models.functional.Functional):
        raise ValueError(
            f"{model.name} is a {type(model).__name__}, whose layers cannot be replaced; make it "
            "with keras.layers.Embedding, and give that set_weights(layer.get_weights())"
        )
    copy = keras.models.clone_model(model, clone_function=_stock_layer)
    copy.set_weights(model.get_weights())
    return copy


def _stock_layer(layer: keras.layers.Layer) -> keras.layers.Layer:
    """Return a new layer with the arguments of a layer, without its weights.

    It is of the same class, but for a `RowEmbedding` it is a `keras.layers.Embedding`. Raises
    ValueError for any other layer of this package.
    """
    if type(layer) is RowEmbedding:
        config: dict[str, Any] = layer.get_config()
        for name in ("table", "table_file", "table_id", "hot_rows"):
            config.pop(name, None)
        return keras.layers.Embedding.from_config(config)
    if type(layer).__module__.startswith(f"{PACKAGE}."):
        raise ValueError(
            f"{layer.name}: Keras has no layer like {type(layer).__name__}; model.export writes a "
            "SavedModel that needs TensorFlow alone"
        )
    return layer.__class__.from_config(layer.get_config())
