from __future__ import annotations

import pytest

from app.benchmarks.harness import trials


def test_the_order_is_turned_round_at_each_repeat():
    order = []

    def run(side, repeat):
        order.append((repeat, side))
        return {"run": len(order)}

    runs = trials.alternate(["ours", "peer"], 3, run)
    assert order == [(0, "ours"), (0, "peer"), (1, "peer"), (1, "ours"), (2, "ours"), (2, "peer")]
    assert runs["ours"] == [{"run": 1}, {"run": 4}, {"run": 5}]
    assert runs["peer"] == [{"run": 2}, {"run": 3}, {"run": 6}]


def test_the_figures_of_each_run_are_logged_as_it_ends(caplog):
    figures = [
        {"words_per_second": 851_275.4, "ws353": 0.66612, "wait": None, "scores": {"ws353": 0.6}},
        {"left_out": "too little memory"},
    ]

    def run(side, repeat):
        if repeat == len(figures):
            raise KeyboardInterrupt
        return figures[repeat]

    with caplog.at_level("INFO", logger="absl"), pytest.raises(KeyboardInterrupt):
        trials.alternate(["ours"], 3, run)
    assert caplog.messages == [
        "run 1 of 3: ours",
        "  words_per_second 851,275, ws353 0.6661",
        "run 2 of 3: ours",
        "  left out: too little memory",
        "run 3 of 3: ours",
    ]


def test_medians_are_by_value_and_unknown_where_a_run_has_none():
    runs = [{"a": 1.0, "b": 5.0}, {"a": 9.0, "b": None}, {"a": 2.0, "b": 5.0}]
    assert trials.medians(runs) == {"a": 2.0, "b": None}
    assert trials.medians(runs[:2])["a"] == 5.0


def test_ours_is_compared_by_ratio_and_difference_where_both_have_a_value():
    ours = {"speed": 6.0, "score": 0.5, "wait": 0.1, "zero": 1.0, "none": None}
    compared = trials.compare(ours, {"speed": 2.0, "score": 0.4, "zero": 0.0, "none": 1.0})
    assert compared["speed"] == {"ratio": 3.0, "difference": 4.0}
    assert compared["score"]["difference"] == pytest.approx(0.1)
    assert compared["zero"] == {"ratio": None, "difference": 1.0}
    assert compared.keys() == {"speed", "score", "zero"}
