"""What `pipeline` says of its results: tables for people, bars for a picture."""

from __future__ import annotations

from typing import Any

from ..harness import report
from ..harness.report import Measure, Panel

SPEED = Measure("examples_per_second", "examples/s", ",.0f", better="higher")
WORDS = Measure("words_per_second", "words/s", ",.0f", better="higher")
WAITING = Measure("waiting", "waiting for input", ".1%", better="lower")
FIRST = Measure("first_seconds", "first, with tracing, s", ",.2f", better="lower")
# Part -> what its sides are measured by.
MEASURES = {
    "classifier": (
        SPEED,
        WAITING,
        Measure("accuracy", "accuracy in training", ".3f", better="higher", by_difference=True),
        FIRST,
    ),
    "text": (WORDS, Measure("known", "tokens with an id", ",.0f"), FIRST),
    "trainer": (WORDS, WAITING),
}
_TITLES = {
    "classifier": "classifier: embedding 1,000 x 100, mean over 20 tokens, sigmoid, Adam",
    "text": "text to ids",
    "trainer": "word trainer",
}
_OURS = {"text": 2}


def text(found: dict[str, Any]) -> str:
    """A table a part. found: part -> what `report.results` gives for its sides."""
    return "\n\n".join(
        f"{_TITLES[part]}\n{report.table(own, MEASURES[part])}" for part, own in found.items()
    )


def panels(found: dict[str, Any]) -> list[Panel]:
    """Examples/s, words/s, and the share of waiting of every side that has one."""
    (examples,) = report.panels(found["classifier"], [SPEED])
    (words,) = report.panels(found["text"], [WORDS])
    waiting = [
        panel
        for part in ("trainer", "classifier")
        for panel in report.panels(found[part], [WAITING])
    ]
    shares = Panel(
        WAITING,
        {side: value for panel in waiting for side, value in panel.values.items()},
        {side: runs for panel in waiting for side, runs in panel.runs.items()},
        ours=len(waiting),
    )
    return [
        examples._replace(title="classifier: examples/s", log=True),
        words._replace(title="text to ids: words/s", ours=_OURS["text"], log=True),
        shares,
    ]
