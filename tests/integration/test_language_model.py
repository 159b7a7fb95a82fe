"""A language model as a person trains, scores and exports it."""

import json
import re

from tests.integration.commands import (
    ROOT,
    done,
    export,
    logged,
    newest_step,
    refused,
    write_corpus,
)


def test_a_language_model_from_its_configuration_to_its_export(tmp_path):
    corpus, other = write_corpus(tmp_path / "a.txt"), write_corpus(tmp_path / "b.txt", 20, seed=1)
    config = tmp_path / "small.cfg"
    config.write_text(
        (ROOT / "configs/language_model.cfg").read_text(encoding="utf-8")
        + f"--corpus={corpus}\n--dim=8\n--epochs=2\n--batch_tokens=256\n--row_tokens=16\n"
        "--steps_per_call=1\n--device=CPU:0\n--compute_dtype=float32\n"
    )
    workdir = tmp_path / "run"
    ended = done(tmp_path, "app.train", f"--flagfile={config}", f"--workdir={workdir}")
    # No classes, for few words.
    tables = ["input", "kernel", "recurrent", "bias", "state", "output"]
    (line,) = (line for line in ended.out.splitlines() if line.startswith("tables "))
    assert re.findall(r"(\w+) [\d,]+ x \d+ \(", line) == tables
    assert "words that are not held out" in ended.out
    scored = [row for row in logged(workdir) if "heldout_perplexity" in row]
    assert [row["epoch"] for row in scored] == [1, 2]
    # The words of this text are drawn at random, so that their shares are all there is to learn.
    assert all(20 < row["heldout_perplexity"] < 30 for row in scored)
    told = f"heldout perplexity {scored[1]['heldout_perplexity']:,.6g}"
    assert told in ended.err and "nearest words:" in ended.err
    assert not re.search("ws353|simlex|analogy", ended.err)  # scores of word vectors
    vocabulary = (workdir / "vocab.tsv").read_text(encoding="utf-8")
    assert {"<unk>", "<eos>"} <= {line.split("\t")[0] for line in vocabulary.splitlines()}

    evaluate = ("app.evaluate", f"--workdir={workdir}", f"--heldout={other}")
    ended = done(tmp_path, *evaluate, f"--json={tmp_path}/score.json")
    score = json.loads((tmp_path / "score.json").read_text())
    assert score["step"] == newest_step(workdir)
    assert score["tokens"] == len(other.read_text(encoding="utf-8").split()) + 20
    assert score["words"] == score["tokens"] - 20
    assert ended.out.startswith(f"perplexity {score['perplexity']:,.2f}, {score['loss']:.4f} nats")

    ended = export(tmp_path, workdir, "word2vec", "vectors.txt")
    assert f" {len(vocabulary.splitlines())} vectors of 8 numbers" in ended.out
    assert "ba" in done(tmp_path, "app.neighbors", f"--workdir={workdir}", "bo", "--k=99").out


def test_only_a_language_model_is_scored_on_text(tmp_path, trained):
    line = refused(tmp_path, "app.evaluate", f"--workdir={trained}", "--heldout=a.txt")
    assert "holds a run of --task=words; --heldout=a.txt scores --task=language_" in line
