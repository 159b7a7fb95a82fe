"""`to_keras` gives a model of Keras alone, with the same answers."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from app.keras import DynamicEmbedding, to_keras
from tests.keras import table_models as models

# Keras writes its variables to files in a way that NumPy 2 warns of.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options"),
    [*((kind, {}) for kind in ["device", *models.KINDS]), ("host", {"hot_rows": 4})],
)
def test_the_copy_has_stock_layers_and_the_same_answers(kind, options, tmp_path):
    model = models.make_model(models.make_layer(kind, tmp_path, **options))
    copy = to_keras(model)
    assert type(copy.layers[0]) is keras.layers.Embedding
    assert copy.layers[0].name == model.layers[0].name
    np.testing.assert_array_equal(copy(models.IDS), model(models.IDS))
    copy.layers[0].set_weights([0 * models.WEIGHTS])
    np.testing.assert_array_equal(model.layers[0].get_weights()[0], models.WEIGHTS)
    copy.compile("adam", "mse")
    models.fit(copy)


def test_what_cannot_be_replaced(tmp_path):
    class Own(keras.Model):
        pass

    with pytest.raises(ValueError, match="is a Own, whose layers cannot be replaced"):
        to_keras(Own())
    model = models.make_model(DynamicEmbedding(models.COLUMNS, capacity=5))
    with pytest.raises(ValueError, match="Keras has no layer like DynamicEmbedding; model.export"):
        to_keras(model)
