"""Makes models or fits of a kind again and again, and prints what this process holds.

    python -m tests.integration.repeated FOLDER WARM COUNT KIND...

One line of JSON: for each kind, the bytes that are allocated, the memory in bytes, open files and
threads after WARM and COUNT times.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import pathlib
import shutil
import sys
import tempfile

import keras
import numpy as np
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
from tests.keras.softmax_models import LAYERS, WORDS

# With its slots, a table has about 5 MB: 30 of them are half of the memory of the process.
ROWS, COLUMNS, BATCH = 100_000, 4, 32
IDS = np.random.default_rng(0).integers(0, ROWS, (BATCH, 3))
TARGETS = np.ones((BATCH, 1), np.float32)
FOLDER = pathlib.Path(sys.argv[1] if __name__ == "__main__" else ".")


def embed(make_layer, prefetches: bool = False) -> None:
    """A model with one table, which is trained and asked."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=FOLDER))
    ids = keras.Input((3,), dtype="int64")
    vectors = keras.layers.Flatten()(make_layer(ids, str(folder / "rows")))
    model = keras.Model(ids, keras.layers.Dense(1)(vectors))
    model.compile(LazyAdam(), "mse")
    batches = tf.data.Dataset.from_tensor_slices((IDS, TARGETS)).batch(BATCH // 2)
    model.fit(prefetch_rows(batches, model) if prefetches else batches, verbose=0)
    model.predict(IDS, verbose=0)
    shutil.rmtree(folder)


def embedding(**options):
    """A kind of `RowEmbedding`."""
    prefetches = options.pop("prefetches", False)

    def make_layer(ids, file):
        has_file = {"table_file": file} if options.get("table") == "file" else {}
        return RowEmbedding(ROWS, COLUMNS, **options, **has_file)(ids)

    return lambda: embed(make_layer, prefetches)


def features(**options):
    """A kind of `FeatureEmbedding`."""

    def make_layer(ids, file):
        has_file = {"table_file": file} if options.get("table") == "file" else {}
        table = TableConfig("words", ROWS, COLUMNS, **options, **has_file)
        vectors = FeatureEmbedding({"ids": FeatureConfig("ids", table, (None, 3))})({"ids": ids})
        return vectors["ids"]

    return lambda: embed(make_layer)


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
    values |= {"corpus": str(folder / "corpus"), "dim": 8, "epochs": 2, "audit": False}
    train_and_evaluate(make_config({"task": task, **values}), folder / "run", is_quiet=True)
    shutil.rmtree(folder)


LAYERS_OF_KERAS = {
    "device": embedding(),
    "host": embedding(table="host"),
    "cached": embedding(table="file", hot_rows=200, prefetches=True),
    "file": embedding(table="file"),
    "sharded": embedding(table="sharded"),
    "dynamic": lambda: embed(
        lambda ids, _: DynamicEmbedding(COLUMNS, capacity=ROWS, key_dtype="int64")(ids)
    ),
    "reduce": lambda: embed(lambda ids, _: RowEmbeddingReduce(ROWS, COLUMNS)(ids)),
    "features": features(),
    "features in a file": features(table="file"),
    **{f"output {name}": lambda name=name: output(name) for name in LAYERS},
}
FITS = {
    "classifier": lambda: TextClassifier(**SMALL).fit(TEXTS, LABELS).predict(TEXTS[:9]),
    "vectorizer": lambda: TextVectorizer(**SMALL).fit(TEXTS).transform(TEXTS[:9]),
    "words": lambda: run("words"),
    "words on the host": lambda: run("words", table="host", hot_rows="100"),
    "words in a file": lambda: run("words", in_file=True, hot_rows="100"),
    "words, dynamic": lambda: run("words", table="dynamic", table_gb=0.01, cache="none"),
    "words, cached on disk": lambda: run("words", cache="disk"),
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
    return {
        "allocated": allocated_bytes(),
        "memory": machine.resident_bytes(),
        "files": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
    }


if __name__ == "__main__":
    warm, count, *kinds = sys.argv[2:]
    found = {}
    for kind in kinds:
        after = {}
        for number in range(1, int(count) + 1):
            KINDS[kind]()
            after[number] = held()
        found[kind] = [after[int(warm)], after[int(count)]]
    print(json.dumps(found))
