import errno
import os
import shutil

import numpy as np
import pytest

from app.checkpoints.checkpoint import Position
from app.checkpoints.table_checkpoints import Checkpoints
from app.checkpoints.workdir import Workdir, write_flags
from app.errors import RunError, UsageError
from app.settings import CorpusConfig, RunConfig
from app.tables.device import DeviceTable
from app.tables.initial import Constant
from app.tasks import recorded_corpus, trained_vectors
from app.text import corpus
from app.text.vocabulary import Vocabulary, save


def trained(folder, step):
    workdir = Workdir(folder)
    folder.mkdir(exist_ok=True)
    write_flags(workdir.flags, {"task": "words"})
    save(Vocabulary(["a", "b"], np.array([2, 1]), 3), str(workdir.vocabulary))
    table = DeviceTable(2, 4, Constant(float(step)))
    Checkpoints(workdir.checkpoints, {"input": table}).save(Position(step=step))


def test_the_vectors_of_words_are_those_of_the_newest_checkpoint(tmp_path):
    trained(tmp_path, 1)
    trained(tmp_path, 2)
    found = trained_vectors.load(tmp_path)
    assert found.tokens == ["a", "b"] and found.matrix.tolist() == [[2.0] * 4] * 2


def test_a_checkpoint_may_go_while_it_is_read(tmp_path, monkeypatch):
    trained(tmp_path, 1)
    read_ids, seen = trained_vectors.read_ids, []

    def read(folder, name, **how):
        seen.append(folder.name)
        if len(seen) == 1:
            trained(tmp_path, 2)
            shutil.rmtree(folder, ignore_errors=True)
        return read_ids(folder, name, **how)

    monkeypatch.setattr(trained_vectors, "read_ids", read)
    assert trained_vectors.load(tmp_path).matrix[0, 0] == 2
    assert len(seen) == 2


def test_a_folder_without_a_run_and_one_that_cannot_be_read(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=f"^--workdir={tmp_path}: no trained run there"):
        trained_vectors.load(tmp_path)

    def refuse(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(RunError, match=f"^cannot read {tmp_path}/best: Permission denied; make"):
        trained_vectors.load(tmp_path)


@pytest.mark.parametrize("lines", ["a\t2\n", "a\t3\nb\t2\nc\t1\n"])
def test_names_that_are_not_those_of_the_rows(tmp_path, lines):
    trained(tmp_path, 1)
    vocabulary = tmp_path / "vocab.tsv"
    vocabulary.write_text(lines)
    count = lines.count("\n")
    message = f"^{vocabulary} has {count} names, which do not fit the 2 rows of .*; put back a copy"
    with pytest.raises(RunError, match=message):
        trained_vectors.load(tmp_path)


def test_a_missing_file_of_names_is_no_damage_of_a_checkpoint(tmp_path, caplog):
    trained(tmp_path, 1)
    (tmp_path / "vocab.tsv").unlink()
    with pytest.raises(RunError, match=f"^{tmp_path}/vocab.tsv is missing; put back a copy"):
        trained_vectors.load(tmp_path)
    assert not caplog.records


@pytest.mark.parametrize(
    ("flags", "form"),
    [
        ({}, ""),
        ({"tokenizer": "whitespace", "fold_case": True}, ""),
        ({"tokenizer": "unicode"}, "NFKC_Casefold"),
        ({"tokenizer": "unicode", "fold_case": True}, "NFKC_Casefold"),
        ({"tokenizer": "unicode", "fold_case": False}, "NFKC"),
    ],
)
def test_queries_are_written_as_the_run_wrote_words(tmp_path, flags, form):
    trained(tmp_path, 1)
    write_flags(Workdir(tmp_path).flags, {"task": "words", **flags})
    assert trained_vectors.load(tmp_path).form == form


WHERE = CorpusConfig(), Workdir("run")


def test_only_the_recorded_text_is_recognized(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a b")
    recorded = corpus.fingerprint((str(path),))
    assert recorded_corpus.recognize((str(path),), recorded, *WHERE, None) == recorded
    assert recorded_corpus.recognize((str(path),), None, *WHERE, None) is None
    path.write_text("a c")
    assert recorded_corpus.recognize((str(path),), recorded, *WHERE, RunConfig()) is None
    with pytest.raises(UsageError, match="^--corpus=docstrings is not what --workdir=run was made"):
        recorded_corpus.recognize((str(path),), recorded, *WHERE, None)
