from __future__ import annotations

from app.profiling.threads import by_thread, nested
from tests.profiling.events import event


def test_an_event_owns_the_time_that_no_event_within_it_takes():
    events = [
        event("late", 60, 5),
        event("inner", 10, 20),
        event("outer", 0, 50),
        event("innermost", 12, 8),
        event("second", 30, 20),
        event("other", 0, 9, "t"),
    ]
    threads = by_thread(events)
    assert sorted(len(thread) for thread in threads) == [1, 5]
    (thread,) = (thread for thread in threads if len(thread) == 5)
    found = {e.name: ([outer.name for outer in around], own) for e, around, own in nested(thread)}
    assert found == {
        "outer": ([], 10.0),
        "inner": (["outer"], 12.0),
        "innermost": (["outer", "inner"], 8.0),
        "second": (["outer"], 20.0),
        "late": ([], 5.0),
    }


def test_of_two_that_start_together_the_longer_is_around_the_other():
    (thread,) = by_thread([event("short", 0, 1), event("long", 0, 4)])
    assert [(e.name, own) for e, _, own in nested(thread)] == [("long", 3.0), ("short", 1.0)]
