from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from app.checkpoints import variables_file
from app.checkpoints.variables_file import Variables, crc32c
from app.errors import DamagedError

PREFIX = variables_file.PREFIX


def crc32c_by_bits(data: bytes) -> int:
    """RFC 3720, appendix B.4, bit by bit."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


@pytest.mark.parametrize("size", [0, 1, 4, 7, 4 * (1 << 14), 4 * (1 << 14) + 5, 150_001])
def test_checksums_are_those_bit_by_bit_also_in_parts(size):
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    expected = crc32c_by_bits(data.tobytes())
    assert crc32c(data) == expected
    assert crc32c(data[size // 3 :], crc32c(data[: size // 3])) == expected


def save(folder, variables):
    folder.mkdir(exist_ok=True)
    tf.train.Checkpoint(**variables).write(str(folder / PREFIX))
    return [key for key in Variables(folder).shapes if key.startswith("rows/")]


@pytest.mark.parametrize("dtype", [tf.float32, tf.float16, tf.bfloat16])
def test_rows_are_those_that_tensorflow_saved(tmp_path, monkeypatch, dtype):
    monkeypatch.setattr(variables_file, "_PART_BYTES", 1000)
    rows = tf.Variable(tf.cast(tf.random.normal((333, 7), seed=1), dtype))
    others = {f"v{n}": tf.Variable(n) for n in range(300)}  # an index of several blocks
    (key,) = save(tmp_path, {"rows": rows, **others})
    variables = Variables(tmp_path)
    assert variables.shapes[key] == (333, 7) and variables.dtypes[key] == dtype.name
    assert len(variables.shapes) == 302
    starts, parts = zip(*variables.parts(key), strict=True)
    assert len(parts) > 2 and [*np.cumsum([0, *map(len, parts)])[:-1]] == [*starts]
    np.testing.assert_array_equal(np.concatenate(parts), tf.cast(rows, tf.float32).numpy())
    variables.check()


@pytest.mark.parametrize("place", range(0, 333 * 7 * 4, 997))
def test_a_bit_that_flipped_is_found(tmp_path, place):
    (key,) = save(tmp_path, {"rows": tf.Variable(tf.random.normal((333, 7)))})
    path = next(tmp_path.glob(f"{PREFIX}.data-*"))
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)
    with pytest.raises(DamagedError, match=f"{path} is damaged: the checksum of '{key}' differs"):
        list(Variables(tmp_path).parts(key))
    with pytest.raises(DamagedError, match="differs"):
        Variables(tmp_path).check()


def test_any_damage_of_the_index_is_found(tmp_path):
    save(tmp_path, {"rows": tf.Variable(tf.zeros((3, 2)))})
    path = tmp_path / f"{PREFIX}.index"
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        try:
            found = Variables(tmp_path)
        except DamagedError as error:
            assert str(path) in str(error)
        else:  # the footer has bytes that nobody reads
            path.write_bytes(whole)
            assert found.shapes == Variables(tmp_path).shapes
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(DamagedError):
            Variables(tmp_path)


def test_damage_behind_the_rows_is_found(tmp_path):
    save(tmp_path, {"rows": tf.Variable(tf.zeros((3, 2)))})
    path = next(tmp_path.glob(f"{PREFIX}.data-*"))
    whole = path.read_bytes()
    for place in range(3 * 2 * 4, len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        with pytest.raises(DamagedError, match="_CHECKPOINTABLE_OBJECT_GRAPH"):
            Variables(tmp_path).check()
