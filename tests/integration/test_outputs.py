"""What a trained workdir gives to others: scores, neighbors, files for gensim and TensorFlow."""

import json

import numpy as np
import pytest
import tensorflow as tf

from app.tasks import trained_vectors
from app.text import vector_files
from tests.integration.commands import done, export, refusal, refused, run


@pytest.fixture(scope="module")
def words(trained):
    return trained_vectors.load(trained)


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    """The vectors of the workdir in both formats of word2vec."""
    folder = tmp_path_factory.mktemp("exported")
    for name in ("word2vec", "word2vec_binary"):
        ended = export(folder, trained, name, name)
        assert ended.out == f"{folder}/{name}: 60 vectors of 8 numbers, as {name}\n"
    return folder


def test_the_first_words_only(tmp_path, trained, words):
    export(tmp_path, trained, "word2vec", "few.txt", "--restrict=5")
    few = vector_files.read(tmp_path / "few.txt")
    assert few.tokens == words.tokens[:5]
    np.testing.assert_array_equal(few.matrix, words.matrix[:5])


@pytest.mark.parametrize("name", ["word2vec", "word2vec_binary"])
def test_gensim_loads_what_we_export(words, exported, name):
    models = pytest.importorskip("gensim.models")
    binary = name == "word2vec_binary"
    loaded = models.KeyedVectors.load_word2vec_format(str(exported / name), binary=binary)
    assert loaded.index_to_key == words.tokens
    np.testing.assert_array_equal(loaded.vectors, words.matrix)


def test_the_saved_model_answers_for_words(tmp_path, trained, words):
    export(tmp_path, trained, "saved_model", "model")
    lookup = tf.saved_model.load(str(tmp_path / "model")).signatures["lookup"]
    found = lookup(words=tf.constant([*words.tokens, "strange"]))
    np.testing.assert_array_equal(found["known"], [True] * len(words.tokens) + [False])
    np.testing.assert_array_equal(found["vectors"][:-1], words.matrix)
    assert not found["vectors"][-1].numpy().any()


def test_hand_over_formats(tmp_path, trained, words):
    export(tmp_path, trained, "safetensors", "file.safetensors")
    tensors = pytest.importorskip("safetensors.numpy").load_file(tmp_path / "file.safetensors")
    np.testing.assert_array_equal(tensors["vectors"], words.matrix)
    assert json.loads(tensors["tokens"].tobytes()) == words.tokens
    export(tmp_path, trained, "parquet", "file.parquet")
    table = pytest.importorskip("pyarrow.parquet").read_table(tmp_path / "file.parquet")
    assert table["token"].to_pylist() == words.tokens
    assert table["count"].to_pylist() == words.counts.tolist()
    export(tmp_path, trained, "projector", "projector", "--limit=20")
    assert (tmp_path / "projector/projector_config.pbtxt").exists()


def test_a_text_encoder_with_weights(tmp_path, trained, words, exported):
    model2vec = pytest.importorskip("model2vec")
    export(tmp_path, trained, "static_embedding", "encoder", "--sif=0.001")
    model = model2vec.StaticModel.from_pretrained(tmp_path / "encoder")
    weights = 1e-3 / (1e-3 + words.counts / words.counts.sum())
    wanted = (weights[:2, None] * words.matrix[:2]).mean(axis=0)
    found = model.encode(" unknown ".join(words.tokens[:2]))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)
    of_file = ("app.export", "--format=static_embedding", f"--vectors={exported}/word2vec")
    done(tmp_path, *of_file, f"--output={tmp_path}/other")


@pytest.mark.slow
def test_scores_are_the_same_from_the_workdir_and_from_files(tmp_path, trained, exported):
    pairs, analogies, record = (tmp_path / name for name in ("pairs", "analogies", "out.json"))
    pairs.write_text("ba\tbe\t3\nda\tde\t5\nfa\tfe\t1\nga\tstrange\t9\n")
    analogies.write_text(": section\nba be da de\nfa fe ga ge\n")
    mine = (f"--pairs={pairs}", f"--analogies={analogies}", f"--json={record}")
    records = []
    files = [exported / "word2vec", exported / "word2vec_binary"]
    for source in (f"--workdir={trained}", *(f"--vectors={path}" for path in files)):
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
    assert "; 3 more have none" in refused(tmp_path, *ask, *(f"q{n}q" for n in range(8)))


ENCODER = ("--format=static_embedding", "--sif=0.001")
HELDOUT = {"--pairs": "p", "--analogies": "a", "--restrict": 9, "--case": "fold", "--vectors": "v"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["app.evaluate"], "give either --workdir=DIR, of a trained run, or --vectors=FILE"),
        (["app.neighbors", "{both}", "--vectors=x", "ba"], "give either --workdir=DIR"),
        (["app.export", "--vectors={folder}/word2vec"], "--output= is empty; name the file"),
        (["app.export", "--workdir={folder}", "--output=x"], "{folder}: no trained run there"),
        (["app.export", "{both}", "--output=x", "--case=exact"], "--case=exact: no such flag"),
        (
            ["app.export", "{both}", "--output=x", *ENCODER, "--restrict=5"],
            "--sif and --restrict: ",
        ),
        (
            ["app.export", "--vectors={folder}/word2vec", "--output=x", *ENCODER],
            "--sif=0.001 needs counts",
        ),
        (["app.evaluate", "--vectors={folder}/none"], "{folder}/none: No such file or directory"),
        (["app.evaluate", "--vectors={cut}"], "{cut}: ends after"),
        (["app.evaluate", "{both}", "--benchmarks=ws"], "--benchmarks=ws: no such benchmark"),
        (["app.evaluate", "{both}", "--benchmarks="], "--benchmarks= leaves nothing to score on; "),
        (["app.evaluate", "{both}", "--top=5"], "--top means nothing without --heldout=FILE; "),
        *(
            (["app.evaluate", "{both}", "--heldout=f", f"{name}={value}"], f"{name} means nothing")
            for name, value in HELDOUT.items()
        ),
        (["app.evaluate", "{both}", "ba"], "'ba' is not a flag"),
        (["app.neighbors", "{both}"], "give words, as in"),
        (["app.neighbors", "{both}", "ba", "--analogy=a"], "give words (ba …) or --analogy, and"),
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


FORMATS = "word2vec", "word2vec_binary", "saved_model", "projector", "safetensors", "parquet"


@pytest.mark.parametrize("name", [*FORMATS, "static_embedding"])
def test_an_output_that_cannot_be_written(tmp_path, trained, name):
    (tmp_path / "file").write_text("in the way")
    output = f"{tmp_path}/file/out"
    command = ("app.export", f"--workdir={trained}", f"--format={name}", f"--output={output}")
    line = refused(tmp_path, *command)
    assert f"cannot write {output}" in line and f": {tmp_path}/file is a file, not a f" in line
