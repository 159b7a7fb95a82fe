"""Graphs that XLA compiles: their random draws, and the way without XLA."""

import logging
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tqdm

from app.cli import startup
from app.system import program_cache, xla
from app.system.loops import creation_stack, unroll

SEEDS = [[1, 2], [(2 << 40) + 1, 12345], [12345, (2 << 40) + 5], [-5, 7]]
DRAWS = {
    "uniform": lambda seed: xla.uniform(1001, seed),
    "fractions": lambda seed: xla.uniform_fractions(1001, seed),
    "window": lambda seed: xla.uniform_integers((7, 5), seed, 1, 6),
    "items": lambda seed: xla.uniform_integers((999,), seed, 0, 123_457),
}
EXPECTED = {
    "uniform": lambda seed: tf.random.stateless_uniform((1001,), seed),
    "fractions": lambda seed: tf.random.stateless_uniform((1001,), seed, dtype=tf.float64),
    "window": lambda seed: tf.random.stateless_uniform((7, 5), seed, 1, 6, tf.int32),
    "items": lambda seed: tf.random.stateless_uniform((999,), seed, 0, 123_457, tf.int32),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_those_of_tensorflow_with_and_without_xla(name):
    with_xla = tf.function(DRAWS[name], autograph=False, jit_compile=True)
    without = tf.function(DRAWS[name], autograph=False)
    for seed in SEEDS:
        seed = tf.constant(seed, tf.int64)
        expected = EXPECTED[name](seed).numpy()
        np.testing.assert_array_equal(with_xla(seed), expected)
        np.testing.assert_array_equal(without(seed), expected)


def _counted_up(variable):
    (found,) = tf.while_loop(lambda n: n < variable[0], lambda n: (n + 1,), (tf.constant(0),))
    return found


@pytest.mark.parametrize(
    ("count", "reason"),
    [
        (lambda variable: tf.unique_with_counts(variable).y, "it has no UniqueWithCounts"),
        (
            lambda variable: tf.range(_counted_up(variable)),
            "it cannot make a Range of a computed size",
        ),
    ],
)
def test_a_function_that_xla_refuses_runs_without_it(caplog, count, reason):
    variable, calls = tf.Variable([2, 1, 2]), []

    def counted():
        calls.append(xla.under_xla())
        return tf.size(count(variable))

    make = [tf.function(counted, autograph=False, jit_compile=by_xla) for by_xla in (True, None)]
    function = xla.CompiledIfPossible(*make, "a count")
    assert [int(function()) for _ in range(2)] == [2, 2]
    assert calls == [True, False]
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith("XLA cannot compile a count") and message.endswith(f": {reason}")


def test_the_reason_is_a_line_of_the_console_once_also_beside_a_bar(capsys):
    variable = tf.Variable([2, 1, 2])

    def counted():
        return tf.size(tf.unique_with_counts(variable).y)

    make = [tf.function(counted, autograph=False, jit_compile=by_xla) for by_xla in (True, None)]
    console = logging.StreamHandler(sys.stderr)
    logging.getLogger().addHandler(console)
    try:
        with tqdm.tqdm(total=2, desc="training") as bar:
            function = xla.CompiledIfPossible(*make, "a call of steps")
            for _ in range(2):
                function()
                bar.update()
    finally:
        logging.getLogger().removeHandler(console)
    shown = [line.rpartition("\r")[2] for line in capsys.readouterr().err.split("\n")]
    (said,) = [line for line in shown if "XLA cannot" in line]
    assert said.startswith("XLA cannot compile a call of steps") and said.endswith(
        ": it has no UniqueWithCounts"
    )


def test_an_error_that_is_none_of_xla_is_raised():
    def fail(values):
        raise KeyError("mine")

    make = [tf.function(fail, autograph=False, jit_compile=by_xla) for by_xla in (True, None)]
    with pytest.raises(KeyError, match="mine"):
        xla.CompiledIfPossible(*make, "a failure")(tf.constant(1))


# The folder where XLA stores its programs: its environment variables, and what TensorFlow does.


GPU = "NVRM version: 1\nSome GPU"
FLAG = "--tf_xla_persistent_cache_directory"


@pytest.fixture
def driver(tmp_path):
    """A folder like that of NVIDIA's driver; call it with the models of the GPUs."""

    def make(*models):
        (tmp_path / "version").write_text("NVRM version: 1\n")
        for number, model in enumerate(models):
            folder = tmp_path / "gpus" / str(number)
            folder.mkdir(parents=True)
            (folder / "information").write_text(f"Model: \t\t {model}\nIRQ: 1\n")
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("models", "hidden", "kind"),
    [
        (["Some GPU"], {}, GPU),
        (["Some GPU", "Some GPU"], {"CUDA_VISIBLE_DEVICES": "1"}, GPU),
        (["Some GPU"], {"CUDA_VISIBLE_DEVICES": "-1"}, ""),
        (["Some GPU"], {"CUDA_VISIBLE_DEVICES": ""}, ""),
        (["Some GPU", "Other"], {}, ""),
        ([], {}, ""),
    ],
)
def test_gpus_of_one_model_that_are_not_hidden_are_known(driver, models, hidden, kind):
    assert program_cache.gpu_kind(hidden, driver(*models)) == kind


def test_a_machine_without_a_driver_has_no_gpu(tmp_path):
    assert program_cache.gpu_kind({}, tmp_path / "none") == ""


@pytest.mark.parametrize("name", ["cache", "a folder", 'a "b" \\c'])
def test_programs_are_stored_in_the_cache_folder_of_the_user(tmp_path, name):
    environ = {
        "XDG_CACHE_HOME": str(tmp_path / name),
        "TF_XLA_FLAGS": "--tf_xla_max_cluster_size=9",
    }
    made = program_cache.with_folder(environ, GPU)
    path = tmp_path / name / "lexrow" / "programs"
    assert path.is_dir() and program_cache.folder(made) == str(path)
    assert made["TF_XLA_FLAGS"].startswith("--tf_xla_max_cluster_size=9 --tf_xla_persistent")
    assert program_cache.with_folder(made, GPU) == made


@pytest.mark.parametrize("ignored", [{}, {"XDG_CACHE_HOME": "relative"}])
def test_the_usual_folder_is_in_the_home_folder(tmp_path, ignored):
    made = program_cache.with_folder({"HOME": str(tmp_path), **ignored}, GPU)
    assert program_cache.folder(made) == str(tmp_path / ".cache/lexrow/programs")


@pytest.mark.parametrize(
    "flags", [f"{FLAG}=/mine", f"--tf_xla_clustering_debug {FLAG}=", "/a/file/of/flags"]
)
def test_a_choice_of_the_user_is_kept(tmp_path, flags):
    environ = {"XDG_CACHE_HOME": str(tmp_path), "TF_XLA_FLAGS": flags}
    assert program_cache.with_folder(environ, GPU) == environ
    assert program_cache.folder(environ) == ("/mine" if "/mine" in flags else "")
    assert not list(tmp_path.iterdir())


def test_nothing_is_stored_without_a_gpu(tmp_path):
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    assert program_cache.with_folder(environ, "") == environ
    assert program_cache.folder(environ) == "" and not list(tmp_path.iterdir())


def test_files_of_other_gpus_and_other_flags_have_other_names(tmp_path):
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    made = {
        program_cache.with_folder({**environ, **flags}, gpu)["TF_XLA_FLAGS"]
        for gpu in (GPU, "another")
        for flags in ({}, {"XLA_FLAGS": "--xla_gpu_autotune_level=0"})
    }
    assert len(made) == 4


def test_programs_that_changed_since_they_were_stored_are_removed(tmp_path):
    (tmp_path / "lexrow" / "programs").mkdir(parents=True)
    (tmp_path / "lexrow").chmod(0o777)
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    made = program_cache.with_folder(environ, GPU)
    folder = Path(program_cache.folder(made))
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder.parent, folder)] == [0o700] * 2
    mine, other = re.search(r"prefix=(\w+)", made["TF_XLA_FLAGS"])[1], "0" * 12
    names = [f"{mine}__{name}.pb" for name in ("whole", "cut", "written", "foreign", "flipped")]
    for name in [*names, f"{other}__1.pb"]:
        (folder / name).write_bytes(name.encode())
    program_cache.seal(made)
    os.truncate(folder / names[1], 5)
    (folder / names[2]).write_bytes(bytes(len(names[2])))
    os.replace(folder / f"{other}__1.pb", folder / names[3])
    sealed, content = (folder / names[4]).stat().st_mtime, bytearray(names[4].encode())
    content[3] ^= 16  # by the disk, which leaves the time
    (folder / names[4]).write_bytes(content)
    os.utime(folder / names[4], (sealed, sealed))
    for name in (f"{mine}__late.pb", f"{mine}__1.pb.tmp", f"{other}__2.pb"):
        (folder / name).write_bytes(b"text")
    assert program_cache.with_folder(environ, GPU) == made
    kept = [names[0], f"{mine}__1.pb.tmp", f"{other}__2.pb"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(kept)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_folder_that_cannot_be_used_is_named_once(is_there, tmp_path, monkeypatch, caplog):
    if is_there:
        (tmp_path / "lexrow" / "programs").mkdir(parents=True)
        monkeypatch.setattr(program_cache.os, "geteuid", lambda: os.getuid() + 1)
    else:
        (tmp_path / "lexrow").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TF_XLA_FLAGS", raising=False)
    monkeypatch.setattr(program_cache, "gpu_kind", lambda environ: GPU)
    startup.store_programs()
    (message,) = [record.getMessage() for record in caplog.records]
    assert str(tmp_path / "lexrow") in message and "set XDG_CACHE_HOME to a folder" in message
    assert ("belongs to another user" in message) == is_there
    assert "TF_XLA_FLAGS" not in os.environ


_PROGRAM = """
import sys
from pathlib import Path
import tensorflow as tf
from app.system.xla import CompiledIfPossible

for number in range(int(sys.argv[1])):  # what a run does before its steps
    tf.function(lambda value: value + 1).get_concrete_function(tf.constant(1))
table = tf.Variable([[1.0, 2.0], [3.0, 4.0]])

def step(rate):
    table.scatter_sub(tf.IndexedSlices(rate * table.sparse_read([1]), [1]))
    return tf.reduce_sum(table)

make = [tf.function(step, autograph=False, jit_compile=by_xla) for by_xla in (True, None)]
function = CompiledIfPossible(*make, "a step")
print([float(function(tf.constant(0.5))) for _ in range(3)])
print(function.chosen is make[1])
"""


@pytest.mark.slow
def test_a_later_process_loads_the_program_of_an_earlier_one(tmp_path):
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "TF_CPP_MIN_LOG_LEVEL": "3"}
    environ.pop("TF_XLA_FLAGS", None)
    for_gpu = program_cache.with_folder(environ, GPU)
    folder = tmp_path / "lexrow" / "programs"

    def run(environ, functions):
        """Return the warnings; the results must be those without XLA."""
        command = [sys.executable, "-c", _PROGRAM, str(functions)]
        ended = subprocess.run(command, env=environ, capture_output=True, text=True)
        assert ended.stdout.splitlines() == ["[6.5, 4.75, 3.875]", "False"], ended.stderr
        return ended.stderr

    assert "could not" not in run(for_gpu, 0)
    assert not list(folder.iterdir())  # this is a CPU
    for_cpu = {**for_gpu, "TF_XLA_FLAGS": for_gpu["TF_XLA_FLAGS"].replace("GPU", "CPU")}
    for functions in (0, 3):
        assert "could not" not in run(for_cpu, functions)
        (stored,) = folder.iterdir()
        assert stored.name.split("__")[0] in for_gpu["TF_XLA_FLAGS"]
    whole = stored.read_bytes()
    for damaged in (whole[:-1], b"", bytes(len(whole))):
        stored.write_bytes(damaged)
        program_cache.with_folder(environ, GPU)  # as a run begins
        assert not list(folder.iterdir())
        assert "XLA cannot" not in run(for_cpu, 1)
        (stored,) = folder.iterdir()


CALLS = 4


@tf.function(jit_compile=True, autograph=False)
def squared(x):
    return x * x + 1.0


def make_step(variable, pairs):
    """A step that reads and writes a variable, draws, loops, and calls XLA and Python."""

    def step(batch, number, kind):
        drawn = tf.random.stateless_uniform([3], batch["seed"])
        looped = tf.while_loop(
            lambda i, total: i < 3, lambda i, total: (i + 1, total + drawn), (0, tf.zeros([3]))
        )[1]
        before = variable.read_value()
        variable.scatter_add(tf.IndexedSlices(looped * number, batch["ids"]))
        variable.assign(squared(variable) - 1.0 + before)
        called = tf.py_function(lambda x: pairs.append(float(x)) or x, [number], tf.float32)
        with tf.device("CPU:0"):
            return {"sum": tf.reduce_sum(variable) + called, "kind": tf.constant(kind)}, number * 2

    return step


def arguments(base):
    random = np.random.default_rng(1)
    return [
        (
            {
                "ids": tf.constant(random.permutation(5)[:3]) + tf.cast(base, tf.int64),
                "seed": tf.stack([tf.cast(base, tf.int64), tf.constant(index, tf.int64)]),
            },
            tf.cast(base, tf.float32) + index / 8,
            "kind",
        )
        for index in range(CALLS)
    ]


@pytest.mark.parametrize("calls", [1, CALLS])
def test_the_results_are_those_of_a_trace_of_each_call(calls):
    found = {}
    for unrolled in (False, True):
        variable, numbers = tf.Variable(tf.fill([5], 0.1)), []
        step = make_step(variable, numbers)

        @tf.function(autograph=False)
        def run(base, step=step, unrolled=unrolled):
            given = arguments(base)[:calls]
            return unroll(step, given) if unrolled else [step(*call) for call in given]

        results = [run(tf.constant(0)), run(tf.constant(0))]
        flat = [tensor.numpy() for tensor in tf.nest.flatten(results)]
        found[unrolled] = flat, numbers, variable.numpy().tolist()
        operations = [
            op.type for op in run.get_concrete_function(tf.constant(0)).graph.get_operations()
        ]
        found[unrolled] += (sorted(operations),)
    assert found[True] == found[False]
    assert len(found[True][1]) == 2 * calls


def test_python_is_called_once_and_each_copy_knows_its_line():
    traced = []

    def step(x):
        traced.append(x)
        return tf.exp(x)

    @tf.function(autograph=False)
    def run(x_S):
        return unroll(step, [(x,) for x in tf.unstack(x_S)])

    graph = run.get_concrete_function(tf.constant([1.0, 2.0, 3.0])).graph
    exps = [operation for operation in graph.get_operations() if operation.type == "Exp"]
    assert len(traced) == 1 and len(exps) == 3
    for operation in exps:
        frames = [frame for frame in creation_stack(operation) if frame.filename == __file__]
        assert frames[-1].name == "step"
    np.testing.assert_allclose(run(tf.constant([1.0, 2.0, 3.0])), np.exp([1.0, 2.0, 3.0]), 1e-6)


def test_an_argument_that_no_operation_uses_and_one_that_two_use():
    @tf.function(autograph=False)
    def run(x_S):
        calls = [(x, x + 1.0, x) for x in tf.unstack(x_S)]
        return unroll(lambda x, unused, same: x * same, calls)

    assert [float(y) for y in run(tf.constant([2.0, 3.0]))] == [4.0, 9.0]
