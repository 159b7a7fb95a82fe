from __future__ import annotations

from app.benchmarks.harness import report
from app.benchmarks.harness.report import Measure

MEASURES = (
    Measure("speed", "words/s", ",.0f", better="higher", drawn=True),
    Measure("bytes", "memory, MB", ".1f", per=1e6, better="lower"),
    Measure("score", "score", ".3f", by_difference=True),
    Measure("wait", "waiting", ".1%", drawn=True),
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


def test_the_sides_for_json_have_runs_medians_and_comparisons():
    record = report.sides_record(report.make_table(RUNS, MEASURES))
    assert record["sides"]["ours"]["runs"] == RUNS["ours"]
    medians = {"speed": 4000.0, "bytes": 6_000_000, "score": 0.52, "wait": 0.03}
    assert record["sides"]["ours"]["median"] == medians
    assert record["sides"]["peer"]["median"]["wait"] is None
    assert record["compared"]["peer"]["speed"] == {"ratio": 4.0, "difference": 3000.0}


def cells(text):
    return [" ".join(line.split()) for line in text.splitlines()]


def test_the_table_shows_medians_every_run_and_the_comparison():
    text = report.table_text(report.make_table(RUNS, MEASURES, "title"))
    assert cells(text) == [
        "title",
        "words/s memory, MB score waiting",
        "ours 4,000 6.0 0.520 3.0%",
        "run 1 3,000 5.0 0.510 2.0%",
        "run 2 5,000 7.0 0.530 4.0%",
        "peer 1,000 3.0 0.550 n/a",
        "run 1 900 2.0 0.550 n/a",
        "run 2 1,100 4.0 0.550 n/a",
        "ours : peer 4.00 x 2.00 x -0.030 n/a",
    ]
    assert len(set(map(len, text.splitlines()[1:]))) == 1  # aligned to the right


def test_a_wide_table_is_turned():
    many = [Measure(f"speed{n}", f"words/s of side {n}", ".0f") for n in range(10)]
    runs = {"ours": [{measure.key: 5.0 for measure in many}]}
    lines = report.table_text(report.make_table(runs, many)).splitlines()
    assert lines[0].split() == ["ours"] and len(lines) == 11
    assert lines[1].split() == ["words/s", "of", "side", "0", "5"]


def test_a_side_that_was_left_out_has_a_reason_and_no_bar():
    runs = {"ours": RUNS["ours"], "peer": [{"left_out": "no memory"}, {"left_out": "none"}]}
    table = report.make_table(runs, MEASURES[:1])
    lines = cells(report.table_text(table))
    assert lines[-1] == "left out: peer: no memory" and "peer n/a" in lines
    record = table.rows[1].record
    assert record["left_out"] == "no memory" and record["median"] == {"speed": None}
    (panel,) = report.make_panels(table, "a: {}")
    assert (list(panel.values), panel.title) == (["ours"], "a: words/s")


def test_a_measure_that_no_side_has_is_not_shown():
    table = report.make_table({"ours": [{"speed": 5.0}]}, MEASURES)
    assert cells(report.table_text(table)) == ["words/s", "ours 5"]


def test_panels_leave_out_sides_without_the_figure():
    table = report.make_table(RUNS, MEASURES)
    panels = {panel.measure.key: panel for panel in report.make_panels(table)}
    assert panels.keys() == {"speed", "wait"}
    assert panels["wait"].values == {"ours": 0.03}
    assert panels["speed"].runs == {"ours": [3000.0, 5000.0], "peer": [900.0, 1100.0]}


def test_only_rows_of_ours_that_have_a_bar_count_as_ours():
    runs = {"a": [{"left_out": "no"}], "b": [{"speed": 1.0}], "c": [{"speed": 2.0}]}
    rows = [report.make_row(name, own, MEASURES[:1]) for name, own in runs.items()]
    table = report.Table("", MEASURES[:1], rows)
    (panel,) = report.make_panels(table, ours=2)
    assert panel.ours == 1 and list(panel.values) == ["b", "c"]
