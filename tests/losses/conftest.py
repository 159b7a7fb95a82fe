"""A fixture of all tests of losses."""

import pytest
import tensorflow as tf


@pytest.fixture(autouse=True)
def on_the_cpu():
    """Where float32 products are float32: a GPU may round them to TensorFloat-32."""
    with tf.device("CPU:0"):
        yield
