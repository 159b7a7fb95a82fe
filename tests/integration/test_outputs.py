"""What a trained workdir gives to others: scores, neighbors, files for gensim and TensorFlow."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

from app.tasks import trained_vectors
from app.text import vector_files
from tests.integration.commands import done, refusal, run


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    """The vectors of the workdir in both formats of word2vec."""
    folder = tmp_path_factory.mktemp("exported")
    for name in ("word2vec", "word2vec_binary"):
        export = ("app.export", f"--workdir={trained}", f"--format={name}")
        ended = done(folder, *export, f"--output={folder}/{name}")
        assert ended.out == f"{folder}/{name}: 60 vectors of 8 numbers\n"
    return folder


def test_the_first_words_only(tmp_path, trained):
    export = ("app.export", f"--workdir={trained}")
    done(tmp_path, *export, "--restrict=5", f"--output={tmp_path}/few.txt")
    words = trained_vectors.load(trained)
    few = vector_files.read(tmp_path / "few.txt")
    assert few.tokens == words.tokens[:5]
    np.testing.assert_array_equal(few.matrix, words.matrix[:5])
    for flags, told in (
        (["--format=static_embedding", "--restrict=5", "--sif=0.1"], "--sif and --restrict: "),
        (["--case=exact"], "case"),
    ):
        assert told in refusal(run(tmp_path, *export, *flags, f"--output={tmp_path}/new"))


@pytest.mark.parametrize("name", ["word2vec", "word2vec_binary"])
def test_gensim_loads_what_we_export(trained, exported, name):
    models = pytest.importorskip("gensim.models")
    binary = name == "word2vec_binary"
    loaded = models.KeyedVectors.load_word2vec_format(str(exported / name), binary=binary)
    words = trained_vectors.load(trained)
    assert loaded.index_to_key == words.tokens
    np.testing.assert_array_equal(loaded.vectors, words.matrix)


def test_the_saved_model_answers_for_words(tmp_path, trained):
    folder = tmp_path / "model"
    export = ("app.export", f"--workdir={trained}", "--format=saved_model", f"--output={folder}")
    done(tmp_path, *export)
    lookup = tf.saved_model.load(str(folder)).signatures["lookup"]
    words = trained_vectors.load(trained)
    found = lookup(words=tf.constant([*words.tokens, "strange"]))
    np.testing.assert_array_equal(found["known"], [True] * len(words.tokens) + [False])
    np.testing.assert_array_equal(found["vectors"][:-1], words.matrix)
    assert not found["vectors"][-1].numpy().any()


def test_hand_over_formats(tmp_path, trained):
    words = trained_vectors.load(trained)
    export = ("app.export", f"--workdir={trained}")
    done(tmp_path, *export, "--format=safetensors", f"--output={tmp_path}/file.safetensors")
    tensors = pytest.importorskip("safetensors.numpy").load_file(tmp_path / "file.safetensors")
    np.testing.assert_array_equal(tensors["vectors"], words.matrix)
    assert json.loads(tensors["tokens"].tobytes()) == words.tokens
    done(tmp_path, *export, "--format=parquet", f"--output={tmp_path}/file.parquet")
    table = pytest.importorskip("pyarrow.parquet").read_table(tmp_path / "file.parquet")
    assert table["token"].to_pylist() == words.tokens
    assert table["count"].to_pylist() == words.counts.tolist()


def test_a_text_encoder_with_weights(tmp_path, trained, exported):
    model2vec = pytest.importorskip("model2vec")
    words = trained_vectors.load(trained)
    export = ("app.export", "--format=static_embedding", "--sif=0.001")
    done(tmp_path, *export, f"--workdir={trained}", f"--output={tmp_path}/encoder")
    model = model2vec.StaticModel.from_pretrained(tmp_path / "encoder")
    weights = 1e-3 / (1e-3 + words.counts / words.counts.sum())
    wanted = (weights[:2, None] * words.matrix[:2]).mean(axis=0)
    found = model.encode(" unknown ".join(words.tokens[:2]))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)
    vectors = (f"--vectors={exported}/word2vec", f"--output={tmp_path}/other")
    assert "--sif=0.001 needs counts" in refusal(run(tmp_path, *export, *vectors))
    assert "--sif" in refusal(run(tmp_path, *export[:2], *vectors, "--sif=nan"))
    done(tmp_path, *export[:2], *vectors)


def test_the_projector_gets_its_files(tmp_path, trained):
    export = ("app.export", f"--workdir={trained}", "--format=projector", "--limit=20")
    done(tmp_path, *export, f"--output={tmp_path}/projector")
    assert (tmp_path / "projector/projector_config.pbtxt").exists()


@pytest.mark.slow
def test_scores_are_the_same_from_the_workdir_and_from_files(tmp_path, trained, exported):
    pairs, analogies, record = (tmp_path / name for name in ("pairs", "analogies", "out.json"))
    pairs.write_text("ba\tbe\t3\nda\tde\t5\nfa\tfe\t1\nga\tstrange\t9\n")
    analogies.write_text(": section\nba be da de\nfa fe ga ge\n")
    mine = (f"--pairs={pairs}", f"--analogies={analogies}", f"--json={record}")
    records = []
    sources = [
        f"--workdir={trained}",
        *(f"--vectors={path}" for path in exported.glob("word2vec*")),
    ]
    assert len(sources) == 3
    for source in sources:
        ended = done(tmp_path, "app.evaluate", source, *mine)
        records.append(json.loads(record.read_text()))
        assert ended.out.startswith("benchmark") and "protocol of" in ended.out
    assert records[0] == records[1] == records[2]
    assert set(records[0]) == {"ws353", "simlex999", "analogy", str(pairs), str(analogies)}
    assert (records[0][str(pairs)]["used"], records[0][str(pairs)]["skipped"]) == (3, 1)
    assert records[0][str(analogies)]["used"] == 2


def test_neighbors(tmp_path, trained, exported):
    for source in (f"--workdir={trained}", f"--vectors={exported}/word2vec"):
        lines = done(tmp_path, "app.neighbors", source, "ba", "be", "--k=3").out.splitlines()
        assert lines[0] == "ba" and lines[4] == "be" and len(lines) == 8
        cosines = [float(line.split()[0]) for line in lines[1:4]]
        assert cosines == sorted(cosines, reverse=True) and -1 <= cosines[-1] <= cosines[0] <= 1
    analogy = done(tmp_path, "app.neighbors", f"--workdir={trained}", "--analogy=ba - be + da")
    assert len(analogy.out.splitlines()) == 11


def test_words_that_are_known_are_answered(tmp_path, trained):
    ask = ("app.neighbors", f"--workdir={trained}", "--k=3")
    expected = done(tmp_path, *ask, "ba", "be").out
    ended = run(tmp_path, *ask, "gaa", "ba", "qqq", "be", "--", "--help")
    line = refusal(ended)
    assert ended.out == expected
    assert line.startswith("neighbors: 'gaa': unknown word; did you mean 'ga'")
    assert "'qqq': unknown word; use a word" in line and "'--help': unknown word" in line
    assert "; 3 more have none" in refusal(run(tmp_path, *ask, *(f"q{n}q" for n in range(8))))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["app.evaluate"], "give either --workdir=DIR, of a trained run, or --vectors=FILE"),
        (["app.neighbors", "{both}", "--vectors=x", "ba"], "give either --workdir=DIR"),
        (["app.export", "--vectors={folder}/word2vec"], "--output= is empty; name the file"),
        (["app.export", "--workdir={folder}", "--output=x"], "{folder}: no trained run there"),
        (
            ["app.export", "--workdir={folder}", "--output=x", "--format=faiss"],
            "{folder}: no trained",
        ),
        (["app.evaluate", "--vectors={folder}/none"], "{folder}/none: No such file or directory"),
        (["app.evaluate", "--vectors={cut}"], "{cut}: ends after"),
        (["app.evaluate", "{both}", "--benchmarks=ws"], "--benchmarks=ws: no such benchmark"),
        (["app.evaluate", "{both}", "--benchmarks="], "--benchmarks= leaves nothing to score on; "),
        (["app.evaluate", "{both}", "--top=5"], "--top means nothing without --heldout=FILE; "),
        *(
            (
                ["app.evaluate", "{both}", "--heldout=f", flag],
                f"{name} means nothing to --heldout=f; ",
            )
            for flag in ("--pairs=p", "--analogies=a", "--restrict=9", "--case=fold", "--vectors=v")
            for name in [flag.partition("=")[0]]
        ),
        (["app.evaluate", "{both}", "ba"], "'ba' is not a flag"),
        (["app.neighbors", "{both}"], "give words, as in"),
        (["app.neighbors", "{both}", "gaa"], "'gaa': unknown word; did you mean 'ga'"),
        (["app.neighbors", "{both}", "ba", "--k=0"], "--k=0"),
        (["app.export", "{both}", "--output=x", "--format=glove"], "--format=glove"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(tmp_path, trained, exported, arguments, message):
    cut = tmp_path / "cut"
    cut.write_bytes((exported / "word2vec_binary").read_bytes()[:-50])
    names = {"both": f"--workdir={trained}", "folder": exported, "cut": cut}
    ended = run(tmp_path, *(argument.format(**names) for argument in arguments))
    assert message.format(**names) in refusal(ended)
    assert not ended.out


@pytest.mark.parametrize(
    "name",
    [
        *("word2vec", "word2vec_binary", "saved_model", "projector"),
        *("safetensors", "parquet", "static_embedding"),
    ],
)
def test_an_output_that_cannot_be_written(tmp_path, trained, name):
    (tmp_path / "file").write_text("in the way")
    output = tmp_path / "file" / "out"
    ended = run(
        tmp_path, "app.export", f"--workdir={trained}", f"--format={name}", f"--output={output}"
    )
    line = refusal(ended)
    assert f"cannot write {output}" in line and f": {tmp_path}/file is a file, not a f" in line


def test_a_run_without_a_whole_checkpoint(tmp_path, trained):
    (tmp_path / "vocab.tsv").write_bytes((trained / "vocab.tsv").read_bytes())
    line = refusal(run(tmp_path, "app.evaluate", f"--workdir={tmp_path}"), code=1)
    assert f"{tmp_path}/checkpoints: there is no checkpoint; run `lexrow train`" in line
