from __future__ import annotations

from app.benchmarks.harness import report
from app.benchmarks.harness.report import Measure

MEASURES = (
    Measure("speed", "words/s", ",.0f", better="higher"),
    Measure("bytes", "memory, MB", ".1f", per=1e6, better="lower"),
    Measure("score", "score", ".3f", by_difference=True),
    Measure("wait", "waiting", ".1%"),
)
RUNS = {
    "ours": [
        {"speed": 3000.0, "bytes": 5_000_000, "score": 0.51, "wait": 0.02, "log": "kept"},
        {"speed": 5000.0, "bytes": 7_000_000, "score": 0.53, "wait": 0.04},
    ],
    "peer": [
        {"speed": 900.0, "bytes": 2_000_000, "score": 0.55},
        {"speed": 1100.0, "bytes": 4_000_000, "score": 0.55},
    ],
}


def test_results_hold_runs_medians_and_comparisons():
    found = report.results(RUNS, MEASURES)
    assert found["sides"]["ours"]["runs"] == RUNS["ours"]
    medians = {"speed": 4000.0, "bytes": 6_000_000, "score": 0.52, "wait": 0.03}
    assert found["sides"]["ours"]["median"] == medians
    assert found["sides"]["peer"]["median"]["wait"] is None
    assert found["compared"]["peer"]["speed"] == {"ratio": 4.0, "difference": 3000.0}


def test_the_table_shows_medians_comparison_and_every_run():
    lines = to_text(report)(report.results(RUNS, MEASURES), MEASURES).splitlines()
    cells = [" ".join(line.split()) for line in lines]
    assert cells == [
        "median ours peer ours : peer ours 1 ours 2 peer 1 peer 2",
        "words/s 4,000 1,000 4.00 x 3,000 5,000 900 1,100",
        "memory, MB 6.0 3.0 2.00 x 5.0 7.0 2.0 4.0",
        "score 0.520 0.550 -0.030 0.510 0.530 0.550 0.550",
        "waiting 3.0% n/a n/a 2.0% 4.0% n/a n/a",
    ]
    assert len(set(map(len, lines))) == 1  # aligned to the right


def test_one_run_and_no_peer_need_no_more_columns():
    table = to_text(report)(report.results({"ours": RUNS["ours"][:1]}, MEASURES), MEASURES)
    assert [line.split()[-1] for line in table.splitlines()] == [
        "ours",
        "3,000",
        "5.0",
        "0.510",
        "2.0%",
    ]


def test_panels_leave_out_what_a_side_has_not():
    panels = {
        panel.measure.key: panel
        for panel in report.panels(report.results(RUNS, MEASURES), MEASURES)
    }
    assert panels["wait"].values == {"ours": 0.03}
    assert panels["speed"].runs == {"ours": [3000.0, 5000.0], "peer": [900.0, 1100.0]}
