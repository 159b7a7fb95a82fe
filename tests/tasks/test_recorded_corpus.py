from __future__ import annotations

import pytest

from app.config import Config
from app.errors import UsageError
from app.tasks import recorded_corpus
from app.text import corpus


def test_only_the_recorded_text_is_recognized(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a b")
    recorded = corpus.fingerprint((str(path),))
    assert recorded_corpus.recognize((str(path),), recorded, Config(), False) == recorded
    assert recorded_corpus.recognize((str(path),), None, Config(), False) is None
    path.write_text("a c")
    assert recorded_corpus.recognize((str(path),), recorded, Config(), True) is None
    with pytest.raises(UsageError, match="^--corpus=docstrings is not what --workdir= was made"):
        recorded_corpus.recognize((str(path),), recorded, Config(), False)
