"""What tests of Keras models share."""

from __future__ import annotations

import pytest

from app.keras.tables import table_kinds


@pytest.fixture
def far_host(monkeypatch):
    """Tables in host memory with `hot_rows` have a cache on a machine without a GPU, too."""
    monkeypatch.setattr(table_kinds, "host_is_near", lambda: False)
