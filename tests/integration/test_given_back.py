"""Models and fits that are deleted give back their memory, files and threads.

    python -m tests.integration.test_given_back FOLDER WARM COUNT KIND...

makes models or fits of a kind again and again. It prints one line of JSON: for each kind, the bytes
that are allocated, the memory in bytes, open files and threads after each time from WARM to COUNT.
"""

import ctypes
import gc
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import (
    DynamicEmbedding,
    FeatureConfig,
    FeatureEmbedding,
    LazyAdam,
    RowEmbedding,
    RowEmbeddingReduce,
    TableConfig,
    output_as_loss,
    prefetch_rows,
)
from app.settings.checks import make_config
from app.sklearn import TextClassifier, TextVectorizer
from app.system import machine
from app.training.run import train_and_evaluate
from tests.integration.commands import ROOT, done
from tests.keras.softmax_models import LAYERS, WORDS

# With its slots, a table has about 5 MB: 30 of them are half of the memory of the process.
ROWS, COLUMNS, BATCH = 100_000, 4, 32
IDS = np.random.default_rng(0).integers(0, ROWS, (BATCH, 3))
TARGETS = np.ones((BATCH, 1), np.float32)
FOLDER = pathlib.Path(sys.argv[1] if __name__ == "__main__" else ".")


def embedding(kind=RowEmbedding, prefetches=False, **options):
    """A model with one table, which is trained and asked."""

    def embed():
        folder = pathlib.Path(tempfile.mkdtemp(dir=FOLDER))
        in_file = {"table_file": str(folder / "rows")} if options.get("table") == "file" else {}
        ids = keras.Input((3,), dtype="int64")
        vectors = keras.layers.Flatten()(kind(ROWS, COLUMNS, **options, **in_file)(ids))
        model = keras.Model(ids, keras.layers.Dense(1)(vectors))
        model.compile(LazyAdam(), "mse")
        batches = tf.data.Dataset.from_tensor_slices((IDS, TARGETS)).batch(BATCH // 2)
        model.fit(prefetch_rows(batches, model) if prefetches else batches, verbose=0)
        model.predict(IDS, verbose=0)
        shutil.rmtree(folder)

    return embed


def dynamic(rows, columns):
    return DynamicEmbedding(columns, capacity=rows, key_dtype="int64")


def features(rows, columns, **options):
    table = TableConfig("words", rows, columns, **options)
    layer = FeatureEmbedding({"ids": FeatureConfig("ids", table, (None, 3))})
    return lambda ids: layer({"ids": ids})["ids"]


def output(name: str) -> None:
    """A model with an output layer."""
    ids, targets = keras.Input((3,), dtype="int32"), keras.Input((3,), dtype="int32")
    model = keras.Model([ids, targets], LAYERS[name]()(RowEmbedding(ROWS, 6)(ids), targets))
    model.compile(LazyAdam(), output_as_loss)
    words = IDS % WORDS
    model.fit([words, words], words, verbose=0)


def texts() -> list[str]:
    """Texts whose ids take a megabyte."""
    draw = np.random.default_rng(1)
    return [" ".join(f"w{word}" for word in draw.integers(0, 2000, 60)) for _ in range(5000)]


TEXTS = texts()
LABELS = [len(text) % 2 for text in TEXTS]
SMALL = {"dim": 8, "epochs": 2, "settings": {"log_seconds": 0.0}}


def run(task: str, **values) -> None:
    """A run of a task on a file of its own."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=FOLDER))
    lines = {
        "recommend": (f"u{len(text)}\ti{number % 900}" for number, text in enumerate(TEXTS)),
        "classify": (f"__label__{label} {text}" for text, label in zip(TEXTS, LABELS, strict=True)),
        "language_model": TEXTS[:200],  # its steps take longest
    }
    (folder / "corpus").write_text("\n".join(lines.get(task, TEXTS)) + "\n")
    if values.pop("in_file", False):
        values |= {"table": "host", "table_file": str(folder / "rows")}
    values |= {"corpus": str(folder / "corpus"), "dim": 8, "epochs": 2}
    train_and_evaluate(make_config({"task": task, **values}), folder / "run", is_quiet=True)
    shutil.rmtree(folder)


LAYERS_OF_KERAS = {
    "device": embedding(),
    "host": embedding(table="host"),
    "cached": embedding(table="file", hot_rows=200, prefetches=True),
    "file": embedding(table="file"),
    "sharded": embedding(table="sharded"),
    "dynamic": embedding(dynamic),
    "reduce": embedding(RowEmbeddingReduce),
    "reduce on the host": embedding(RowEmbeddingReduce, table="host"),
    "features": embedding(features),
    "features in a file": embedding(features, table="file"),
    **{f"output {name}": lambda name=name: output(name) for name in LAYERS},
}
FITS = {
    "classifier": lambda: TextClassifier(**SMALL).fit(TEXTS, LABELS).predict(TEXTS[:9]),
    "vectorizer": lambda: TextVectorizer(**SMALL).fit(TEXTS).transform(TEXTS[:9]),
    "words": lambda: run("words"),
    "words on the host": lambda: run("words", table="host", hot_rows="100"),
    "words in a file": lambda: run("words", in_file=True, hot_rows="100"),
    "words, dynamic": lambda: run("words", table="dynamic", table_gb=0.01, cache="none"),
    "classify": lambda: run("classify"),
    "recommend": lambda: run("recommend"),
    "language model": lambda: run("language_model"),
}
KINDS = LAYERS_OF_KERAS | FITS


class _MallInfo(ctypes.Structure):
    """`struct mallinfo2` of the C library: the bytes in use are `hblkhd` and `uordblks`."""

    _fields_ = (("numbers", ctypes.c_size_t * 10),)


def allocated_bytes() -> int:
    """Bytes that were allocated and not freed; with PYTHONMALLOC=malloc also those of Python.

    The memory of the process is more: beside these, the C library keeps memory that is free. How
    much depends on which thread comes first, and varies by tens of megabytes.
    """
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = _MallInfo
    numbers = library.mallinfo2().numbers
    return numbers[4] + numbers[7]


def held() -> dict[str, int]:
    """What this process holds, once all objects are freed that nothing refers to."""
    gc.collect()
    gc.collect()  # an object may be resurrected by a finalizer
    allocated = []
    for _ in range(5):  # threads of TensorFlow free the buffers of a deleted iterator
        time.sleep(0.1)
        allocated.append(allocated_bytes())
    return {
        "allocated": min(allocated),
        "memory": machine.resident_bytes(),
        "files": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
    }


# TensorFlow 2.21 frees no body of a function that XLA compiles if another function calls it: a
# program of stock TensorFlow that traces one of 40 operations anew, and calls it from a
# `tf.function`, keeps 119 kB each time (without XLA 1 kB). So a model or fit keeps .05 to 1.6 MB.
# To see what else is kept, the thirty of a kind run without XLA.
#
# Without XLA, what a fit keeps is for the most part stack traces of the operations that it traced:
# `tensorflow::StackTrace::Capture` has allocated 85 % of what "output adaptive" keeps; the numbers
# of Python objects and of functions in the context stay. Our output layers keep .18 to .28 kB of an
# operation, stock Keras more: this program .96 MB each time, .57 kB of each of 1,695 operations.
#
#     ids = keras.Input((3,), dtype="int32")
#     rows = [keras.layers.Embedding(40, 6)(ids) for _ in range(8)]
#     model = keras.Model(ids, keras.layers.Add()(rows))
#     model.compile("adam", "mse", jit_compile=False)
#     model.fit(np.zeros((32, 3)), np.zeros((32, 3, 6)), verbose=0)
UNCOMPILED = """
import runpy
import tensorflow as tf
function = tf.function
tf.function = lambda *args, jit_compile=None, **options: function(*args, **options)
runpy.run_module("tests.integration.test_given_back", run_name="__main__")
"""
# Of the memory of the process, in 25 fits: the greatest graph keeps .81 MB a fit, 5.1 %.
MOST = {"output adaptive": 0.08}


def check(printed: str) -> None:
    """What is held after the last model is what was held after the first ones.

    The greatest growth from one to the next is left out: TensorFlow makes a buffer of 32 MiB once,
    and not at the same time in each process.
    """
    for kind, states in json.loads(printed.splitlines()[-1]).items():
        before, after = states[0], states[-1]
        allocated = [one["allocated"] for one in states]
        grown = [later - earlier for earlier, later in itertools.pairwise(allocated)]
        assert sum(grown) - max(grown) <= MOST.get(kind, 0.05) * before["memory"], (kind, grown)
        assert (after["files"], after["threads"]) == (before["files"], before["threads"]), kind


@pytest.mark.slow
def test_a_few_models_leave_nothing(tmp_path):
    check(done(tmp_path, "tests.integration.test_given_back", tmp_path, "2", "5", "cached").out)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_thirty_of_a_kind_leave_nothing(tmp_path, kind):
    check(
        subprocess.check_output(
            [sys.executable, "-c", UNCOMPILED, str(tmp_path), "5", "30", kind],
            cwd=ROOT,
            env={**os.environ, "PYTHONMALLOC": "malloc"},  # counts the objects of Python, too
            text=True,
        )
    )


if __name__ == "__main__":
    warm, count, *kinds = sys.argv[2:]
    found = {}
    for kind in kinds:
        found[kind] = []
        for number in range(1, int(count) + 1):
            KINDS[kind]()
            if number >= int(warm):
                found[kind].append(held())
    print(json.dumps(found))
