"""Changes of rows that are merged and packed, beside numpy."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from app.distributed import row_changes
from app.distributed.row_changes import Block, Changes

LAYOUT = [
    Block("", 5, "", False),
    Block("sum", 1, "sum", False),
    Block("mean", 5, "mean", False),
    Block("largest", 1, "largest", False),
]
HALF = [block._replace(is_half=block.width > 1) for block in LAYOUT]


def changes(ids, seed):
    """Random changes of some rows."""
    draw = np.random.default_rng(seed)
    values = [draw.normal(size=(len(ids), b.width)).astype(np.float32) for b in LAYOUT]
    return Changes(tf.constant(ids, tf.int32), [tf.constant(v) for v in values])


def by_id(part, block):
    """The change of each id."""
    return dict(zip(part.ids_U.numpy().tolist(), part.values[block].numpy(), strict=True))


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_slots_merge_as_they_say(count):
    parts = [changes(ids, seed) for seed, ids in enumerate([[4, 2, 9], [2], [], [9, 2, 5]])][:count]
    merged = row_changes.merge(parts, LAYOUT, tf.constant(4))
    assert sorted(merged.ids_U.numpy()) == sorted({i for p in parts for i in p.ids_U.numpy()})
    for block, make in ((1, np.sum), (2, np.mean), (3, np.max)):
        known = [by_id(part, block) for part in parts]
        for row, change in by_id(merged, block).items():
            expected = make([of_part[row] for of_part in known if row in of_part], axis=0)
            np.testing.assert_allclose(change, expected, rtol=1e-6)


def test_a_replica_that_only_looked_a_row_up_does_not_count():
    one = changes([3], 1)
    idle = Changes(one.ids_U, [tf.zeros_like(values) for values in one.values])
    merged = row_changes.merge([one, idle], LAYOUT, tf.constant(4))
    np.testing.assert_array_equal(merged.values[0], one.values[0])
    np.testing.assert_array_equal(merged.values[2], one.values[2])


@pytest.mark.parametrize("layout", [LAYOUT, HALF])
def test_what_is_packed_is_unpacked(layout):
    sent = {"one": changes([7, 3, 2**31 - 1], 1), "none": changes([], 2), "two": changes([0], 3)}
    layouts = dict.fromkeys(sent, layout)
    size = row_changes.packed_size({n: part.ids_U for n, part in sent.items()}, layouts)
    assert size == 3 + 4 * (1 + (8 if layout is HALF else 12))
    vector = row_changes.pack(sent, layouts, size + 2)
    assert vector.shape == [size + 2]
    back = row_changes.unpack(tf.concat([tf.zeros([4]), vector], axis=0), 4, layouts)
    assert list(back) == list(sent)
    for name, part in sent.items():
        np.testing.assert_array_equal(back[name].ids_U, part.ids_U)
        for block, before, after in zip(layout, part.values, back[name].values, strict=True):
            if block.is_half:
                before = tf.cast(tf.cast(before, tf.bfloat16), tf.float32)
            np.testing.assert_array_equal(after, before)
