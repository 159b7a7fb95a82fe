"""What a plan says is what a run takes."""

from __future__ import annotations

import re

import pytest

from app.system import machine
from tests.integration.commands import Command, done, newest_step, train

WORDS = 12_000
UNITS = {"MB": 1e6, "GB": 1e9}


@pytest.fixture(scope="module")
def many_words(tmp_path_factory):
    """A corpus of so many words, each of which comes three times."""
    path = tmp_path_factory.mktemp("text") / "words.txt"
    lines = (" ".join(f"w{word + line}" for word in range(60)) for line in range(0, WORDS, 60))
    path.write_text("\n".join(lines) * 3)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [
        ("--optimizer=lazy_adam",),
        ("--table_dtype=bfloat16",),
        ("--table=host", "--hot_rows=3000", "--stage_steps=2"),
        ("--table=dynamic", "--table_gb=0.25"),
    ],
)
def test_a_run_takes_what_was_planned(tmp_path, many_words, flags):
    workdir = tmp_path / "run"
    more = ("--dim=2000", "--epochs=1", "--min_count=2", "--subsample=0", *flags)
    planned = done(tmp_path, *train(workdir, many_words, *more, "--plan_only"))
    (memory,) = re.findall(r"^memory +(.*)$", planned.out, re.MULTILINE)
    found = re.findall(r"([\d.]+) ([MG]B)", memory)
    expected = sum(float(number) * UNITS[unit] for number, unit in found)
    command, peak = Command(tmp_path, *train(workdir, many_words, *more)), 0
    status = machine.Path(f"/proc/{command.process.pid}/status")
    while command.process.is_alive() and newest_step(workdir) < 0:  # then vectors are scored
        taken = machine.read_field(status, "RssAnon")
        peak = max(peak, int(taken.split()[0]) * 1024 if taken else 0)
    assert command.ended().code == 0
    assert peak == pytest.approx(expected, rel=0.1)
