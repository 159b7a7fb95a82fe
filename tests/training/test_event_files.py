"""The event files of a run, as TensorBoard reads them."""

from __future__ import annotations

import json
import pathlib

import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata

from app.settings.checks import make_config
from app.settings.flag_values import by_name
from app.training import event_files
from app.training.metric_names import tag
from app.training.metrics import Metrics, write_closing_scores


def loaded(folder):
    events = EventAccumulator(str(folder), {"tensors": 0})
    events.Reload()
    return events


def curve(events, name):
    return [(e.step, float(tf.make_ndarray(e.tensor_proto))) for e in events.Tensors(name)]


def write_lines(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("loss", "loss/train"),
        ("learning_rate", "train/learning_rate"),
        ("pairs_per_second", "speed/pairs_per_second"),
        ("heldout_macro_f1", "score/macro_f1"),
        ("recall@10", "score/recall@10"),
        ("ws353", "score/ws353"),
    ],
)
def test_metrics_are_in_groups(name, expected):
    assert tag(name) == expected


def test_a_resumed_run_has_one_curve_whatever_wrote_its_files(tmp_path):
    jsonl, board = tmp_path / "metrics.jsonl", tmp_path / "tensorboard"
    write_lines(
        jsonl,
        {"step": 2, "loss": 3.0, "train_seconds": 10.0},
        {"step": 2, "heldout_accuracy": 0.5},
        {"step": 4, "loss": 2.0, "train_seconds": 30.0},
    )
    # An earlier version wrote above, and the workdir had another name.
    old = (board, board / "before", board / "now")
    for folder in old:
        folder.mkdir(exist_ok=True)
        (folder / "events.out.tfevents.1.host").write_bytes(b"")
        (folder / "vectors.tsv").write_text("1\n")
    kept = board / "plugins/profile/2026/host.xplane.pb"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"a profile")
    metrics = Metrics(jsonl, board / "now", 2)
    metrics.write(4, {"loss": 1.0, "train_seconds": 31.0})
    metrics.close()
    write_closing_scores(jsonl, board / "now", 4, {"heldout_accuracy": 0.75})
    events = loaded(board / "now")
    assert curve(events, "loss/train") == [(2, 3.0), (4, 1.0)]
    assert curve(events, "score/accuracy") == [(2, 0.5), (4, 0.75)]
    left = {path.relative_to(board) for path in board.rglob("*") if path.is_file()}
    assert {str(path) for path in left if "tfevents" not in path.name} == {
        "now/vectors.tsv",
        "plugins/profile/2026/host.xplane.pb",
    }
    assert {str(path.parent) for path in left if "tfevents" in path.name} == {"now"}
    times = [event.wall_time for event in events.Tensors("loss/train")]
    assert 0 <= times[1] - times[0] < 5  # 10 s were trained by step 2, and none since


def test_settings_are_text_and_hyperparameters(tmp_path):
    config = make_config({"task": "words", "dim": 30, "log_seconds": 1.0, "corpus": "a.txt"})
    jsonl = pathlib.Path("runs/now/metrics.jsonl")
    event_files.begin(tmp_path, jsonl, by_name(config)).close()
    events = loaded(tmp_path)
    (text,) = events.Tensors("settings")
    (markdown,) = text.tensor_proto.string_val
    lines = markdown.decode().splitlines()
    changed = ["corpus | **`a.txt`** | `docstrings`", "dim | **`30`** | `100`"]
    assert lines[2:4] == changed and "window | `5` | `5`" in lines
    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    session = metadata.parse_session_start_info_plugin_data(content)
    assert session.group_name == "now (runs)"
    values = session.hparams
    assert values["dim"].number_value == 30 and values["corpus"].string_value == "a.txt"
    assert values["loss"].string_value == "negative_sampling"
    # No effect, not of what is trained, or empty.
    assert not {"cutoffs", "ngram_buckets", "log_seconds", "workdir", "vocab"} & set(values)


def test_a_description_of_every_curve(tmp_path):
    events = event_files.EventFile(tmp_path)
    names = ("loss", "words_per_second", "input_wait", "ws353", "heldout_accuracy", "ndcg@10")
    for step in (1, 2):
        events.write(step, dict.fromkeys(names, 1.0))
    events.close()
    found = loaded(tmp_path)
    for name in names:
        metadata_of = found.SummaryMetadata(tag(name))
        assert metadata_of.plugin_data.plugin_name == "scalars"
        assert metadata_of.summary_description.endswith(".")
        assert curve(found, tag(name)) == [(1, 1.0), (2, 1.0)]
