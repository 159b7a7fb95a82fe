import numpy as np
import pytest

from app.errors import DamagedError, RunError
from app.tables.dynamic.key_index import LRU, KeyIndex, Sketch
from app.tables.dynamic.keys import INT64, STRING, KeyMap, key_bytes


def see(keys, names, step, sightings=None):
    """What a map of either kind makes of small numbers as keys."""
    given = np.array(names, np.int64)
    if keys.kind == STRING:
        given = np.array([f"word {name}".encode() for name in names] or [], object)
    counts = np.ones(len(names), np.int64) if sightings is None else np.array(sightings)
    return keys.see(given, counts, step)


def contents(keys):
    """Row -> key, sightings, age."""
    parts = (
        keys.in_use(),
        keys.keys(),
        keys.counts_V[keys.in_use()],
        (keys.step - keys._last_V[keys.in_use()]),
    )
    return {row: rest for row, *rest in zip(*(part.tolist() for part in parts), strict=True)}


both = pytest.mark.parametrize("kind", [INT64, STRING])


@pytest.mark.parametrize("crowd", ["spread", "one place"])
def test_the_index_is_a_dictionary(crowd, monkeypatch):
    if crowd == "one place":  # all keys collide, and their searches go round the end
        start = lambda self, hashes: np.full(len(hashes), len(self._cells) - 2)  # noqa: E731
        monkeypatch.setattr(KeyIndex, "_first_cell", start)
    random, index, known = np.random.default_rng(0), KeyIndex(50), {}
    for _ in range(200):
        ids = random.choice(80, random.integers(1, 30), replace=False) * 2**50 - 2**55
        new = np.array([key for key in ids if key not in known][: 50 - len(known)], np.int64)
        free = np.setdiff1d(np.arange(50), list(known.values()))[: len(new)]
        index.insert(new, free)
        known |= dict(zip(new.tolist(), free.tolist(), strict=True))
        assert index.find(ids).tolist() == [known.get(key, -1) for key in ids.tolist()]
        gone = random.permutation(list(known))[: random.integers(20)]
        index.remove(np.array([known.pop(key) for key in gone.tolist()], np.int64))
        assert (index.find(gone) == -1).all()
    assert index.find(np.zeros(0, np.int64)).shape == (0,)


def count(sketch, hashes, sightings):
    seen, counters = sketch.look_up(hashes, sightings)
    sketch.store(counters, seen, sightings)
    return seen


def test_a_sketch_counts_and_forgets():
    random, sketch, true = np.random.default_rng(0), Sketch(4000), {}
    for _ in range(10):
        keys = random.choice(2000, 300, replace=False)
        for key in keys.tolist():
            true[key] = true.get(key, 0) + 2
        found = count(sketch, keys, np.full(300, 2))
        assert (found >= [true[key] for key in keys.tolist()]).all()
        assert (found == [true[key] for key in keys.tolist()]).mean() > 0.95
    assert count(sketch, np.array([5000]), np.array([1000])) == 1000
    count(sketch, np.array([5001]), np.array([1000]))  # as many as twice the width: all are halved
    assert sketch.added == 4000
    assert count(sketch, np.array([5000]), np.array([1])) == 128  # 255 at most, halved, and 1


@both
def test_keys_get_rows_at_first_sight_and_keep_them(kind):
    keys = KeyMap(10, kind)
    first = see(keys, [5, 3, 9], 1)
    assert first.rows_U.tolist() == first.new_rows.tolist() == [0, 1, 2]
    second = see(keys, [9, 4, 5], 2, [2, 1, 7])
    assert second.rows_U.tolist() == [2, 3, 0] and second.new_rows.tolist() == [3]
    assert keys.rows(second.new_keys).tolist() == [3] and not len(second.evicted_rows)
    assert keys.rows(np.concatenate([first.new_keys[:1], second.new_keys])).tolist() == [0, 3]
    _, _, counts, ages = zip(*[(row, *rest) for row, rest in contents(keys).items()], strict=True)
    assert counts == (8, 1, 3, 1) and ages == (0, 1, 0, 0)
    assert len(keys) == 4
    assert see(keys, [], 3).rows_U.shape == (0,) and len(keys) == 4


@both
def test_keys_are_admitted_after_some_sightings(kind):
    keys = KeyMap(10, kind, min_sightings=3)
    assert see(keys, [1, 2], 1, [2, 3]).rows_U.tolist() == [-1, 0]
    assert see(keys, [1, 2, 3], 2).rows_U.tolist() == [1, 0, -1]
    assert keys.counts_V[keys.in_use()].tolist() == [4, 3]


def test_old_rows_are_evicted_and_used_again():
    keys = KeyMap(10, max_age=16)
    see(keys, [1, 2, 3], 0)
    for step in range(1, 18):
        assert not len(see(keys, [2], step).evicted_rows)  # looked for every 2 steps
    found = see(keys, [2, 7, 8, 9], 18)
    assert found.evicted_rows.tolist() == [0, 2] and found.rows_U.tolist() == [1, 0, 2, 3]
    assert keys.rows(np.array([1, 2, 3])).tolist() == [-1, 1, -1]
    # An evicted key comes back as a new one.
    assert see(keys, [3], 19).rows_U == 4 and keys.counts_V[4] == 1


@both
def test_the_rarest_then_the_oldest_give_way(kind):
    keys = KeyMap(4, kind)
    see(keys, [1, 2], 1, [5, 1])
    see(keys, [3, 4], 2, [1, 9])
    found = see(keys, [5], 3)  # 2 and 3 were seen once, 2 is older
    assert found.evicted_rows.tolist() == found.rows_U.tolist() == [1]
    found = see(keys, [5, 6], 4)  # 5 was seen now
    assert found.evicted_rows.tolist() == [2] and found.rows_U.tolist() == [1, 2]
    found = see(keys, [7, 8], 5)
    assert found.evicted_rows.tolist() == found.rows_U.tolist() == [1, 2]
    assert {row: value[1] for row, value in contents(keys).items()} == {0: 5, 1: 1, 2: 1, 3: 9}
    assert len(keys) == 4


def test_rows_just_used_are_never_evicted():
    keys = KeyMap(3, pinned=2)
    see(keys, [1], 1, [9])
    see(keys, [2], 2)
    see(keys, [3], 3)
    with pytest.raises(RunError, match=r"3 rows are full and 2 more .* only 0 .*--table_gb"):
        see(keys, [4, 5], 3)
    assert see(keys, [4], 4).evicted_rows.tolist() == [0]  # frequent, but out of the last 2 steps


def many_steps(seed, steps=120):
    random = np.random.default_rng(seed)
    for step in range(1, steps):
        names = random.choice(60, random.integers(0, 12), replace=False)
        yield step, names, random.integers(1, 4, len(names))


@both
@pytest.mark.parametrize(
    "policy",
    [{}, {"max_age": 24}, {"pinned": 1}, {"eviction": LRU}, {"eviction": LRU, "pinned": 1}],
)
def test_it_follows_its_rules_for_long(kind, policy):
    """A slow map that does one key at a time, of the same rules."""
    keys, held, free, used, swept, steps = KeyMap(30, kind, **policy), {}, [], 0, 0, 120
    for step, names, sightings in many_steps(1, steps):
        found = see(keys, names, step, sightings)
        for name, count in zip(names.tolist(), sightings.tolist(), strict=True):
            if name in held:
                held[name][1:] = [held[name][1] + count, step]
        gone = []
        oldest = policy.get("max_age", steps)
        if (step - swept) * 8 >= oldest:
            swept = step
            old = [name for name, entry in held.items() if step - entry[2] > oldest]
            gone += sorted(held.pop(name)[0] for name in old)
        given = zip(names.tolist(), sightings.tolist(), strict=True)
        new = [(name, count) for name, count in given if name not in held]
        missing = max(len(new) - (30 - len(held)), 0)
        idle = [n for n, entry in held.items() if entry[2] < step - policy.get("pinned", 0)]
        first, second = (2, 1) if "eviction" in policy else (1, 2)
        idle.sort(key=lambda name: (held[name][first], held[name][second], held[name][0]))
        gone += sorted(held.pop(name)[0] for name in idle[:missing])
        assert found.evicted_rows.tolist() == gone
        free += gone
        for name, count in new:
            if free:
                row = free.pop(0)
            else:
                row, used = used, used + 1
            held[name] = [row, count, step]
        expected = {
            entry[0]: [
                f"word {name}".encode() if kind == STRING else name,
                entry[1],
                step - entry[2],
            ]
            for name, entry in held.items()
        }
        assert contents(keys) == expected
        assert found.rows_U.tolist() == [held[name][0] for name in names.tolist()]


def test_eviction_goes_in_bulk_in_a_large_map():
    keys = KeyMap(160)
    see(keys, range(160), 1)
    assert len(see(keys, [1000], 2).evicted_rows) == 10 and len(keys) == 151


def test_strings_with_one_fingerprint_are_two_keys(monkeypatch):
    monkeypatch.setattr(KeyMap, "hashes", lambda self, keys: np.zeros(len(keys), np.int64))
    keys = KeyMap(4, STRING)
    assert see(keys, [1, 2, 3], 1).rows_U.tolist() == [0, 1, 2]
    assert see(keys, [3, 4, 1], 2).rows_U.tolist() == [2, 3, 0]
    assert see(keys, [5], 3).evicted_rows.tolist() == [1]
    assert keys.rows(np.array([b"word 2", b"word 5", b"word 3"])).tolist() == [-1, 1, 2]


def test_strings_are_any_bytes():
    keys = KeyMap(4, STRING)
    names = np.array([b"", b"a\0", b"\xff", "\N{SNOWMAN}".encode()], object)
    assert keys.see(names, np.ones(4, int), 1).rows_U.tolist() == [0, 1, 2, 3]
    assert keys.rows(np.array(["\N{SNOWMAN}", ""])).tolist() == [3, 0]
    assert keys.keys().tolist() == names.tolist()


def test_a_key_of_the_other_kind_is_refused_by_name():
    with pytest.raises(TypeError, match="keys are string, where the table has int64 keys"):
        KeyMap(4).rows(np.array(["a"]))
    with pytest.raises(TypeError, match="keys are int64, where the table has string keys"):
        see(KeyMap(4), [1], 1), KeyMap(4, STRING).see(np.array([1]), np.ones(1, int), 1)
    with pytest.raises(TypeError, match="keys are float32"):
        KeyMap(4).rows(np.ones(1, np.float32))


@both
@pytest.mark.parametrize("min_sightings", [1, 2])
def test_memory_is_known_before(kind, min_sightings):
    rows = 2000
    keys = KeyMap(rows, kind, min_sightings)
    see(keys, range(rows), 1, [2] * rows)
    strings = sum(map(len, keys.keys())) if kind == STRING else 0
    choice = 24 * rows  # while rows are chosen to be evicted
    expected = rows * key_bytes(kind, min_sightings) - (12 * rows if strings else 0) + strings
    assert keys.bytes() + choice == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("policy", [{}, {"min_sightings": 2}])
def test_what_cannot_be_leaves_the_map_as_it_was(policy):
    keys, other = KeyMap(3, **policy), KeyMap(3, **policy)
    for each in (keys, other):
        see(each, [1, 2], 1, [2, 5])
        see(each, [8], 2)
    with pytest.raises(RunError, match="3 rows are full and"):
        see(keys, [2, 4, 5, 6], 3, [7, 2, 2, 2])
    assert keys.step == 2 and contents(keys) == contents(other)
    for each in (keys, other):
        see(each, [4, 8, 9], 4, [1, 1, 1])
    assert contents(keys) == contents(other)


def test_keys_of_several_steps_stay_together():
    """Those that a later step needs do not give way to those that an earlier one brings."""
    keys = KeyMap(4, max_age=8)
    see(keys, [1, 2, 3], 1, [9, 1, 1])
    found = keys.see(np.array([7, 2, 8]), np.array([1, 1, 3]), 4, np.array([2, 4, 3]))
    assert found.evicted_rows.tolist() == [2] and found.rows_U.tolist() == [2, 1, 3]
    assert contents(keys) == {0: [1, 9, 3], 1: [2, 2, 0], 2: [7, 1, 2], 3: [8, 3, 1]}
    with pytest.raises(RunError, match="only 4 were not just used"):
        keys.see(np.arange(20, 25), np.ones(5, int), 9, np.array([9, 8, 7, 6, 5]))
    found = keys.see(np.array([7, 30]), np.array([1, 1]), 13, np.array([5, 13]))
    assert found.evicted_rows.tolist() == [0, 1, 3]  # seen 12, 9 and 10 steps ago
    assert contents(keys) == {0: [30, 1, 0], 2: [7, 2, 8]}


def test_nothing_seen_moves_the_map_on():
    keys = KeyMap(4, max_age=8)
    see(keys, [1], 1)
    none = np.zeros(0, np.int64)
    found = keys.see(none, none, 2, none)
    assert (found.rows_U.dtype, found.rows_U.shape) == (np.int64, (0,)) and keys.step == 2
    assert see(keys, [], 20).evicted_rows.tolist() == [0] and len(keys) == 0


@pytest.mark.parametrize("policy", [{"max_age": 2**31}, {"max_age": 2**31, "pinned": 1}])
def test_an_age_of_more_steps_than_there_will_be(policy, tmp_path):
    keys = KeyMap(4, **policy)
    see(keys, [1, -1], 1)
    assert not len(see(keys, [2], 2**31).evicted_rows)
    keys.save(tmp_path / "keys")
    other = KeyMap(4, **policy)
    other.load(tmp_path / "keys")
    for each in (keys, other):
        assert not len(see(each, [2], 2**31 + 1).evicted_rows)
        late = 2**31 + 2**28  # by an eighth
        assert see(each, [2], late).evicted_rows.tolist() == [0, 1]


def test_any_number_is_a_key():
    keys = KeyMap(6)
    names = np.array([-1, 0, 2**63 - 1, -(2**63)])
    assert keys.see(names, np.ones(4, int), 1).rows_U.tolist() == [0, 1, 2, 3]
    assert keys.see(names[:1], np.ones(1, int), 2).rows_U.tolist() == [0]
    assert keys.rows(np.array([-1, -1, -2])).tolist() == [0, 0, -1]


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
        ({"min_sightings": 2}, "min_count above 1: False, where True .*--min_count"),
    ],
)
def test_a_map_of_another_kind_is_refused(other, words, tmp_path):
    KeyMap(30).save(tmp_path / "keys")
    with pytest.raises(RunError, match=words):
        KeyMap(**{"capacity": 30} | other).load(tmp_path / "keys")
