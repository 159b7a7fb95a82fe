import pytest

from app.optimizers import schedules

DONE = [0.0, 0.25, 0.5, 0.75]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [1, 1, 1, 1]),
        ("linear", [1, 0.75, 0.5, 0.25]),
        ("cosine", [1, (1 + 0.5**0.5) / 2, 0.5, (1 - 0.5**0.5) / 2]),
    ],
)
def test_the_course_of_a_schedule(schedule, expected):
    assert [schedules.factor(schedule, 0.0, done) for done in DONE] == pytest.approx(expected)


def test_every_schedule_is_above():
    assert schedules.SCHEDULES.keys() == {"constant", "linear", "cosine"}


@pytest.mark.parametrize("schedule", schedules.SCHEDULES)
def test_it_rises_first_and_then_runs_over_what_is_left(schedule):
    found = [schedules.factor(schedule, 0.2, done) for done in (0.05, 0.1, 0.15, 0.2)]
    assert found == pytest.approx([0.25, 0.5, 0.75, 1.0])
    found = [schedules.factor(schedule, 0.2, 0.2 + 0.8 * done) for done in DONE]
    assert found == pytest.approx([schedules.factor(schedule, 0.0, done) for done in DONE])


@pytest.mark.parametrize("schedule", schedules.SCHEDULES)
@pytest.mark.parametrize("warmup", [0.0, 0.1, 0.99])
def test_it_is_above_0_and_at_most_1(schedule, warmup):
    for place in range(101):
        assert schedules.LEAST <= schedules.factor(schedule, warmup, place / 100) <= 1.0
    # An epoch may turn out longer than expected.
    assert schedules.factor(schedule, warmup, 1.5) == schedules.factor(schedule, warmup, 1.0)
    assert schedules.factor("linear", warmup, 1.0) == schedules.LEAST
