from __future__ import annotations

import pytest

from app.benchmarks.scaling.scaling_model import LocalSide, predict

# 100 rows of a step take 2 ms to update, after 6 ms for its gradients; of 4 workers each has 40.
COSTS = {"step_seconds": 0.008, "gradient_seconds": 0.006, "rows": [(1, 100.0), (4, 40.0)]}


def predicted(costs=COSTS):
    """4 workers, 1,000 words a step of 4,096 tokens, 24 columns, a link of 1 Mbit/s."""
    return predict(costs, 4096, 1000.0, 24, [0.001], message_seconds=1e-4)


def test_replicas_by_hand():
    shared, each, _ = predicted()
    # A quarter of the gradients, and 4 times the update of 40 rows; 3 hops of 40 x 100 bytes.
    assert (shared["step_tokens"], shared["words"]) == (4096, 1000)
    assert shared["seconds"] == pytest.approx(0.006 / 4 + 4 * 40 * 0.002 / 100)
    assert shared["bytes"] == 3 * 40 * 100 and shared["messages"] == 3
    # All gradients, and 4 times the update of 100 rows; 3 hops of 100 x 100 bytes.
    assert (each["step_tokens"], each["words"]) == (4 * 4096, 4000)
    assert each["seconds"] == pytest.approx(0.006 + 4 * 0.002)
    assert each["bytes"] == 3 * 100 * 100
    seconds = 0.014 + 3 * 1e-4 + 8 * 30_000 / 1e6
    assert each["words_per_second"][0.001] == pytest.approx(4000 / seconds)


def test_servers_by_hand():
    served = predicted()[-1]
    assert (served["strategy"], served["workers"]) == ("parameter_server", 4)
    assert (served["seconds"], served["words"]) == (0.008, 4000)
    assert served["bytes"] == 2 * 100 * 100 and served["messages"] == 3
    assert served["bytes_per_word"] == 4 * 20_000 / 4000
    assert served["break_even_gigabits"] == pytest.approx(8 * 20_000 / 1e9 / 0.008)


def test_workers_that_exchange_changes_by_hand():
    # One process makes 200,000 words/s, a worker 100,000; each word of one of two is 30 bytes.
    side = LocalSide(64, 100_000.0, 30.0, 1000.0, 200_000.0)
    apart = predict(COSTS, 4096, 1000.0, 24, [0.001], message_seconds=0.0, local=[side])
    (four,) = [one for one in apart if one["strategy"] == "multi_worker sync 64"]
    assert (four["workers"], four["words"], four["seconds"]) == (4, 4000, 0.01)
    assert four["bytes"] == 30 * 2 * 3 / 4 * 1000
    # 4,000 words take one process 20 ms; so 10 ms are left for 45,000 bytes.
    assert four["pays_gigabits"] == pytest.approx(8e-9 * 45_000 / 0.010)


def test_a_batch_that_cannot_be_divided_is_not_shared():
    costs = COSTS | {"rows": [(1, 100.0), (4, None)]}
    assert [one["step_tokens"] for one in predicted(costs)] == [4 * 4096, 4096]
