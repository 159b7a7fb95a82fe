"""Models and fits that are deleted give back their memory, files and threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.integration.commands import ROOT, done
from tests.integration.repeated import KINDS

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
runpy.run_module("tests.integration.repeated", run_name="__main__")
"""
# Of the memory of the process, in 25 fits: the greatest graph keeps .81 MB a fit, 5.1 %.
MOST = {"output adaptive": 0.08}


def check(printed: str) -> None:
    """What is held after the last model is what was held after the first ones."""
    for kind, (before, after) in json.loads(printed.splitlines()[-1]).items():
        kept = after["allocated"] - before["allocated"]
        assert kept <= MOST.get(kind, 0.05) * before["memory"], kind
        assert (after["files"], after["threads"]) == (before["files"], before["threads"]), kind


def test_a_few_models_leave_nothing(tmp_path):
    program = ("tests.integration.repeated", tmp_path, "2", "5")
    check(done(tmp_path, *program, "cached").out)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_thirty_of_a_kind_leave_nothing(tmp_path, kind):
    program = ["-c", UNCOMPILED, str(tmp_path), "5", "30", kind]
    ended = subprocess.run(
        [sys.executable, *program],
        cwd=ROOT,
        env={**os.environ, "PYTHONMALLOC": "malloc"},  # counts the objects of Python, too
        capture_output=True,
        text=True,
        check=True,
    )
    check(ended.stdout)
