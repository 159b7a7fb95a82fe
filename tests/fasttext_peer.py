"""Models that fastText itself trains, and what it answers with them."""

import pathlib
import random

import pytest

fasttext = pytest.importorskip("fasttext")  # there is no wheel for Python 3.13

WORDS = [f"w{number}" for number in range(300)]
WORDS += ["\u00e9t\u00e9", "\u65e5\u672c", "\u03a9", "na\u00efve"]
# A quantised output needs 256 labels or more.
LABELS = 280
_ALPHABET = "ab\u00e9\u00df\u65e5\u0416\U0001f600<>_-'\u0301w0123"


def random_strings(count: int, seed: int = 0) -> list[str]:
    """Strings without white space, of characters of one to four bytes."""
    draw = random.Random(seed)
    return ["".join(draw.choices(_ALPHABET, k=draw.randrange(1, 12))) for _ in range(count)]


def write_texts(path: pathlib.Path, is_labelled: bool) -> pathlib.Path:
    """Write lines of text, with labels before them or without."""
    draw = random.Random(3)
    lines = []
    for number in range(1200):
        label = min(number, LABELS - 1) if number < LABELS else draw.randrange(LABELS)
        words = draw.choices(WORDS[label : label + 25], k=draw.randrange(1, 12))
        lines.append(" ".join([f"__label__l{label}"] * is_labelled + words))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def train(folder: pathlib.Path, model: str, **settings) -> pathlib.Path:
    """Train and save a model; `quantize` has the settings of a quantised one. Return its file."""
    is_labelled = model == "supervised"
    texts = write_texts(folder / f"{model}.txt", is_labelled)
    quantize = settings.pop("quantize", None)
    settings = {"dim": 10, "epoch": 3, "thread": 1, "verbose": 0, "bucket": 900} | settings
    if is_labelled:
        trained = fasttext.train_supervised(str(texts), **settings)
    else:
        trained = fasttext.train_unsupervised(str(texts), model=model, minCount=1, **settings)
    if quantize is not None:
        trained.quantize(input=str(texts), verbose=0, **quantize)
    number = len([*folder.glob("model*")])  # each model of a folder has a file of its own
    path = folder / f"model{number}.{'bin' if quantize is None else 'ftz'}"
    trained.save_model(str(path))
    return path


def load(path: pathlib.Path):
    """Return a model as fastText loads it."""
    # `fasttext.load_model` prints a warning.
    return fasttext.FastText._FastText(model_path=str(path))


def predict(model, text: str, k: int = LABELS, threshold: float = 0.0) -> dict[str, float]:
    """Return the labels of a line and their probabilities; `model.predict` fails with NumPy 2."""
    found = model.f.predict(f"{text}\n", k, threshold, "strict")
    return {label.removeprefix("__label__"): probability for probability, label in found}
