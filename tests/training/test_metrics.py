import io
import json
import logging
import sys
import types

import pytest
import tensorflow as tf

from app.checkpoints.checkpoint import Position
from app.errors import RunError
from app.training import metrics
from app.training.metrics import Display, Interval, Metrics, write_closing_scores

VALUES = {
    "epoch": 0.5,
    "words_per_second": 12345.6,
    "loss": 1.5,
    "learning_rate": 0.25,
    "input_wait": 0.031,
    "seconds_left": 125.0,
}


def steps(path):
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def scalars(folder):
    """Step, name and value of each metric in the event files of a folder, in their order."""
    return [
        (event.step, value.tag, float(tf.make_ndarray(value.tensor)))
        for path in sorted(folder.iterdir())
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
        if "/" in value.tag and value.tensor.dtype == tf.float32.as_datatype_enum
    ]


def test_a_line_a_step(tmp_path):
    written = Metrics(tmp_path / "m.jsonl", tmp_path / "tensorboard", 0)
    written.write(3, {"loss": 1.5})
    written.write(7, {"loss": 0.1, "perplexity": 1e304})  # infinite in float32
    written.close()
    lines = (tmp_path / "m.jsonl").read_text().splitlines()
    assert lines == ['{"step": 3, "loss": 1.5}', '{"step": 7, "loss": 0.1, "perplexity": 1e+304}']
    infinite = (7, "perplexity/train", float("inf"))
    assert scalars(tmp_path / "tensorboard") == [
        (3, "loss/train", 1.5),
        (7, "loss/train", pytest.approx(0.1)),
        infinite,
    ]


def test_closing_scores_are_written_once(tmp_path):
    path, folder = tmp_path / "m.jsonl", tmp_path / "tensorboard"
    path.write_text('{"step": 4, "loss": 1.0}\n{"st')
    for _ in range(2):
        write_closing_scores(path, folder, 4, {"ws353": 0.25})
    write_closing_scores(path, folder, 4, {})
    assert path.read_text() == '{"step": 4, "loss": 1.0}\n{"step": 4, "ws353": 0.25}\n'
    assert scalars(folder) == [(4, "score/ws353", 0.25)]
    write_closing_scores(path, folder, 4, {"ws353": 0.5})
    assert path.read_text().endswith('{"step": 4, "ws353": 0.5}\n') and steps(path) == [4] * 3
    write_closing_scores(tmp_path / "none.jsonl", folder, 0, {"ws353": 0.5})
    assert steps(tmp_path / "none.jsonl") == [0]


def test_lines_after_the_step_of_the_checkpoint_go(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 2}\n{"step": 4}\n{"step": 6}\n{"st')
    written = Metrics(path, tmp_path / "tensorboard", 4)
    assert steps(path) == [2, 4]
    written.write(6, {"loss": 1.0})
    written.close()
    assert steps(path) == [2, 4, 6]
    Metrics(path, tmp_path / "tensorboard", 0).close()
    assert steps(path) == []


def test_damaged_lines_are_left_out_and_told_once(tmp_path, caplog):
    path = tmp_path / "m.jsonl"
    lines = [
        b'{"step": 2}',
        b"\xff\xfe",
        b"[" * 100_000,
        b"3",
        b'["step"]',
        b"{}",
        b'{"step": "4"}',
        b'{"step": null}',
        b'{"step": -Infinity}',
        b'{"step": 1, "train_seconds": "9"}',
        b"",
        b'{"step": 4, "train_seconds": null, "loss": 9%b}' % (b"9" * 400),
        b'{"st',
    ]
    path.write_bytes(b"\n".join(lines))
    with caplog.at_level(logging.WARNING, logger="absl"):
        Metrics(path, tmp_path / "tensorboard", 4).close()
    assert steps(path) == [2, 4]
    told = f"{path}: 10 damaged line(s) are left out; the run goes on"
    assert [record.getMessage() for record in caplog.records] == [told]


def test_a_file_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    written = Metrics(tmp_path / "file" / "m.jsonl", tmp_path / "tensorboard", 0)
    with pytest.raises(RunError, match="m.jsonl: Not a directory; mend that and run again$"):
        written.write(1, {"loss": 1.0})
    written.close()
    with pytest.raises(RunError, match="^cannot write .*/file/tensorboard: [^\n]*; mend that and"):
        written = Metrics(tmp_path / "m.jsonl", tmp_path / "file" / "tensorboard", 0)
        written.write(1, {"loss": 1.0})


def test_a_line_where_there_is_no_terminal(caplog):
    display = Display(10, 0, unit="words")
    with caplog.at_level(logging.INFO, logger="absl"):
        display.advance()
        display.show(64, VALUES)
        display.close()
    assert [record.getMessage() for record in caplog.records] == [
        "step 64: epoch 0.50, 12,346 words/s, loss 1.5000, rate 0.2500, "
        "waiting for input 3.1%, 2:05 left"
    ]


def test_lines_with_what_only_some_runs_have(caplog):
    display = Display(10, 0, unit="words")
    with caplog.at_level(logging.INFO, logger="absl"):
        display.show(64, VALUES | {"perplexity": 1234.56})
        display.show_scores(64, {"epoch": 2, "heldout_perplexity": 1234.5678})
    assert ", loss 1.5000 (perplexity 1,234.6), rate" in caplog.records[0].getMessage()
    assert caplog.records[1].getMessage() == "step 64: epoch 2, heldout perplexity 1,234.57"


def test_a_bar_on_a_terminal(monkeypatch, caplog):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    display = Display(10, 4, unit="words")
    display.show(64, VALUES)
    with caplog.at_level(logging.INFO, logger="absl"):
        display.show_scores(64, {"epoch": 2})
    display.advance()
    display.close()
    assert "4/10" in terminal.getvalue() and "12,346 words/s, loss 1.5000" in terminal.getvalue()
    assert [record.getMessage() for record in caplog.records] == ["step 64: epoch 2"]


# After 5 calls 5 are left, and those after the first took 4 seconds for the 5 so far. An interval
# of the first call alone knows no better than its 10 seconds.
@pytest.mark.parametrize(("closes", "expected"), [((5,), [4.0]), ((1, 5), [90.0, 5.0])])
def test_the_first_call_does_not_count_for_the_seconds_left(monkeypatch, closes, expected):
    """The first of 10 calls takes 10 seconds, each other one."""
    now = [0.0]
    monkeypatch.setattr(metrics.time, "perf_counter", lambda: now[0])
    data = types.SimpleNamespace(epoch_size=100, unit="words")
    job = types.SimpleNamespace(data=data, loss_metrics=lambda loss: {})
    position = Position(batches=10)
    measured = Interval(job, 1, position)
    left = []
    for number, _ in enumerate(measured.measure_waits(iter(range(10))), 1):
        now[0] += 10.0 if number == 1 else 1.0
        measured.losses.append((1.0, 1.0))
        position.batch = number
        if number in closes:
            left.append(measured.close(position, 0.1)["seconds_left"])
    assert left == pytest.approx(expected)
