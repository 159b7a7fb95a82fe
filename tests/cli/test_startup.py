"""TensorFlow is started once, and quickly left."""

import subprocess
import sys

import pytest

_START = """
import gc
from app.cli import startup
startup.start_tensorflow()
import tensorflow
print(gc.isenabled(), gc.get_freeze_count() > 100_000, tensorflow.constant(3).numpy())
"""


@pytest.mark.slow
def test_the_garbage_collector_runs_but_leaves_tensorflow_alone():
    ended = subprocess.run([sys.executable, "-c", _START], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout.split(), ended.stderr) == (0, ["True", "True", "3"], "")


@pytest.mark.slow
def test_keras_is_imported_only_where_it_is_used():
    use = """
import sys

import pytest
print("keras" in sys.modules)
import keras
print(keras.optimizers.Adam().name, tensorflow.keras.layers.Dense(1).units)
"""
    ended = subprocess.run([sys.executable, "-c", _START + use], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout.split()[3:]) == (0, ["False", "adam", "1"])


@pytest.mark.slow
def test_keras_stays_if_it_is_imported_first():
    use = "import sys; print('keras' in sys.modules, tensorflow.keras.layers.Dense(1).units)"
    program = f"import keras\n{_START}\n{use}"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout.split()[3:]) == (0, ["True", "1"])


def test_an_import_that_fails_is_shown():
    broken = "import sys; sys.modules['tensorflow'] = None\n" + _START
    ended = subprocess.run([sys.executable, "-c", broken], capture_output=True, text=True)
    assert ended.returncode == 1 and "ModuleNotFoundError" in ended.stderr
