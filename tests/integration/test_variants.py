"""Other models, rules, texts and files: each is trained, killed, resumed, and ends the same."""

from __future__ import annotations

import bz2
import gzip
import lzma

import pytest

from tests.integration.commands import (
    WORDS,
    done,
    killed_when,
    logged,
    newest_step,
    tensors,
    train,
    write_corpus,
)

PACKED = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}
# Words of the corpus by falling count, one that is not in it and none of its rarest.
VOCABULARY = "".join(f"{word}\t{90 - rank}\n" for rank, word in enumerate(WORDS[:40])) + "new\t7\n"
ADAMW = ("--optimizer=lazy_adamw", "--correct_skipped", "--schedule=cosine", "--warmup=0.1")
ADAMW += ("--clip_row_norm=1", "--clip_global_norm=3", "--readers=1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("packing", "flags", "words"),
    [
        ("gz", ("--model=cbow", "--optimizer=sgd", "--documents=file", "--max_vocab_size=30"), 30),
        ("bz2", ("--model=cbow", "--optimizer=ftrl", "--documents=none", "--subsample=0"), None),
        ("xz", ("--tokenizer=unicode", "--vocab={}/words.tsv", *ADAMW), 41),
    ],
)
def test_a_variant(tmp_path, packing, flags, words):
    (tmp_path / "words.tsv").write_text(VOCABULARY, encoding="utf-8")
    for seed, name in enumerate("ab"):
        text = write_corpus(tmp_path / name, 200, seed=seed).read_bytes()
        (tmp_path / f"{name}.{packing}").write_bytes(PACKED[packing](text))
    flags = [flag.format(tmp_path) for flag in flags]
    pattern = tmp_path / f"?.{packing}"
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    ended = done(tmp_path, *train(whole, pattern, *flags))
    assert "in 2 file" in ended.out
    assert len((whole / "vocab.tsv").read_text().splitlines()) == (words or 60)
    command = train(killed, pattern, *flags, "--checkpoint_minutes=0")
    killed_when(lambda: newest_step(killed) > newest_step(whole) / 3, tmp_path, *command)
    done(tmp_path, "app.train", f"--workdir={killed}")
    assert tensors(killed) == tensors(whole)


@pytest.mark.slow
def test_a_vocabulary_of_other_text_leaves_the_rate_to_fall_evenly(tmp_path):
    """The learning rate goes by the length of the text, which such a vocabulary does not tell."""
    lines = (f"{word}\t{90_000 - rank}\n" for rank, word in enumerate(WORDS))
    (tmp_path / "words.tsv").write_text("".join(lines), encoding="utf-8")
    corpus = write_corpus(tmp_path / "a.txt", 300)
    vocabulary = f"--vocab={tmp_path}/words.tsv"
    done(tmp_path, *train(tmp_path / "run", corpus, vocabulary, "--epochs=1"))
    rates = [row["learning_rate"] for row in logged(tmp_path / "run")]
    assert rates[0] == 0.3 and rates[-1] < 0.05
