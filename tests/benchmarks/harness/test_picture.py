from __future__ import annotations

import importlib.util

import pytest

from app.benchmarks.harness import picture
from app.benchmarks.harness.report import Lines, Measure, Panel
from app.errors import UsageError

SPEED = Panel(
    Measure("speed", "words/s", ",.0f", better="higher"),
    {"ours": 4000.0, "peer": 1000.0},
    {"ours": [3000.0, 5000.0], "peer": [900.0, 1100.0]},
)
SCORE = Panel(Measure("score", "score", ".3f"), {"ours": -0.02}, {"ours": [-0.02]})
ZERO = Panel(Measure("zero", "zero", ".1f"), {"ours": 0.0}, {"ours": [0.0]})


STEP = Measure("step_ms", "ms a step", ".1f", better="lower")
LOG = Panel(STEP, {"a": 3.0, "b": 900.0}, {"a": [3.0], "b": [900.0]}, "title", ours=2, log=True)
LINES = Lines(
    {"ours": {10: 1.0, 100: 2.0}, "peer": {10: 3.0}}, "title", "rows", frozenset({"peer"})
)


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".SVG", b"<?xml")])
def test_a_picture_is_drawn(tmp_path, suffix, start):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"bars{suffix}"
    picture.draw([SPEED, SCORE, ZERO, LOG, LINES], "title", "the machine", str(path))
    assert path.read_bytes().startswith(start)
    assert list(tmp_path.iterdir()) == [path]


def test_lines_alone_and_nothing_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    for panels in ([LINES], [LINES] * 4, []):
        path = tmp_path / f"{len(panels)}.png"
        picture.draw(panels, "title", "the machine", str(path))
        assert path.exists()


def axes():
    figure = pytest.importorskip("matplotlib.figure")
    return figure.Figure().subplots()


def test_logarithmic_bars_share_a_scale_that_shows_all_of_them():
    less = Panel(STEP, {"a": 1.0}, {"a": [0.9, 1.0, 1.1]}, "title", log=True)
    low, high = picture._log_scale([SPEED, LOG, less, LINES])
    assert (low, picture._log_scale([SPEED, LINES])) == (0.1, None)
    assert high > 900
    drawn = axes()
    picture._bars(drawn, LOG, 5, (low, high))
    assert drawn.get_xscale() == "log" and drawn.get_xlim() == (low, high)
    assert [bar.get_x() for bar in drawn.patches] == [low, low]
    assert [bar.get_x() + bar.get_width() for bar in drawn.patches] == [3.0, 900.0]
    assert drawn.get_ylim() == (4.5, -0.5)  # as thick as in a panel of five
    assert drawn.get_title(loc="left") == "title (log scale)"


def test_ours_and_peers_have_colours_of_their_own():
    drawn = axes()
    picture._bars(drawn, LOG._replace(ours=1), 2, (1, 1000))
    first, second = (bar.get_facecolor() for bar in drawn.patches)
    assert first != second


def test_lines_look_the_same_in_all_panels_and_peers_apart():
    more = LINES._replace(values={"new": {10: 1.0}, **LINES.values})
    styles = picture._styles([LINES, more])
    assert list(styles) == ["ours", "new", "peer"]
    assert styles["peer"]["linestyle"] == "--" and styles["ours"] != styles["new"]
    drawn = axes()
    picture._lines(drawn, LINES, styles)
    assert (drawn.get_xscale(), drawn.get_yscale()) == ("log", "log")
    assert [line.get_label() for line in drawn.lines] == ["ours", "peer"]
    assert [label.get_text() for label in drawn.get_xticklabels()] == ["10", "100"]


def test_an_unknown_format_and_a_missing_matplotlib_are_one_line(monkeypatch):
    with pytest.raises(UsageError, match=r"--plot=bars.txt: give a name that ends in .png"):
        picture.check("bars.txt")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="--plot=bars.png: matplotlib is missing"):
        picture.check("bars.png")


def test_a_long_title_takes_several_lines(tmp_path):
    pytest.importorskip("matplotlib")
    words = [f"setting{number}" for number in range(30)]
    path = tmp_path / "bars.svg"
    picture.draw([SPEED, SCORE, ZERO], " ".join(words), "the machine", str(path))
    lines = [line for line in path.read_text().splitlines() if "setting" in line]
    assert len(lines) >= 2 and all(line.count("setting") < 12 for line in lines)
    assert all(any(word in line for line in lines) for word in words)
