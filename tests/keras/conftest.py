"""What tests of Keras models share."""

import pathlib

import pytest

from app.keras.tables import table_kinds
from tests.keras.models import dtype_policy

# Keras reads its variables in a way that NumPy 2 warns of.
NUMPY = "ignore:__array__ implementation doesn't accept a copy"


def pytest_collection_modifyitems(items):
    for item in items:
        if pathlib.Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(NUMPY), append=False)


@pytest.fixture
def policy(request):
    """The policy of a test that names it by `indirect`."""
    with dtype_policy(request.param):
        yield request.param


@pytest.fixture
def far_host(monkeypatch):
    """Tables in host memory with `hot_rows` have a cache on a machine without a GPU, too."""
    monkeypatch.setattr(table_kinds, "host_is_near", lambda: False)
