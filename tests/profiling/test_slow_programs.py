"""Profiles of slow programs of Keras: each cause is named, and nothing that cannot help."""

import pytest

from app.profiling.profile_report import diagnose, text
from tests.profiling.slow_programs import PROGRAMS, record

# The changes by the begin of what `lexrow profile` proposes.
CHANGES = {
    "cache()": "cache",
    "batch()": "batch",
    "map(num_parallel_calls=16": "unbounded",
    "num_parallel_calls": "parallel",
    "shuffle()": "shuffle",
    "prefetch": "prefetch",
    "steps_per_execution": "steps",
    "a batch of 4 times": "examples",
    "lexrow.keras.RowEmbedding": "rows",
}

INPUT = ("cache", "batch", "unbounded", "parallel", "shuffle", "prefetch", "rows")
# For each program what must be proposed, and what must not, by the names of `CHANGES`.
EXPECTED = {
    "small_batches": (("steps", "examples"), ("rows", "unbounded", "shuffle", "prefetch")),
    "generator": (("cache", "unbounded"), ("prefetch", "batch", "parallel", "rows")),
    "generator_prefetch": (("cache", "unbounded"), ("prefetch", "batch", "parallel", "rows")),
    "python_map": (("cache", "batch", "unbounded"), ("prefetch", "parallel", "rows")),
    "waiting_map": (("cache", "batch", "unbounded"), ("prefetch", "parallel", "rows")),
    "serial_map": (("cache", "parallel"), ("prefetch", "unbounded", "batch", "rows")),
    "shuffle_after_map": (("cache",), ("prefetch", "unbounded", "parallel", "batch", "rows")),
    "bare": (("cache", "unbounded", "prefetch"), ("batch", "parallel", "rows")),
    "small_table": (("steps", "examples"), INPUT),
    "dense_adam": (("rows", "examples"), INPUT[:-1]),
}
QUICK = ("generator",)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Your input ran out of data")
@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PROGRAMS],
)
def test_causes_are_named(tmp_path, name):
    found = diagnose(record(name, tmp_path), None)
    assert found.division.trusted
    named = {
        changed
        for change in found.changes
        for begin, changed in CHANGES.items()
        if change.what.startswith(begin)
    }
    present, absent = EXPECTED[name]
    assert named >= set(present) and named.isdisjoint(absent), text(found)
