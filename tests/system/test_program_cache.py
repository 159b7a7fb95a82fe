"""The folder where XLA stores its programs: its environment variables, and what TensorFlow does."""

import os
import subprocess
import sys

import pytest

from app.cli import startup
from app.system import program_cache

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


def test_a_folder_that_cannot_be_written_is_named_once(tmp_path, monkeypatch, caplog):
    (tmp_path / "lexrow").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TF_XLA_FLAGS", raising=False)
    monkeypatch.setattr(program_cache, "gpu_kind", lambda environ: GPU)
    startup.store_programs()
    (message,) = [record.getMessage() for record in caplog.records]
    assert str(tmp_path / "lexrow") in message and "XDG_CACHE_HOME" in message
    assert "TF_XLA_FLAGS" not in os.environ


_PROGRAM = """
import sys
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
    for damaged in (stored.read_bytes()[:-1], b""):
        stored.write_bytes(damaged)
        assert f"a program in {folder} could not be loaded" in run(for_cpu, 1)
    assert len(list(folder.iterdir())) == 2
