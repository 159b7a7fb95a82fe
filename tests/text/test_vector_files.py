"""Word vectors of fastText's files, by this reader and by fastText."""

import numpy as np
import pytest

from app.errors import UsageError
from app.exporting import fasttext_bin
from app.text import subwords, vector_files
from app.types import WordVectors
from tests import fasttext_peer


@pytest.mark.parametrize("model", ["skipgram", "cbow"])
@pytest.mark.parametrize("ngrams", [(0, 0), (3, 6), (1, 2)])
def test_vectors_are_those_of_fasttext(tmp_path, model, ngrams):
    path = fasttext_peer.train(tmp_path, model, minn=ngrams[0], maxn=ngrams[1])
    peer, found = fasttext_peer.load(path), vector_files.read(path)
    words, counts = peer.get_words(include_freq=True)
    assert found.tokens == words and found.counts.tolist() == counts.tolist()
    assert "</s>" in words and "\u65e5\u672c" in words
    expected = [peer.get_word_vector(word) for word in words]
    np.testing.assert_allclose(found.matrix, expected, atol=1e-6)
    if not ngrams[1]:
        assert found.ngrams is None
        return
    unseen = sorted(set(fasttext_peer.random_strings(1000)) - set(words))
    expected = [peer.get_word_vector(word) for word in unseen]
    np.testing.assert_allclose(subwords.compose_unseen(unseen, found.ngrams), expected, atol=1e-6)


def test_vectors_that_are_not_finite_are_refused(tmp_path):
    vectors = WordVectors(["one", "two"], np.array([[1, 2], [3, np.nan]], np.float32))
    fasttext_bin.write(vectors, str(tmp_path / "a.bin"))
    with pytest.raises(UsageError, match="a.bin, row 2: the vector of 'two' has nan, which is not"):
        vector_files.read(tmp_path / "a.bin")
