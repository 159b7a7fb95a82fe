"""A trained classifier gets new labels and words from more texts."""

from __future__ import annotations

import random
import shutil

import pytest

from app.checkpoints.workdir import Workdir
from app.text import vocabulary
from tests.integration.commands import WORDS, checkpoint, done, refusal, run
from tests.integration.test_grow_vocab import GROW, NEW, SLOTS, grow, rows_by_name

CLASSIFY = ("--task=classify", "--dim=8", "--batch_tokens=128", "--epochs=2", "--device=CPU:0")
CLASSIFY = (*CLASSIFY, "--steps_per_call=2", "--log_seconds=0", "--noaudit")


def write_texts(path, labels, words, seed, lines=200):
    draw = random.Random(seed)
    text = []
    for _ in range(lines):
        number = draw.randrange(len(labels))
        own = words[number * 10 : number * 10 + 10]
        text.append(f"__label__{labels[number]} {' '.join(draw.choices(own + words[-9:], k=8))}")
    path.write_text("\n".join(text) + "\n", encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["softmax", pytest.param("one_vs_all", marks=pytest.mark.slow)])
def test_a_classifier_gets_new_labels_and_words(tmp_path, loss):
    first = write_texts(tmp_path / "a.txt", ["good", "bad"], WORDS, 1)
    second = write_texts(tmp_path / "b.txt", ["odd", "bad", "new"], [*NEW[:40], *WORDS], 2)
    workdir = tmp_path / "run"
    flags = (*CLASSIFY, f"--workdir={workdir}", f"--loss={loss}")
    done(tmp_path, "app.train", *flags, f"--corpus={first}")
    copied = shutil.copytree(workdir, tmp_path / "copy")
    tables = {"input": Workdir(workdir).vocabulary, "output": Workdir(workdir).labels}
    load = {"input": lambda path: vocabulary.load(str(path)), "output": vocabulary.load_names}
    before = {}
    for table, path in tables.items():
        tokens = load[table](path).tokens
        before[table] = [rows_by_name(checkpoint(workdir), tokens, table, s) for s in SLOTS]
    place = grow(copied, corpus=str(second))
    assert set(vocabulary.load_names(place.labels).tokens) == {"good", "bad", "odd", "new"}
    assert vocabulary.load_names(place.labels).tokens[0] == "bad"  # now the most frequent one
    for table, path in {"input": place.vocabulary, "output": place.labels}.items():
        tokens = load[table](path).tokens
        for slot, old in zip(SLOTS, before[table], strict=True):
            found = rows_by_name(checkpoint(copied), tokens, table, slot)
            assert len(found) > len(old) and {name: found[name] for name in old} == old
    more = ("app.train", *flags, f"--corpus={second}", "--grow_vocab", "--epochs=6")
    ended = done(tmp_path, *more)
    assert "--grow_vocab: " in ended.err and "2 labels keep theirs, and 2 are new: " in ended.err
    line = " ".join([*NEW[:8]])
    found = done(tmp_path, "app.predict", f"--workdir={workdir}", stdin=f"{line}\n")
    assert "odd" in found.out


@pytest.mark.slow
def test_a_classifier_of_ngrams_does_not_grow(tmp_path):
    first = write_texts(tmp_path / "a.txt", ["good", "bad"], WORDS, 1)
    second = write_texts(tmp_path / "b.txt", ["odd", "bad", "new"], [*NEW[:40], *WORDS], 2)
    flags = (*CLASSIFY, f"--workdir={tmp_path}/run", "--word_ngrams=2", "--buckets=100")
    done(tmp_path, "app.train", *flags, f"--corpus={first}")
    ended = run(tmp_path, "app.train", *flags, f"--corpus={second}", *GROW)
    assert "--word_ngrams=2: the rows of n-grams depend on the ids" in refusal(ended)
