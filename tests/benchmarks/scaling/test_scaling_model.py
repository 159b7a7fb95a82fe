from __future__ import annotations

import pytest

from app.benchmarks.scaling import scaling_case, scaling_model


def test_the_model_of_replicas_by_hand():
    """4 workers, 1,000 words in 2 ms, vectors of 1 MB, 10 Gbit/s, 0.1 ms a message."""
    found = scaling_model.in_step(4, 4096, 1000.0, 0.002, 1e6)
    # 3 hops: 3 MB, 2.4 ms; a message each, 0.3 ms.
    assert found.bytes == 3e6 and found.messages == 3
    assert found.words_per_second(10, 1e-4) == pytest.approx(1000 / 0.0047)
    assert found.bytes_per_word == 12e6 / 1000
    assert found.break_even == pytest.approx(24e6 / 0.002 / 1e9)
    at_break_even = scaling_model.in_step(4, 4096, 1000.0, 0.002, 1e6)
    assert at_break_even.words_per_second(found.break_even, 0.0) == pytest.approx(1000 / 0.004)


def test_the_model_of_servers_by_hand():
    """4 workers, 1,000 words of each in 2 ms, 100 rows of 24 numbers."""
    assert scaling_model.rows_there_and_back(100, 24) == 2 * 100 * (4 + 24 * 4)
    found = scaling_model.at_own_pace(4, 4096, 1000.0, 0.002, 100, 24)
    # 20 kB at 0.1 Gbit/s are 1.6 ms; three messages, 0.3 ms.
    assert found.words_per_second(0.1, 1e-4) == pytest.approx(4000 / 0.0039)
    assert found.bytes_per_word == 20
    assert found.break_even == pytest.approx(0.16e-3 / 0.002)


def test_what_is_reckoned_follows_from_what_was_measured():
    shares = [
        {"workers": 1, "step_tokens": 4096, "seconds": 0.01, "bytes": 0.0, "rows": 100.0},
        {"workers": 2, "step_tokens": 4096, "seconds": 0.006, "bytes": 1000.0},
        {"workers": 2, "step_tokens": 8192, "seconds": 0.012, "bytes": 1500.0},
        {"workers": 4, "step_tokens": 4096, "left_out": "too many"},
    ]
    shared, each, two, four = scaling_case.reckon(shares, 4096, 5000.0, 24)
    assert (shared.words, shared.seconds, shared.bytes) == (5000, 0.006, 1000)
    assert (each.words, each.seconds, each.bytes) == (10_000, 0.012, 1500)
    assert (two.strategy, two.words, two.seconds) == ("parameter_server", 10_000, 0.01)
    assert (four.workers, four.words) == (4, 20_000)
