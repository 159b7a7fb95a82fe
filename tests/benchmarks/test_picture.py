from __future__ import annotations

import importlib.util

import pytest

from app.benchmarks import picture
from app.benchmarks.report import Measure, Panel
from app.errors import UsageError

SPEED = Panel(
    Measure("speed", "words/s", ",.0f", better="higher"),
    {"ours": 4000.0, "peer": 1000.0},
    {"ours": [3000.0, 5000.0], "peer": [900.0, 1100.0]},
)
SCORE = Panel(Measure("score", "score", ".3f"), {"ours": -0.02}, {"ours": [-0.02]})
ZERO = Panel(Measure("zero", "zero", ".1f"), {"ours": 0.0}, {"ours": [0.0]})


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".SVG", b"<?xml")])
def test_a_picture_is_drawn(tmp_path, suffix, start):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"bars{suffix}"
    picture.draw([SPEED, SCORE, ZERO, SPEED], "title", "the machine", str(path))
    assert path.read_bytes().startswith(start)
    assert list(tmp_path.iterdir()) == [path]


def test_an_unknown_format_and_a_missing_matplotlib_are_one_line(monkeypatch):
    with pytest.raises(UsageError, match=r"--plot=bars.txt: give a name that ends in .png"):
        picture.check("bars.txt")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="--plot=bars.png: matplotlib is missing"):
        picture.check("bars.png")
