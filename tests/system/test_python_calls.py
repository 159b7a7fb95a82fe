from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from app.errors import DamagedError, RunError
from app.system.python_functions import call_python, table_errors


def calling(function):
    """A compiled function that calls another one with 3 ids."""
    call = tf.function(lambda ids_U: call_python(function, [ids_U], tf.int32), autograph=False)
    return lambda: call(tf.constant([3, 1, 2]))


def test_a_function_is_called_whenever_the_graph_runs():
    call = calling(lambda ids_U: np.sort(ids_U) * 2)
    for _ in range(2):
        assert call().numpy().tolist() == [2, 4, 6]


def test_an_error_of_a_table_keeps_its_type_and_text():
    def fail(ids_U):
        raise DamagedError("rows is damaged:\nput back a copy")

    call = calling(fail)
    for _ in range(2):
        with pytest.raises(DamagedError, match="^rows is damaged:\nput back a copy$"):
            with table_errors():
                call()


def test_other_errors_stay_as_they_are_also_after_an_error_of_a_table():
    def fail(ids_U):
        raise RunError("the table is full")

    def err(ids_U):
        raise RuntimeError("RunError: is a part of this text")

    with pytest.raises(tf.errors.UnknownError, match="the table is full"):
        calling(fail)()
    with pytest.raises(tf.errors.UnknownError, match="is a part of this"), table_errors():
        calling(err)()
    with pytest.raises(RunError, match="directly"), table_errors():
        raise RunError("directly")
