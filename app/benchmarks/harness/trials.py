"""Runs of several sides in turn, their medians, and the comparison of two sides."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from absl import logging

Values = Mapping[str, float | None]
Job = TypeVar("Job")


def alternate(
    sides: Sequence[str], repeats: int, run: Callable[[str, int], dict[str, Any]]
) -> dict[str, list[dict[str, Any]]]:
    """Run every side several times, one after the other, and log the figures of each run.

    All sides run once in each repeat. Their order is reversed in every second repeat, so that a
    drift of the machine favours no side. If a benchmark is stopped, its log has the figures of all
    runs that ended.

    Args:
        sides: The names of the sides.
        repeats: The number of runs of each.
        run: Called as `run(side, repeat)`, with repeat from 0; returns the figures of a run.

    Returns:
        The figures of each run by side.
    """
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for repeat in range(repeats):
        for side in sides if repeat % 2 == 0 else reversed(sides):
            logging.info("run %d of %d: %s", repeat + 1, repeats, side)
            runs[side].append(run(side, repeat))
            logging.info("  %s", _describe(runs[side][-1]))
    return runs


def _describe(figures: Mapping[str, Any]) -> str:
    """Return the single numbers among the figures of a run in one line, or why it was left out."""
    if "left_out" in figures:
        return f"left out: {figures['left_out']}"
    return ", ".join(
        f"{name} {value:,.0f}" if abs(value) >= 1000 else f"{name} {value:.4g}"
        for name, value in figures.items()
        if isinstance(value, int | float)
    )


def run_jobs(
    jobs: Mapping[str, Job],
    repeats: int,
    reason_against: Callable[[Job], str | None],
    measure: Callable[[Job, int], dict[str, Any]],
) -> dict[str, list[dict[str, Any]]]:
    """Run every job several times in the order of `alternate`, but those that cannot run here.

    Args:
        jobs: The jobs by name.
        repeats: The number of runs of each.
        reason_against: Returns why a job cannot run, or None. Asked again before every run.
        measure: Called as `measure(job, seed)`, with seed from 1; returns the figures of a run.

    Returns:
        The figures of each run by job, or the reason under `left_out`.
    """

    def run_one(name: str, repeat: int) -> dict[str, Any]:
        """Run a job with seed `repeat + 1`, or return the reason against it as `left_out`."""
        reason = reason_against(jobs[name])
        return {"left_out": reason} if reason else measure(jobs[name], repeat + 1)

    return alternate(list(jobs), repeats, run_one)


def medians(runs: Sequence[Values]) -> dict[str, float | None]:
    """Return the median of every figure over the runs, or None if it is None in any run.

    Args:
        runs: The figures of each run by key, at least one run; all have the same keys.
    """
    columns = {key: [run[key] for run in runs] for key in runs[0]}
    return {
        key: None if None in values else statistics.median(values)
        for key, values in columns.items()
    }


def compare(ours: Values, peer: Values) -> dict[str, dict[str, float | None]]:
    """Return ratio (ours / peer) and difference (ours - peer) of every figure that both have.

    The ratio is None where the figure of the peer is 0.

    Args:
        ours: The figures of one side by key.
        peer: The figures of the other side.
    """
    return {
        key: {"ratio": value / peer[key] if peer[key] else None, "difference": value - peer[key]}
        for key, value in ours.items()
        if value is not None and peer.get(key) is not None
    }
