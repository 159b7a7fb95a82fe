from __future__ import annotations

import pytest

from app.checkpoints.workdir import Workdir
from app.errors import UsageError
from app.settings import CorpusConfig
from app.tasks import recorded_corpus
from app.text import corpus

WHERE = CorpusConfig(), Workdir("run")


def test_only_the_recorded_text_is_recognized(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a b")
    recorded = corpus.fingerprint((str(path),))
    assert recorded_corpus.recognize((str(path),), recorded, *WHERE, False) == recorded
    assert recorded_corpus.recognize((str(path),), None, *WHERE, False) is None
    path.write_text("a c")
    assert recorded_corpus.recognize((str(path),), recorded, *WHERE, True) is None
    with pytest.raises(UsageError, match="^--corpus=docstrings is not what --workdir=run was made"):
        recorded_corpus.recognize((str(path),), recorded, *WHERE, False)
