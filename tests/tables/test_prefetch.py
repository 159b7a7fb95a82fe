"""Cached tables against tables on the device, through whole steps and runs."""

import concurrent.futures

import numpy as np
import pytest
import tensorflow as tf

from app.assembly import memory_plan
from app.optimizers.adagrad import rowwise_adagrad
from app.optimizers.adam import lazy_adam
from app.tables.base import TableSpec
from app.tables.cached import CacheSize
from app.tables.device import DeviceTable
from app.tables.prefetch import CacheTooSmallError, Chunk, InPlace, PlannedChunk, Prefetcher
from app.training.step import lookup_function, train_function
from tests.reference.batches import make_model, make_tokens

WORDS, STEPS, BATCHES, STAGED = 400, 2, 12, 6
COUNTS = np.arange(WORDS, 0, -1) ** 2
OPTIMIZERS = {"rowwise_adagrad": rowwise_adagrad, "lazy_adam": lazy_adam}


def batches(number=BATCHES):
    for batch in range(number):
        seeds = [[batch, step] for step in range(STEPS)]
        tokens = [make_tokens(range(batch * 20, batch * 20 + 100), seed=seed) for seed in seeds]
        yield batch // 5, tf.constant(np.stack(tokens))


def make(optimizer):
    model = make_model("skipgram", COUNTS)
    specs = model.tables()
    return model, {
        name: DeviceTable(spec.rows, spec.columns, spec.initial, slots=optimizer.slots)
        for name, spec in specs.items()
    }


def trained(optimizer, way, after=lambda batch: None):
    """The tables after all batches; way: from a model and tables to what brings their rows."""
    model, tables = make(optimizer)
    brought = way(model, tables)
    function = train_function(model, brought.tables, optimizer, seed=4)
    for number, (epoch, tokens) in enumerate(brought.prefetch(batches(), 0)):
        assert epoch == number // 5
        function(tokens, tf.constant(number * STEPS, tf.int64), tf.constant(0.1))
        after(brought, tables, number)
    brought.write_back()
    brought.close()
    return contents(tables), brought


def contents(tables):
    found = {name: table.values.numpy().tobytes() for name, table in tables.items()}
    for name, table in tables.items():
        found |= {f"{name}.{n}": slot.values.numpy().tobytes() for n, slot in table.slots.items()}
    return found


def cache_size_of(pinned, unpinned):
    """The pinned rows are the first, or none are."""
    return CacheSize(np.arange(pinned), unpinned, 0)


def through(sizes, stage_steps=STAGED):
    def way(model, tables):
        calls = memory_plan.calls_per_chunk(stage_steps, STEPS)
        lookups = lookup_function(model, 4)
        return Prefetcher(tables, lookups, "CPU:0", calls, STEPS, cache_sizes=sizes)

    return way


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize(
    "sizes",
    [
        {"input": cache_size_of(40, 200), "output": cache_size_of(0, 360)},
        # Too little for a whole chunk, which is cut short.
        {"input": cache_size_of(10, 75), "output": cache_size_of(200, 120)},
        {"input": cache_size_of(WORDS, 0), "output": cache_size_of(WORDS, 0)},
        {"output": cache_size_of(100, 300)},
    ],
)
def test_results_are_those_of_tables_on_the_device_bit_for_bit(name, sizes):
    optimizer = OPTIMIZERS[name]()
    expected = []

    def keep(brought, tables, number):
        expected.append(contents(tables))

    def compare(brought, tables, number):
        if number % 5 == 4:  # in the middle of a chunk
            brought.write_back()
            assert contents(tables) == expected[number]

    whole, _ = trained(optimizer, lambda model, tables: InPlace(tables), keep)
    found, brought = trained(optimizer, through(sizes), compare)
    assert found == whole
    values = brought.values()
    assert 0 < values["stage_hit_rate"] <= 1 and 0 <= values["stage_stall"] <= 1
    assert (values["staged_bytes"] > 0) == (sizes.get("input", cache_size_of(0, 1)).unpinned > 0)


def test_what_a_call_of_more_ids_than_the_cache_holds_has_no_plan():
    optimizer = rowwise_adagrad()
    with pytest.raises(CacheTooSmallError, match="rows of input, and its cache has 3"):
        trained(optimizer, through({"input": cache_size_of(0, 3)}), lambda *_: None)


@pytest.mark.slow
def test_rows_that_are_needed_again_are_not_loaded_again():
    optimizer, model_tables = rowwise_adagrad(), {}

    def same(model, tables):
        model_tables.update(tables)
        return through({"input": cache_size_of(0, WORDS)}, STEPS)(model, tables)

    moved = []

    def watch(brought, tables, number):
        moved.append(brought.values()["staged_bytes"])

    trained(optimizer, same, watch)
    assert moved[0] > 0
    row_bytes = (6 + 1) * 4
    # The cache is large enough: every row is loaded once, and none is evicted.
    assert sum(moved) * STEPS <= WORDS * row_bytes


def test_an_error_of_the_batches_reaches_the_loop():
    optimizer = rowwise_adagrad()
    model, tables = make(optimizer)
    brought = through({"input": cache_size_of(10, 300)})(model, tables)

    def broken():
        yield from batches(4)
        raise OSError("the text is gone")

    seen = 0
    with pytest.raises(OSError, match="the text is gone"):
        for _ in brought.prefetch(broken(), 0):
            seen += 1
    assert seen <= 4
    brought.close()


def test_no_batches_are_nothing_to_do():
    optimizer = rowwise_adagrad()
    model, tables = make(optimizer)
    before = contents(tables)
    brought = through({"input": cache_size_of(10, 300)})(model, tables)
    assert list(brought.prefetch(iter(()), 0)) == []
    brought.write_back()
    brought.close()
    assert contents(tables) == before


def test_first_lookups_are_the_ids_of_the_first_calls():
    model, _ = make(rowwise_adagrad())
    found = memory_plan.first_lookups(model, batches(), 4, "CPU:0", 3)
    assert found.keys() == {"input", "output"} and len(found["input"]) == 3
    first = next(batches())[1].numpy()
    assert len(found["input"][0]) == first[:, :, 3:-3].size


def test_the_cache_that_a_chunk_needs():
    needed = [np.array([9, 9, 9, 2, 2, 5]), np.array([9, 3, 3, 3, 4, 0])]
    by_frequency = memory_plan.estimate_cache_size(
        TableSpec(1000, 2, tf.zeros, by_frequency=True), needed, 4
    )
    assert by_frequency.pinned_N.tolist() == [0, 1, 2, 3]
    learned = memory_plan.estimate_cache_size(TableSpec(1000, 2, tf.zeros), needed, 2)
    assert learned.pinned_N.tolist() == [3, 9]
    assert learned.unpinned == 6  # as a call may need so many
    assert learned.loaded == 4
    whole = memory_plan.estimate_cache_size(TableSpec(8, 2, tf.zeros), [np.array([1])], 100)
    assert whole.unpinned == 0


def test_a_chunk_that_was_applied_in_part_is_not_applied_again():
    calls = []

    def apply(chunk):
        calls.append(chunk)
        raise OSError("the disk is full")

    future = concurrent.futures.Future()
    future.set_result(Chunk([], {}, {}, {}))
    planned = PlannedChunk(future, apply)
    for again in (planned.applied, planned.settle, planned.applied):
        with pytest.raises(OSError, match="the disk is full"):
            again()
    assert len(calls) == 1
