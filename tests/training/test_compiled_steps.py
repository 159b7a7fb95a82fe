"""Calls that XLA compiles to one program, against the same calls without XLA, on a CPU."""

import gc
import re
import weakref

import numpy as np
import pytest
import tensorflow as tf

from app.assembly import placing
from app.checkpoints.checkpoint import Position
from app.checkpoints.table_checkpoints import Checkpoints
from app.models import row_lists
from app.optimizers.adagrad import rowwise_adagrad
from app.optimizers.sgd import sgd
from app.system.xla import CompiledIfPossible
from app.tables.cached import CacheSize
from app.tables.device import ON_HOST, DeviceTable
from app.tables.dynamic.dynamic import RowStore
from app.training import gradients, runner
from app.training.compiled_steps import Representatives
from app.training.gradients import RowGradients, StepGradients, add_gradients
from app.training.step import apply_gradients, train_function
from app.types import Batch
from tests.integration import gpu_jobs
from tests.integration.gpu_jobs import CLASSIFY, LANGUAGE, RECOMMEND, WORDS, named
from tests.integration.replicas import write_data
from tests.reference import gpu
from tests.reference.batches import MODELS, make_model, make_tokens

STEPS = 3
HOST = {"table": "host", "hot_rows": "5", "stage_steps": STEPS}
SOFTMAX = HOST | {"loss": "softmax"}
SUBWORDS = {"min_ngram": 2, "max_ngram": 4, "ngram_buckets": 500}
TREE = {"loss": "hierarchical_softmax"}
ONE = {"steps_per_call": 1}
BPR = RECOMMEND | {"loss": "bpr", "optimizer": "lazy_adam"}
LABELS = CLASSIFY | {"loss": "one_vs_all"}
COMPILED = [WORDS, BPR | {"clip_row_norm": 0.1}, LABELS]
COMPILED_SELDOM = [
    WORDS | {"model": "cbow", "optimizer": "lazy_adam", "clip_row_norm": 0.1},
    RECOMMEND,
    RECOMMEND | {"loss": "bpr"},
    WORDS | {"loss": "sampled_softmax", "sampler": "unigram", "micro_batches": 2},
    WORDS | {"loss": "nce"},
    WORDS | {"table": "dynamic"},
    WORDS | HOST | {"optimizer": "lazy_adam"},
    RECOMMEND | {"table": "dynamic"},
    WORDS | {"table_dtype": "bfloat16", "rounding": "stochastic"},
    RECOMMEND | {"loss": "sampled_items"},
    CLASSIFY | {"loss": "sampled_softmax", "micro_batches": 2},
    LABELS | {"table": "dynamic"},
    CLASSIFY,
    CLASSIFY | TREE,
    LANGUAGE,
    LANGUAGE | {"loss": "sampled_softmax"},
    LANGUAGE | {"loss": "nce", "cell": "lstm"},
    LANGUAGE | {"loss": "sampled_softmax", "tie_weights": True, "dropout": 0.3},
    LANGUAGE | {"loss": "class_softmax", "tie_weights": True},
    WORDS | {"loss": "class_softmax"},
    WORDS | {"loss": "class_softmax", "class_levels": 3, "micro_batches": 2},
    WORDS | {"loss": "softmax", "model": "cbow"},
    WORDS | {"loss": "adaptive_softmax"},
    *(LANGUAGE | {"loss": loss} for loss in ("softmax", "class_softmax", "adaptive_softmax")),
    LANGUAGE | TREE,
    WORDS | TREE,
    WORDS | TREE | SUBWORDS | {"model": "cbow"},
    WORDS | SUBWORDS,
    WORDS | SUBWORDS | {"loss": "sampled_softmax", "micro_batches": 2},
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder


def make(data, folder, values, by_xla):
    values = {"steps_per_call": STEPS, "compute_dtype": "float32"} | values
    job, config, _ = gpu_jobs.made(data, folder, values)
    batch = gpu_jobs.first_batch(job, config)
    made = job.model, job.placed.staging.tables, job.optimizer, 1, job.placed.micro_batches
    arguments = batch, tf.constant(5, tf.int64), tf.constant(0.3)
    return train_function(*made, by_xla=by_xla), arguments, job


def train(data, folder, values, by_xla):
    """The result of two calls, and the tables after them.

    Rows of a dynamic table that were never in use are memory that nobody wrote; they are left out.
    """
    function, arguments, job = make(data, folder, values, by_xla)
    function(*arguments)
    loss, examples = function(*arguments)
    tables = {}
    for name, table in job.placed.staging.tables.items():
        used = slice(table.used) if isinstance(table, RowStore) else ...
        for number, variable in enumerate(table.variables):
            tables[f"{name} {number}"] = np.asarray(variable)[used].astype("f")
    return float(loss), float(examples), tables


def slow(*cases):
    return [pytest.param(case, marks=pytest.mark.slow) for case in cases]


@pytest.mark.parametrize("values", [*COMPILED, *slow(*COMPILED_SELDOM)], ids=named)
def test_a_compiled_call_trains_as_one_that_is_not(data, tmp_path, values, caplog):
    loss, examples, tables = train(data, tmp_path / "with", values, by_xla=True)
    assert not [r for r in caplog.records if r.getMessage().startswith("XLA cannot")]
    expected_loss, expected_examples, expected = train(data, tmp_path / "without", values, False)
    assert examples == expected_examples
    # Rows in half precision may be rounded to the neighbour.
    tolerance = 0.02 if "table_dtype" in values else 3e-4
    np.testing.assert_allclose(loss, expected_loss, rtol=tolerance)
    assert tables.keys() == expected.keys()
    for name, found in tables.items():
        np.testing.assert_allclose(found, expected[name], tolerance, tolerance, err_msg=name)


@pytest.mark.parametrize(
    "values",
    [
        *(RECOMMEND, WORDS | HOST, LABELS | HOST),
        *slow(
            LABELS,
            *(WORDS, WORDS | TREE, WORDS | {"micro_batches": 2}, BPR),
            WORDS | {"model": "cbow", "optimizer": "lazy_adam", "clip_row_norm": 0.1},
            *(WORDS | {"loss": loss} for loss in ("nce", "sampled_softmax")),
            WORDS | {"table_dtype": "bfloat16", "rounding": "stochastic"},
            *(RECOMMEND | {"loss": loss} for loss in ("sampled_items", "squared_error")),
            *(CLASSIFY, CLASSIFY | {"loss": "sampled_softmax"}, CLASSIFY | TREE),
            # Its rows of 16 tokens are a loop of the cell, and another for the gradient.
            LANGUAGE | {"loss": "sampled_softmax", "batch_tokens": 320},
            LANGUAGE | {"loss": "sampled_softmax", "batch_tokens": 320, "cell": "lstm"},
            LANGUAGE | {"loss": "nce", "batch_tokens": 320, "tie_weights": True, "dropout": 0.5},
        ),
    ],
    ids=named,
)
def test_a_compiled_call_is_one_loop_over_its_steps(data, tmp_path, values):
    function, arguments, job = make(data, tmp_path, values, by_xla=True)
    graph = function.get_concrete_function(*arguments).graph
    program = function.chosen.experimental_get_compiler_ir(*arguments)
    lowered = program(stage="hlo")
    is_language = values.get("task") == "language_model"
    loops = 5 if is_language else 1  # two for the first step, and two for the others
    assert lowered.count(gpu.LOOP) == loops, "and none over ids"
    assert " sort(" not in lowered
    optimized = program(stage="optimized_hlo")
    found = sorted(map(int, re.findall(r'"known_trip_count":{"n":"(\d+)"}', optimized)))
    of_cell = gpu_jobs.USUAL["row_tokens"] // 8  # which makes so many steps in an iteration
    assert found == sorted([STEPS - 1, *[of_cell] * (loops - 1)])
    trained = {name for name, spec in job.model.tables().items() if spec.trained}
    for table in map(job.placed.staging.tables.get, trained):
        shape = re.escape(f"f32[{table.rows},{table.columns}]")
        assert not re.findall(rf"{shape}\S* (?:copy|transpose)\(", optimized)
    captured = {id(handle) for handle, _ in graph.captures}
    read = [variable.name for variable in graph.variables if id(variable.handle) in captured]
    assert read or values.get("task") == "classify", "it draws nothing"
    assert not [name for name in read if name.startswith(ON_HOST)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "loops", "sorts"),
    [
        # In each of two branches.
        (WORDS | SUBWORDS, 2, 3),
        # Pairs are sorted by word. All rows are one block here; blocks of more are loops, too.
        *((WORDS | {"loss": f"{kind}softmax"}, 1, 2) for kind in ("", "class_", "adaptive_")),
    ],
    ids=named,
)
def test_loops_and_sorts_of_other_steps_become_no_more(data, tmp_path, values, loops, sorts):
    function, arguments, _ = make(data, tmp_path, values, by_xla=True)
    function.get_concrete_function(*arguments)
    lowered = function.chosen.experimental_get_compiler_ir(*arguments)(stage="hlo")
    assert (lowered.count(gpu.LOOP), lowered.count(" sort(")) == (loops, sorts)


def test_the_gradients_of_all_tables_are_known_before_any_is_written():
    # Otherwise the compiler for a GPU copies tables, which the program for a CPU does not show.
    tables = {"users": DeviceTable(30, 8, tf.ones), "items": DeviceTable(40, 9, tf.ones)}

    @tf.function(jit_compile=True, autograph=False)
    def update(values_UD):
        ids_U, values = tf.range(4), {"users": values_UD[:, :8], "items": values_UD}
        by_row = {name: RowGradients(ids_U, values_UD) for name, values_UD in values.items()}
        gradients = StepGradients(tf.zeros([]), tf.zeros([]), by_row, {})
        apply_gradients(tables, sgd(), gradients, tf.constant(0.1), tf.constant(1, tf.int64))

    lowered = update.experimental_get_compiler_ir(tf.ones([4, 9]))(stage="hlo")
    assert "= (f32[4,8]{1,0}, f32[4,9]{1,0}) opt-barrier(" in lowered


def test_gradients_of_micro_batches_are_added_without_a_sort():
    unique_rows = Representatives()
    unique_rows.prepare({"input": DeviceTable(9, 2, tf.ones)})

    @tf.function(jit_compile=True, autograph=False)
    def add(ids_2N):
        parts = [{"input": RowGradients(ids_U, tf.ones([3, 2]))} for ids_U in tf.unstack(ids_2N)]
        zero = tf.zeros([])
        sums = add_gradients([StepGradients(zero, zero, part, {}) for part in parts], unique_rows)
        return sums.gradients["input"]

    ids = tf.constant([[4, 1, 9], [9, 4, 0]])  # 9 is no row
    found = {int(id): rows_D for id, rows_D in zip(*add(ids), strict=True) if id < 9}
    expected = {4: [2, 2], 1: [1, 1], 0: [1, 1]}
    assert {id: rows_D.numpy().tolist() for id, rows_D in found.items()} == expected
    lowered = add.experimental_get_compiler_ir(ids)(stage="hlo")
    assert " sort(" not in lowered and gpu.LOOP not in lowered


@pytest.mark.parametrize(
    "values", [SOFTMAX, SOFTMAX | {"table": "sharded"}, *slow(HOST | SUBWORDS)], ids=named
)
def test_a_step_on_tables_elsewhere_is_not_compiled(data, tmp_path, values, caplog):
    function, arguments, job = make(data, tmp_path, ONE | values, by_xla=True)
    # Without a GPU, a streamed table is as near as a cache.
    for table in job.placed.tables.values():
        table.device = "GPU:0" if values.get("loss") else table.device
    function.get_concrete_function(*arguments)
    (message,) = [r.getMessage() for r in caplog.records if "XLA" in r.getMessage()]
    elsewhere = "output" if values.get("loss") else "input"
    assert message.endswith(f"not all rows of table '{elsewhere}' are on the device of the steps")
    assert isinstance(function, CompiledIfPossible) and function.chosen._jit_compile is None


@pytest.mark.parametrize(
    ("operation", "found"),
    [("CollectiveReduceV2", " all-reduce("), ("CollectiveGatherV2", "No registered")],
)
def test_the_exchanges_of_replicas_that_xla_compiles(operation, found):
    """With an all-gather, steps of replicas could be one program (see `distributed.replicas`)."""
    options = {"merge_op": "Add", "final_op": "Id"} if "Reduce" in operation else {}
    exchange = getattr(tf.raw_ops, operation)
    keys = {"group_size": 2, "group_key": 1, "instance_key": 1, "ordering_token": []}

    @tf.function(jit_compile=True, autograph=False)
    def run(values):
        return exchange(input=values, **keys, **options)

    try:
        lowered = run.experimental_get_compiler_ir(tf.ones([4]))(stage="hlo")
    except ValueError as error:
        lowered = str(error)
    assert found in lowered


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        ({"loss": "softmax", "micro_batches": 2}, "--micro_batches=1"),
        pytest.param(
            LANGUAGE | {"tie_weights": True, "batch_tokens": 1024, "loss": "class_softmax"},
            "--notie_weights",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_steps_with_gradients_as_large_as_a_table_are_not_compiled(
    data, tmp_path, monkeypatch, caplog, values, remedy
):
    monkeypatch.setattr(gradients, "_MOST", 1000)
    values = ONE | values
    gpu_jobs.pretend(monkeypatch)
    function, arguments, job = make(data, tmp_path, values, by_xla=True)
    function.get_concrete_function(*arguments)
    (message,) = [r.getMessage() for r in caplog.records if "XLA" in r.getMessage()]
    assert message.endswith(f"for each of the micro-batches; with {remedy} XLA can")
    assert message.endswith(job.placed.uncompiled) and job.placed.uncompiled, "as in the banner"
    assert function.chosen._jit_compile is None


# The memory of the tables that a train function has read.


@pytest.mark.slow
def test_a_call_of_subwords_that_usual_paddings_do_not_hold_has_larger_ones(
    data, tmp_path, monkeypatch, caplog
):
    values = WORDS | SUBWORDS | {"dim": 12}
    monkeypatch.setattr(row_lists, "_DEVIATIONS", -20)
    function, arguments, job = make(data, tmp_path / "large", values, by_xla=True)
    batch = Batch(arguments[0][0], arguments[1:1])
    assert not job.model.for_usual_batches().fits(batch) and job.model.fits(batch)
    program = function.get_concrete_function(*arguments) and function.chosen
    lowered = program.experimental_get_compiler_ir(*arguments)(stage="hlo")
    assert lowered.count(" conditional(") == 1
    assert lowered.count(gpu.LOOP) == 2, "in each branch one over its steps, and none over ids"
    test_a_compiled_call_trains_as_one_that_is_not(data, tmp_path, values, caplog)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_deleted_train_function_does_not_keep_its_tables(name):
    def train_once():
        optimizer = rowwise_adagrad()
        tables = {
            table: DeviceTable(30, 6, tf.ones, slots=optimizer.slots)
            for table in ("input", "output")
        }
        train = train_function(make_model(name, np.ones(30)), tables, optimizer, seed=1)
        data_S = tf.constant(make_tokens(range(1, 25))[np.newaxis])
        loss, _ = train(data_S, tf.constant(0, tf.int64), tf.constant(0.1))
        assert loss > 0
        variables = [table.values for table in tables.values()]
        return [weakref.ref(variable.handle) for variable in variables]

    handles = train_once()
    gc.collect()
    assert [handle() for handle in handles] == [None, None]


# Calls that XLA compiles on tables in host memory, whose caches hold a part of the rows.


CALL_STEPS, SEED, RATE = 3, 1, 0.05
STAGED = {"table": "host", "stage_steps": 2 * CALL_STEPS}
PINNED, CACHED = 3, 0.8  # the number of pinned rows, and the share of the other rows in the cache
PAIRS = RECOMMEND | {"batch_tokens": 64}
SELDOM = [
    WORDS | {"optimizer": "adagrad"},
    WORDS | {"model": "cbow", "optimizer": "lazy_adam", "clip_row_norm": 0.1},
    WORDS | {"loss": "sampled_softmax", "sampler": "unigram", "micro_batches": 2},
    WORDS | {"table_dtype": "bfloat16", "rounding": "stochastic"},
    WORDS | {"table_file": "rows"},
    PAIRS | {"loss": "bpr", "optimizer": "lazy_adam"},
    PAIRS | {"loss": "sampled_items"},
    LABELS | {"optimizer": "lazy_adam", "word_ngrams": 2},
    CLASSIFY | {"loss": "sampled_softmax", "micro_batches": 2},
    CLASSIFY | TREE | {"table_file": "rows"},
    WORDS | SUBWORDS | {"loss": "softmax"},
]


@pytest.fixture(scope="module")
def many_rows(tmp_path_factory):
    """Words, users and items of which a call needs a part only, and most of them again later."""
    folder, random = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    ids_N = random.zipf(1.15, 100_000) - 1
    words = [f"w{id}" for id in ids_N[ids_N < 1500][:8000]]
    lines = [" ".join(words[start : start + 20]) for start in range(0, len(words), 20)]
    (folder / "text.txt").write_text("\n".join(lines))
    pairs = {(user, item) for user, item in random.integers(0, 500, (2500, 2)).tolist()}
    rated = "".join(f"u{user},i{item},1\n" for user, item in sorted(pairs))
    (folder / "ratings.csv").write_text(f"user,item,rating\n{rated}")
    labelled = [f"__label__{number % 40} {line}" for number, line in enumerate(lines)]
    (folder / "labelled.txt").write_text("\n".join(labelled))
    return folder


class Training:
    """A job with the stage of its tables and its train function."""

    def __init__(self, data, folder, values):
        values = {"steps_per_call": CALL_STEPS, "compute_dtype": "float32", **values}
        if "table_file" in values:
            values["table_file"] = f"{folder}.rows"
        self.job, config, _ = gpu_jobs.made(data, folder, values)
        self.tables, model = self.job.placed.tables, self.job.model
        sizes = {
            name: CacheSize(np.arange(PINNED), int(CACHED * table.rows), 0)
            for name, table in self.tables.items()
        }
        # Labels are few, and most losses stream them. N-grams need all rows, too.
        every = {"classify": ["output"], "words": self.tables if config.model.has_subwords else []}
        for name in every.get(config.run.task, []):
            sizes[name] = CacheSize(np.arange(self.tables[name].rows), 0, 0)
        self.stage = placing.make_staging(sizes, model, self.tables, config, "CPU:0")
        arguments = (
            model,
            self.stage.tables,
            self.job.optimizer,
            SEED,
            self.job.placed.micro_batches,
        )
        self.function = train_function(*arguments, by_xla=True)

    def train(self, begin=0, end=1000):
        """Make the calls from `begin` to `end`, in two epochs, and return their losses."""
        batches = self.job.data.batches(range(2), begin)
        losses = []
        for number, (_, data) in enumerate(self.stage.prefetch(batches, begin * CALL_STEPS), begin):
            if number == end:
                break
            first = tf.constant(number * CALL_STEPS, tf.int64)
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
    [PAIRS | {"optimizer": "rowwise_adagrad"}, LABELS | {"batch_tokens": 256}, *slow(*SELDOM)],
    ids=named,
)
def test_rows_are_those_of_compiled_steps_on_the_device_bit_for_bit(many_rows, tmp_path, values):
    made = {
        name: Training(many_rows, tmp_path / name, values | place)
        for name, place in (("host", STAGED), ("device", {}))
    }
    losses = {name: training.train() for name, training in made.items()}
    rows = {name: training.rows() for name, training in made.items()}
    assert losses["host"] == losses["device"]
    for name, expected in rows["device"].items():
        np.testing.assert_array_equal(rows["host"][name], expected, err_msg=name)
    functions = [training.function.chosen for training in made.values()]
    assert all(function._jit_compile for function in functions)
    # Chunks of all sizes are one program, in all epochs.
    assert {function.experimental_get_tracing_count() for function in functions} == {1}
    caches = made["host"].stage._cached.values()
    for table in (table for table in caches if table.cache_map.unpinned):
        loaded, evicted = table.counts["loaded"], table.counts["evicted"]
        assert evicted > 0 and loaded > table.rows - PINNED, "some rows are evicted and return"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_training_goes_on_from_a_checkpoint_bit_for_bit(many_rows, tmp_path, dtype):
    values = WORDS | STAGED | {"table_dtype": dtype, "optimizer": "adagrad"}
    whole, first, second = (
        Training(many_rows, tmp_path / name, values) for name in ("whole", "first", "second")
    )
    losses = whole.train()
    stop = 4  # within a chunk
    assert first.train(end=stop) == losses[:stop]
    Checkpoints(tmp_path / "saved", first.tables, 1).save(Position(step=stop * CALL_STEPS))
    assert Checkpoints(tmp_path / "saved", second.tables, 1).restore().step == stop * CALL_STEPS
    assert second.train(begin=stop) == losses[stop:]
    for name, found in second.rows().items():
        np.testing.assert_array_equal(found, whole.rows()[name], err_msg=name)


def test_a_program_takes_nothing_from_host_memory(many_rows, tmp_path):
    """But the batch and the positions: no map of ids, no row of a table, no count of writes."""
    values = PAIRS | STAGED | {"table_dtype": "bfloat16", "rounding": "stochastic"}
    training = Training(many_rows, tmp_path, values)
    _, batch = next(iter(training.stage.prefetch(training.job.data.batches(range(1), 0), 0)))
    assert batch.rows.keys() == training.tables.keys()
    arguments = batch, tf.constant(0, tf.int64), tf.constant(RATE)
    traced = training.function.get_concrete_function(*arguments)
    used = {id(tensor) for tensor, _ in traced.graph.captures}
    for name, table in training.stage._cached.items():
        there = [table._positions_V.read(), *training.tables[name].variables]
        assert used.isdisjoint(id(variable.handle) for variable in there)
        assert used.issuperset(id(variable.handle) for variable in table.cache.variables)


def test_no_thread_makes_tensors_while_the_first_call_is_traced(many_rows, tmp_path):
    """It would change the names by which XLA finds stored programs; then a thread is ahead."""
    training, taken = Training(many_rows, tmp_path, PAIRS | STAGED), []

    def batches():
        for item in training.job.data.batches(range(1), 0):
            taken.append(item)
            yield item

    ready = training.stage.prefetch(batches(), 0)
    next(ready)
    training.stage._thread.submit(int).result()  # it has done all earlier work
    assert len(taken) == 2, "those of the first chunk"
    next(ready)
    training.stage._thread.submit(int).result()
    assert len(taken) == 4


@pytest.mark.parametrize("values", [WORDS | HOST, WORDS])
def test_batches_whose_ids_the_host_looks_up_stay_there(data, tmp_path, values, monkeypatch):
    copied = []
    monkeypatch.setattr(runner, "copy_ahead", lambda *given: copied.append(given) or iter(()))
    job, *_ = gpu_jobs.made(data, tmp_path, values)
    trainer = runner.Runner()
    trainer.open(job, job.placed.staging.tables, 1)
    trainer._function = CompiledIfPossible(*make_two(), "nothing")
    trainer.batches(job, range(1), 0)
    assert bool(copied) == ("table" not in values)


def make_two():
    return [tf.function(lambda: tf.constant(1), autograph=False, jit_compile=jit) for jit in (1, 0)]


def test_the_numbers_of_many_compiled_calls_are_copied_at_once(monkeypatch):
    """As a copy to a GPU waits for the calls before it, and the call would wait for the copy."""
    trainer, copied, unstack = runner.Runner(), [], tf.unstack
    trainer._device, trainer._function = "CPU:0", CompiledIfPossible(*make_two(), "nothing")
    monkeypatch.setattr(tf, "unstack", lambda rows: copied.append(len(rows)) or unstack(rows))
    # The rate of an epoch's end is not known before.
    calls = [(8 * number, 0.5 / (1 + number // 100)) for number in range(130)]
    for number, own in enumerate(calls):
        later = ((8 * other, own[1]) for other in range(number + 1, 1000))
        step, rate = trainer.numbers(own, later)
        assert (step.dtype, rate.dtype) == (tf.int64, tf.float32)
        assert (int(step), float(rate)) == own
    assert copied == [64] * 6, "for the calls from 0, 64 and 100"
    trainer._function.is_by_xla = False
    assert [float(number) for number in trainer.numbers((3, 0.25), iter(()))] == [3, 0.25]
    assert len(copied) == 6
