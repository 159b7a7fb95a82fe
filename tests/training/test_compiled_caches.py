"""Calls that XLA compiles on tables in host memory, whose caches hold a part of the rows."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from app.assembly import placing
from app.checkpoints.checkpoint import Position
from app.checkpoints.table_checkpoints import Checkpoints
from app.tables.cached import CacheSize
from app.training.step import train_function
from tests.integration import gpu_jobs
from tests.integration.gpu_jobs import RECOMMEND, WORDS, named

STEPS, SEED, RATE = 3, 1, 0.05
HOST = {"table": "host", "stage_steps": 2 * STEPS}
PINNED, CACHED = 3, 0.8  # the number of pinned rows, and the share of the other rows in the cache
PAIRS = RECOMMEND | {"batch_tokens": 64}
SELDOM = [
    WORDS | {"model": "cbow", "optimizer": "lazy_adam", "clip_row_norm": 0.1},
    WORDS | {"loss": "sampled_softmax", "sampler": "unigram", "micro_batches": 2},
    WORDS | {"table_dtype": "bfloat16", "rounding": "stochastic"},
    WORDS | {"table_file": "rows"},
    PAIRS | {"loss": "bpr", "optimizer": "lazy_adam"},
    PAIRS | {"optimizer": "rowwise_adagrad"},
    PAIRS | {"loss": "sampled_items"},
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Words, users and items of which a call needs a part only, and most of them again later."""
    folder, random = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    ids_N = random.zipf(1.15, 100_000) - 1
    words = [f"w{id}" for id in ids_N[ids_N < 1500][:8000]]
    lines = [" ".join(words[start : start + 20]) for start in range(0, len(words), 20)]
    (folder / "text.txt").write_text("\n".join(lines))
    pairs = {(user, item) for user, item in random.integers(0, 500, (2500, 2)).tolist()}
    rated = "".join(f"u{user},i{item},1\n" for user, item in sorted(pairs))
    (folder / "ratings.csv").write_text(f"user,item,rating\n{rated}")
    return folder


class Training:
    """A job with the stage of its tables and its train function."""

    def __init__(self, data, folder, values, by_xla):
        values = {"steps_per_call": STEPS, "compute_dtype": "float32", **values}
        if "table_file" in values:
            values["table_file"] = f"{folder}.rows"
        self.job, config, _ = gpu_jobs.made(data, folder, values)
        self.tables, model = self.job.placed.tables, self.job.model
        sizes = {
            name: CacheSize(np.arange(PINNED), int(CACHED * table.rows), 0)
            for name, table in self.tables.items()
        }
        self.stage = placing.make_staging(sizes, model, self.tables, config, "CPU:0")
        arguments = (
            model,
            self.stage.tables,
            self.job.optimizer,
            SEED,
            self.job.placed.micro_batches,
        )
        self.function = train_function(*arguments, by_xla=by_xla)

    def train(self, begin=0, end=1000):
        """Make the calls from `begin` to `end`, in two epochs, and return their losses."""
        batches = self.job.data.batches(range(2), begin)
        losses = []
        for number, (_, data) in enumerate(self.stage.prefetch(batches, begin * STEPS), begin):
            if number == end:
                break
            first = tf.constant(number * STEPS, tf.int64)
            located = self.stage.locate(data, first)
            losses.append(float(self.function(located, first, tf.constant(RATE))[0]))
        self.stage.write_back()
        return losses

    def rows(self):
        """All rows and slots, and the numbers of writes of tables that round."""
        found = {}
        for name, table in self.tables.items():
            for slot, part in {"rows": table, **table.slots}.items():
                found[f"{name} {slot}"] = part.gather(tf.range(part.rows)).numpy()
                if part.is_stochastic:
                    found[f"{name} {slot} writes"] = part.writes.numpy()
        return found


@pytest.mark.parametrize(
    "values",
    [
        WORDS | {"optimizer": "adagrad"},
        *(pytest.param(values, marks=pytest.mark.slow) for values in SELDOM),
    ],
    ids=named,
)
def test_rows_are_those_of_compiled_steps_on_the_device_bit_for_bit(data, tmp_path, values):
    made = {
        name: Training(data, tmp_path / name, values | place, by_xla)
        for name, place, by_xla in (
            ("host", HOST, True),
            ("device", {}, True),
            ("not compiled", HOST, False),
        )
    }
    losses = {name: training.train() for name, training in made.items()}
    rows = {name: training.rows() for name, training in made.items()}
    assert losses["host"] == losses["device"]
    for name, expected in rows["device"].items():
        np.testing.assert_array_equal(rows["host"][name], expected, err_msg=name)
        # Rows in half precision may be rounded to the neighbour.
        tolerance = 0.02 if "table_dtype" in values else 3e-4
        other = rows["not compiled"][name]
        np.testing.assert_allclose(other, expected, tolerance, tolerance, err_msg=name)
    host, functions = made["host"], [made[name].function.chosen for name in ("host", "device")]
    assert all(function._jit_compile for function in functions)
    # Chunks of all sizes are one program.
    assert len({function.experimental_get_tracing_count() for function in functions}) == 1
    for table in host.stage._cached.values():
        loaded, evicted = table.counts["loaded"], table.counts["evicted"]
        assert evicted > 0 and loaded > table.rows - PINNED, "some rows are evicted and return"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_training_goes_on_from_a_checkpoint_bit_for_bit(data, tmp_path, dtype):
    values = WORDS | HOST | {"table_dtype": dtype, "optimizer": "adagrad"}
    whole, first, second = (
        Training(data, tmp_path / name, values, by_xla=True)
        for name in ("whole", "first", "second")
    )
    losses = whole.train()
    stop = 4  # within a chunk
    assert first.train(end=stop) == losses[:stop]
    Checkpoints(tmp_path / "saved", first.tables, 1).save(Position(step=stop * STEPS))
    assert Checkpoints(tmp_path / "saved", second.tables, 1).restore().step == stop * STEPS
    assert second.train(begin=stop) == losses[stop:]
    for name, found in second.rows().items():
        np.testing.assert_array_equal(found, whole.rows()[name], err_msg=name)


def test_a_program_takes_nothing_from_host_memory(data, tmp_path):
    """But the batch and the positions: no map of ids, no row of a table, no count of writes."""
    values = WORDS | HOST | {"table_dtype": "bfloat16", "rounding": "stochastic"}
    training = Training(data, tmp_path, values, by_xla=True)
    (batch, *_) = (
        data for _, data in training.stage.prefetch(training.job.data.batches(range(1), 0), 0)
    )
    assert batch.rows.keys() == {"input", "output"}
    arguments = batch, tf.constant(0, tf.int64), tf.constant(RATE)
    traced = training.function.get_concrete_function(*arguments)
    used = {id(tensor) for tensor, _ in traced.graph.captures}
    for name, table in training.stage._cached.items():
        there = [table._positions_V, *training.tables[name].variables]
        assert used.isdisjoint(id(variable.handle) for variable in there)
        assert used.issuperset(id(variable.handle) for variable in table.cache.variables)
