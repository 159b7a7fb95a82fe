"""Texts in columns of files train every task of text; a run of words writes its closing scores."""

import json

import pytest

from tests.integration.commands import done, logged, refused, train

# Of WordSim-353.
PAIRS = ["tiger cat", "book paper", "computer keyboard", "plane car", "train car", "king queen"]
LINES = [PAIRS[number % 6] + " " + PAIRS[number * 5 % 6] for number in range(400)]


def write_objects(path, **columns):
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_table(path, **columns):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table(columns), path)


@pytest.mark.slow
def test_words_of_columns_and_their_closing_scores(tmp_path):
    pytest.importorskip("gensim")
    write_objects(tmp_path / "a, of 1.txt", id=range(200), text=LINES[:200])
    write_table(tmp_path / "b.txt", text=LINES[200:])
    corpus, workdir = f'"{tmp_path}/a, of 1.txt",{tmp_path}/b.txt', tmp_path / "run"
    ended = done(tmp_path, *train(workdir, corpus, "--text_column=text"))
    (tmp_path / "plain.txt").write_text("\n".join(LINES) + "\n")
    done(tmp_path, *train(tmp_path / "plain", tmp_path / "plain.txt"))
    assert (workdir / "vocab.tsv").read_bytes() == (tmp_path / "plain/vocab.tsv").read_bytes()
    (line,) = (line for line in ended.err.splitlines() if line.startswith("ws353"))
    for _ in range(2):  # a finished run that is called again writes nothing twice
        rows = logged(workdir)
        assert all("loss" in row or "ws353" in row for row in rows[:-1])
        assert list(rows[-1]) == ["step", "epoch", "ws353"]
        assert rows[-1]["step"] == max(row["step"] for row in rows) and rows[-1]["epoch"] == 2
        assert f"{rows[-1]['ws353']:.3f}" in line
        done(tmp_path, "app.train", f"--workdir={workdir}")


@pytest.mark.slow
def test_a_language_model_of_a_column(tmp_path):
    write_table(tmp_path / "a", text=LINES)
    flags = ("--task=language_model", "--text_column=text", "--dim=8", "--hidden=8", "--epochs=1")
    more = (f"--corpus={tmp_path}/a", f"--workdir={tmp_path}/run", "--device=CPU:0")
    done(tmp_path, "app.train", *flags, *more)
    words = json.loads((tmp_path / "run/corpus.json").read_text())["words"]
    assert words == 400 * 5  # with the end of each row


@pytest.mark.slow
def test_labelled_texts_of_a_column(tmp_path):
    labels = ["royal" if "king" in line else "other" for line in LINES]
    write_objects(tmp_path / "a", text=LINES, label=labels)
    write_table(tmp_path / "b", text=LINES[:50], label=[[label] for label in labels[:50]])
    flags = ("--task=classify", "--text_column=text", "--label_column=label", "--epochs=20")
    more = (f"--corpus={tmp_path}/a", f"--heldout={tmp_path}/b", f"--workdir={tmp_path}/run")
    done(tmp_path, "app.train", *flags, *more, "--dim=8", "--device=CPU:0")
    scores = f"--json={tmp_path}/scores.json"
    done(tmp_path, "app.evaluate", f"--workdir={tmp_path}/run", f"--heldout={tmp_path}/b", scores)
    assert json.loads((tmp_path / "scores.json").read_text())["accuracy"] > 0.9


@pytest.mark.parametrize("task", ["words", "language_model", "classify"])
def test_columns_that_are_not_named(tmp_path, task):
    write_objects(tmp_path / "a.txt", id=range(400), text=LINES)
    files = (f"--corpus={tmp_path}/a.txt", f"--workdir={tmp_path}/run")
    line = refused(tmp_path, "app.train", *files, "--device=CPU:0", f"--task={task}")
    assert "a.txt is a file of JSON lines with the columns id, text; name the one that" in line
    assert not (tmp_path / "run/checkpoints").exists()
