"""Labels that fastText and we predict with the same file."""

import random

import numpy as np
import pytest

from app.tasks.classify import fasttext_prediction, label_metrics
from app.text.fasttext import model_file
from tests import fasttext_peer

PRUNED = {"qnorm": True, "qout": True, "dsub": 3, "cutoff": 600, "retrain": False}
MODELS = [
    {"loss": "softmax"},
    {"loss": "softmax", "wordNgrams": 3},
    {"loss": "softmax", "minn": 2, "maxn": 4},
    {"loss": "ova", "wordNgrams": 2},
    {"loss": "hs"},
    {"loss": "hs", "wordNgrams": 2, "minn": 3, "maxn": 3},
    {"loss": "softmax", "quantize": {"qnorm": False, "qout": False, "dsub": 2}},
    {"loss": "softmax", "wordNgrams": 2, "minn": 2, "maxn": 3, "quantize": PRUNED},
]


def make_texts(count=300):
    """Lines of known and unknown words, some of which fastText treats in ways of its own."""
    draw = random.Random(4)
    words = fasttext_peer.WORDS + fasttext_peer.random_strings(60)
    words += ["</s>", "__label__l3", "__label__new"]
    lines = [" ".join(draw.choices(words, k=draw.randrange(0, 9))) for _ in range(count)]
    return [*lines, "", " ", "w1\tw2\vw3\fw4\0w5\r", *fasttext_peer.random_strings(1000, seed=5)]


@pytest.fixture(params=MODELS, ids=lambda settings: "-".join(map(str, settings.values())))
def path(request, tmp_path):
    return fasttext_peer.train(tmp_path, "supervised", **dict(request.param))


def predict(model, texts, k, threshold):
    """The labels of each text with their probabilities, as `lexrow predict` finds them."""
    labels, score = fasttext_prediction.make_scorer(model)
    least = threshold + fasttext_prediction.ADDED
    for chances_EC in score([text.encode() for text in texts]):
        yield from label_metrics.best_labels(chances_EC, labels, k, least)


@pytest.mark.slow
def test_probabilities_are_those_of_fasttext(path):
    texts, peer = make_texts(), fasttext_peer.load(path)
    model = model_file.load(path, is_supervised=True)
    found = predict(model, texts, fasttext_peer.LABELS, 0.0)
    distances = []
    for text, labels in zip(texts, found, strict=True):
        expected = fasttext_peer.predict(peer, text)
        assert [*dict(labels)] == [label for label, _ in labels]
        assert [chance for _, chance in labels] == sorted(dict(labels).values(), reverse=True)
        # In a tree, a label at the least probability may be on either side of it.
        assert len(expected.keys() ^ dict(labels).keys()) <= (model.args.loss == 1)
        distances += [
            abs(chance - expected[label]) for label, chance in labels if label in expected
        ]
    assert len(distances) > 100_000
    # Sums in another order can take a neighboring value of fastText's table of sigmoids.
    near = np.array(distances) < 1e-6
    assert near.all() if model.args.loss != 4 else near.mean() > 0.999


@pytest.mark.slow
def test_the_best_labels_above_a_threshold(tmp_path):
    for loss in ("softmax", "ova", "hs"):
        path = fasttext_peer.train(tmp_path, "supervised", loss=loss, lr=0.5, epoch=20)
        peer, model = fasttext_peer.load(path), model_file.load(path, is_supervised=True)
        texts = make_texts(50)
        for k, threshold in ((1, 0.0), (3, 0.05), (5, 0.9)):
            for text, labels in zip(texts, predict(model, texts, k, threshold), strict=True):
                expected = fasttext_peer.predict(peer, text, k, threshold)
                # Labels of equal probability are in any order.
                found = [chance for _, chance in labels]
                assert found == pytest.approx(sorted(expected.values(), reverse=True), abs=1e-6)
