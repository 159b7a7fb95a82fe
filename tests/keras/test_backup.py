"""`BackupAndRestore` resumes `fit` exactly with tables of any kind."""

from __future__ import annotations

import keras
import pytest

from app.keras import DynamicEmbedding
from tests.keras import table_models as models

slow = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("host", "sharded", "int64")]


class _Stop(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "string", *slow])
def test_a_stopped_fit_ends_as_if_it_had_never_stopped(kind, tmp_path):
    def make():
        if kind in models.KINDS:
            return models.make_model(models.make_layer(kind, tmp_path))
        layer = DynamicEmbedding(models.COLUMNS, kind, capacity=40, embeddings_initializer="zeros")
        return models.make_model(layer, dtype=kind)

    def fit(model, *callbacks):
        batches = models.data(models.strings() if kind == "string" else models.IDS)
        model.fit(batches, epochs=4, shuffle=False, verbose=0, callbacks=list(callbacks))
        return models.state(model)

    def backup():
        return keras.callbacks.BackupAndRestore(tmp_path / "backup")

    expected = fit(make())
    with pytest.raises(KeyboardInterrupt):
        fit(make(), backup(), _Stop())
    assert fit(make(), backup()) == expected
