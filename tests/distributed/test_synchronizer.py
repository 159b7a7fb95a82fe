"""When replicas exchange the changes of their rows."""

from __future__ import annotations

import pytest

from app.distributed.local_steps import ALL_ROWS
from app.distributed.synchronizer import FREQUENT_ROWS, Synchronizer

(MANY,) = (level.rows for level in FREQUENT_ROWS)


class Strategy:
    """A strategy of one replica."""

    def experimental_local_results(self, value):
        return [value]


class Exchanges(Synchronizer):
    """Notes how many rows it would exchange, and after how many steps."""

    def __init__(self, sync_steps):
        super().__init__(Strategy(), None, sync_steps)
        self.made, self.alone, self.done = [], [], 0

    def _exchange_function(self):
        def exchange(most, steps):
            rows = int(most)
            self.alone.append(int(steps))
            self.made.append(("all" if rows == ALL_ROWS else rows, self.done))
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
        (64, 384, [("all", 448)]),
        (128, 384, [(MANY, 448), ("all", 512)]),
        (1024, 2048, [(MANY, 2304), (MANY, 2560), (MANY, 2816), ("all", 3072)]),
    ],
)
def test_frequent_rows_are_exchanged_more_often(sync_steps, start, expected):
    replicas = Exchanges(sync_steps)
    replicas.done = start
    assert replicas.run(2, expected[-1][1]) == expected


def test_no_level_is_exchanged_more_often_than_after_each_call():
    replicas = Exchanges(128)
    replicas.done = 384
    assert replicas.run(32, 512) == [(MANY, 448), ("all", 512)]
    replicas = Exchanges(4)
    assert replicas.run(8, 24) == [("all", 8), ("all", 16), ("all", 24)]


def test_an_exchange_is_told_the_steps_since_the_last_one_of_its_level():
    replicas = Exchanges(256)
    replicas.done = 512
    replicas.run(32, 800)
    replicas.synchronize()
    assert replicas.made == [
        *((MANY, done) for done in (576, 640, 704)),
        ("all", 768),
        ("all", 800),
    ]
    assert replicas.alone == [64, 64, 64, 256, 32]


def test_frequent_rows_are_exchanged_sooner_at_the_start():
    """A sixth of 24 steps is 4; from 384 steps on it is all 64."""
    made = Exchanges(256).run(4, 1024)
    assert [done for kind, done in made if kind == "all"] == [256, 512, 768, 1024]
    frequent = [done for kind, done in made if kind == MANY]
    assert frequent[:10] == [4, 8, 12, 16, 20, 24, 28, 36, 44, 52]
    assert [done for done in frequent if done > 512] == [576, 640, 704, 832, 896, 960]


def test_an_end_exchanges_what_is_left_once():
    replicas = Exchanges(8)
    replicas.done = 96
    replicas.run(2, 100)
    replicas.synchronize()
    replicas.synchronize()
    assert [kind for kind, _ in replicas.made].count("all") == 1
    assert replicas.waiting == 0
