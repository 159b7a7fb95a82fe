"""Tables that are updated together."""

import numpy as np
import pytest
import tensorflow as tf

from app.tables.device import DeviceTable
from app.tables.joined import JoinedTable, stack


@pytest.mark.parametrize("jit", [True, False])
def test_ids_of_tables_in_one_variable_may_have_several_dtypes(jit):
    whole = DeviceTable(5, 1, tf.zeros)
    joined = JoinedTable(stack(whole, [3, 2]))

    @tf.function(jit_compile=jit, autograph=False)
    def update(*ids):
        joined.assign(ids, joined.gather(ids) + [[1.0], [2.0], [3.0]])

    ids = [tf.constant([2, tf.int32.max if jit else 0]), tf.constant([1], tf.int64)]
    update(*ids)  # XLA writes no row for the largest number of the dtype of the ids
    expected = [0 if jit else 2, 0, 1, 0, 3]
    np.testing.assert_array_equal(whole.values[:, 0], expected)
