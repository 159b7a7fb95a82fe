from __future__ import annotations

import pytest

from app.errors import DamagedError, RunError
from app.tables.dynamic.keys import STRING, KeyMap
from tests.tables.dynamic.test_keys import both, contents, many_steps, see


@both
@pytest.mark.parametrize("min_sightings", [1, 3])
def test_all_goes_on_after_a_load_as_it_would_have(kind, min_sightings, tmp_path):
    def make():
        return KeyMap(30, kind, min_sightings, max_age=40)

    steps = list(many_steps(2))
    through, other = make(), make()
    for step in steps[:60]:
        see(through, step[1], step[0], step[2])
    through.save(tmp_path / "keys")
    for step in steps[80:]:  # a map that was used for something else
        see(other, step[1], step[0], step[2])
    other.load(tmp_path / "keys")
    assert contents(other) == contents(through) and other.bytes() == through.bytes()
    for step in steps[60:]:
        found, expected = (see(keys, step[1], step[0], step[2]) for keys in (other, through))
        for got, wanted in zip(found, expected, strict=True):
            assert got.tolist() == wanted.tolist()
        assert contents(other) == contents(through)


@both
def test_a_damaged_file_is_noticed(kind, tmp_path):
    keys = KeyMap(30, kind, min_sightings=2)
    see(keys, range(20), 1, [2] * 20)
    keys.save(tmp_path / "keys")
    for path in sorted((tmp_path / "keys").iterdir()):
        data = path.read_bytes()
        changed = bytes([data[0] ^ 1]) + data[1:] if data else b"?"
        for wrong in (data[: len(data) // 2], changed, None):
            path.unlink(missing_ok=True)
            if wrong is not None:
                path.write_bytes(wrong)
            if wrong != data:
                with pytest.raises(DamagedError):
                    KeyMap(30, kind, min_sightings=2).load(tmp_path / "keys")
        path.write_bytes(data)
    KeyMap(30, kind, min_sightings=2).load(tmp_path / "keys")


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"capacity": 31}, "capacity 30, where 31 .*--table_gb"),
        ({"kind": STRING}, "kind int64, where string"),
        ({"min_sightings": 2}, "admits False, where True .*--min_count"),
    ],
)
def test_a_map_of_another_kind_is_refused(other, words, tmp_path):
    KeyMap(30).save(tmp_path / "keys")
    with pytest.raises(RunError, match=words):
        KeyMap(**{"capacity": 30} | other).load(tmp_path / "keys")
