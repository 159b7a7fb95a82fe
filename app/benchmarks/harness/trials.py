"""Runs of several sides in turn, their medians, and how ours compares with a peer's."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import logging

Values = Mapping[str, float | None]


def alternate(
    sides: Sequence[str], repeats: int, run: Callable[[str, int], dict[str, Any]]
) -> dict[str, list[dict[str, Any]]]:
    """What `run(side, repeat)` gives for every side, by repeat.

    The order is turned round at each repeat, so that a drift of the machine favours no side.
    """
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for repeat in range(repeats):
        for side in sides if repeat % 2 == 0 else reversed(sides):
            logging.info("run %d of %d: %s", repeat + 1, repeats, side)
            runs[side].append(run(side, repeat))
    return runs


def medians(runs: Sequence[Values]) -> dict[str, float | None]:
    """The median over the runs of every value; None where a run has none."""
    columns = {key: [run.get(key) for run in runs] for key in runs[0]}
    return {
        key: None if None in values else statistics.median(values)
        for key, values in columns.items()
    }


def compare(ours: Values, peer: Values) -> dict[str, dict[str, float | None]]:
    """Ratio ours / peer and difference ours - peer of every value that both have."""
    return {
        key: {"ratio": value / peer[key] if peer[key] else None, "difference": value - peer[key]}
        for key, value in ours.items()
        if value is not None and peer.get(key) is not None
    }
