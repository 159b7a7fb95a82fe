import json

import numpy as np
import pytest
from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.projector.projector_plugin import ProjectorPlugin
from werkzeug.test import Client

from app.errors import UsageError
from app.exporting import projector
from app.types import WordVectors


def ask_tensorboard(folder, route, **query):
    """What the projector plugin of a TensorBoard on `folder` answers."""
    multiplexer = plugin_event_multiplexer.EventMultiplexer()
    multiplexer.AddRunsFromDirectory(str(folder))
    provider = data_provider.MultiplexerDataProvider(multiplexer, str(folder))
    plugin = ProjectorPlugin(TBContext(logdir=str(folder), data_provider=provider))
    answer = Client(plugin.get_plugin_apps()[route]).get(query_string=query)
    assert answer.status_code == 200, answer.text
    return answer


def test_tensorboard_shows_what_we_write(vectors, tmp_path):
    folder = tmp_path / "new" / "projector"
    assert projector.write(vectors, folder) == len(vectors.tokens)
    assert json.loads(ask_tensorboard(folder, "/runs").text) == ["."]
    (shown,) = json.loads(ask_tensorboard(folder, "/info", run=".").text)["embeddings"]
    assert shown["tensorShape"] == list(vectors.matrix.shape)
    query = {"run": ".", "name": shown["tensorName"]}
    tensor = np.frombuffer(ask_tensorboard(folder, "/tensor", **query).data, np.float32)
    np.testing.assert_allclose(tensor.reshape(-1, 5), vectors.matrix, rtol=1e-5)
    lines = ask_tensorboard(folder, "/metadata", **query).text.splitlines()
    assert lines[0].split("\t") == ["word", "rank", "count", "log10(count)"]
    assert lines[3].split("\t") == ["café", "3", "5", "0.699"]
    assert len(list(folder.iterdir())) == 3


def test_the_first_words_and_labels_without_a_separator(tmp_path):
    tokens = [f"w{n}" for n in range(101)]
    tokens[10] = "a\tb\nc"
    assert projector.write(WordVectors(tokens, np.ones((101, 2), np.float32)), tmp_path, 11) == 11
    lines = (tmp_path / "metadata.tsv").read_text().splitlines()
    assert lines[0] == "word\trank" and lines[10:] == ["w9\t10", "a b c\t11"]


def test_words_without_a_finite_vector_are_left_out(tmp_path):
    vectors = WordVectors(["a", "b"], np.array([[np.nan, 1], [1, 2]], np.float32))
    assert projector.write(vectors, tmp_path) == 1
    assert (tmp_path / "vectors.tsv").read_text() == "1\t2\n"
    with pytest.raises(UsageError, match="no word has a finite vector"):
        projector.write(WordVectors(["a"], vectors.matrix[:1]), tmp_path)


def test_a_limit_beyond_the_projectors_is_refused(vectors, tmp_path):
    for limit in (0, 100_001):
        with pytest.raises(UsageError, match=f"--limit={limit}.*1 to 100,000"):
            projector.write(vectors, tmp_path, limit)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        projector.write(vectors, tmp_path / "file")
