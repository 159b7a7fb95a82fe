from __future__ import annotations

import time

import numpy as np

from app.benchmarks.harness.peak_memory import SAMPLE_SECONDS, peak_without_files
from app.system import host_memory


def test_memory_that_was_taken_for_a_while_counts():
    before = host_memory.resident_bytes()
    with peak_without_files() as peak:
        taken = np.ones(30_000_000)
        time.sleep(5 * SAMPLE_SECONDS)
        del taken
    assert peak() - before > 200_000_000
