"""When replicas exchange the changes of their rows."""

from __future__ import annotations

import types

import pytest

from app.distributed.synchronizer import FREQUENT_ROWS, Synchronizer

(MANY, _), (FEW, _) = FREQUENT_ROWS


class Strategy:
    """A strategy of one replica."""

    def experimental_local_results(self, value):
        return [value]


class Exchanges(Synchronizer):
    """Notes how many rows it would exchange, and after how many steps."""

    def __init__(self, sync_steps):
        exchange = types.SimpleNamespace(keys=lambda count: None)
        super().__init__(Strategy(), exchange, None, sync_steps)
        self.made, self.done = [], 0

    def _exchange_function(self, most):
        def exchange(key):
            self.made.append((most or "all", self.done))
            return 0

        return exchange

    def run(self, steps, until):
        """Make calls of so many steps."""
        while self.done < until:
            self.done += steps
            self.count(steps, self.done)
        return self.made


@pytest.mark.parametrize(
    ("sync_steps", "start", "expected"),
    [
        (4, 96, [("all", 100), ("all", 104)]),
        (6, 96, [("all", 102), ("all", 108)]),
        (16, 96, [*((MANY, n) for n in range(98, 112, 2)), ("all", 112)]),
        (32, 96, [*((MANY, n) for n in range(100, 128, 4)), ("all", 128)]),
        (64, 128, [*((FEW if n % 8 else MANY, n) for n in range(130, 192, 2)), ("all", 192)]),
    ],
)
def test_frequent_rows_are_exchanged_more_often(sync_steps, start, expected):
    replicas = Exchanges(sync_steps)
    replicas.done = start
    assert replicas.run(2, expected[-1][1]) == expected


def test_replicas_exchange_sooner_at_the_start():
    # Half of 8 steps is 4; from 12 steps on it is all 6.
    assert [done for _, done in Exchanges(6).run(2, 26)] == [2, 4, 8, 14, 20, 26]


def test_an_end_exchanges_what_is_left_once():
    replicas = Exchanges(8)
    replicas.done = 96
    replicas.run(2, 100)
    replicas.synchronize()
    replicas.synchronize()
    assert [kind for kind, _ in replicas.made].count("all") == 1
    assert replicas.waiting == 0
