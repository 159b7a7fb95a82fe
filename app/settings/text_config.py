"""The settings of the text, the vocabulary and the batches."""

from __future__ import annotations

import dataclasses

from .setting import fixed_setting, setting

# Flags that some tasks do not have.
HELDOUT = frozenset({"heldout", "heldout_share", "patience"})
PHRASES = frozenset({"phrases", "phrase_score", "phrase_threshold", "phrase_min_count"})

_PASSES = 4  # the most passes of --phrases: phrases of up to 16 words


@dataclasses.dataclass(frozen=True)
class CorpusConfig:
    """The settings of the text: which files are read, and how they are split into tokens."""

    corpus: str = setting(
        "docstrings",
        "Files and glob patterns with commas between them, also compressed ones; a name with a "
        "comma is in double quotes. Or `docstrings` (of all installed packages), "
        "`docstrings:package,package`, or `text8`.",
        path=True,
    )
    text_column: str = fixed_setting(
        "", "The column of the texts in CSV, TSV, JSON lines or Parquet. Empty: files are the text."
    )
    documents: str = fixed_setting(
        "line",
        "Where a document ends, which no window crosses: at each line, or at the end of a file "
        "(`none`: windows also cross line ends). A block of text (--block_bytes) always ends one.",
        choices=("line", "file", "none"),
    )
    tokenizer: str = fixed_setting(
        "whitespace",
        "How text is split into tokens. `unicode` normalises (NFKC), and also splits at "
        "punctuation, between letters and digits, and at scripts without spaces.",
        choices=("whitespace", "unicode"),
    )
    fold_case: bool = fixed_setting(True, "Fold case (with --tokenizer=unicode).")
    drop_punctuation: bool = fixed_setting(
        True, "Drop punctuation tokens (with --tokenizer=unicode)."
    )
    drop_numbers: bool = fixed_setting(False, "Drop tokens of digits (with --tokenizer=unicode).")
    invalid_utf8: str = fixed_setting(
        "replace",
        "What to do with bytes that are not UTF-8: replace them by U+FFFD, or stop.",
        choices=("replace", "error"),
    )
    data_dir: str = setting(
        "data/raw", "The folder for downloads and extracted docstrings.", path=True
    )


@dataclasses.dataclass(frozen=True)
class VocabularyConfig:
    """The settings of the vocabulary: which tokens get a row."""

    vocab: str = fixed_setting(
        "",
        "A vocab.tsv to use as the vocabulary. Empty: count the tokens of the corpus.",
        path=True,
    )
    min_count: int = fixed_setting(
        5, "Drop tokens, or users and items, that occur fewer times than this.", bounds=(1, 10**9)
    )
    max_vocab_size: int = fixed_setting(
        0, "Keep at most this many tokens, the most frequent. 0 keeps all.", bounds=(0, 2**31 - 1)
    )
    vocab_memory_entries: int = setting(
        50_000_000,
        "The most distinct tokens to hold while counting; beyond, the rarest are dropped.",
        bounds=(1000, 10**12),
    )
    grow_vocab: bool = setting(
        False,
        "Let the vocabulary of a finished run grow by the words (and labels) of another --corpus; "
        "old words keep their rows. Train for more --epochs.",
    )
    phrases: int = fixed_setting(
        0,
        "Passes over the text that join words which often follow each other to one token, such as "
        "`new_york`. 0: none.",
        bounds=(0, _PASSES),
    )
    phrase_score: str = fixed_setting(
        "word2phrase",
        "The score of a pair of words: word2phrase's, or normalised pointwise mutual information.",
        choices=("word2phrase", "npmi"),
    )
    phrase_threshold: float = fixed_setting(
        0.0,
        "Join pairs whose score is above this. 0: 100 for word2phrase, 0.5 for npmi.",
        bounds=(0, 10**12),
    )
    phrase_min_count: int = fixed_setting(
        5, "Join only pairs that occur at least so many times.", bounds=(1, 10**9)
    )

    @property
    def score_threshold(self) -> float:
        """The score above which a pair of words is a phrase; see `phrase_threshold`."""
        # 100 as in word2phrase.c. Above 0.5 pairs occur together more often than not.
        return self.phrase_threshold or {"word2phrase": 100.0, "npmi": 0.5}[self.phrase_score]


@dataclasses.dataclass(frozen=True)
class InputConfig:
    """The settings of the input: how data becomes batches of ids."""

    subsample: float = fixed_setting(
        1e-3, "Tokens above this share of the corpus are dropped at random. 0: none.", bounds=(0, 1)
    )
    batch_tokens: int = fixed_setting(
        4096,
        "The size of a batch: centre tokens, tokens to predict, words and n-grams of texts (less "
        "for few texts), or pairs of a user and an item.",
        bounds=(1, 2**24),
    )
    micro_batches: int = setting(
        0,
        "Equal parts of a batch, which draw their own samples and whose gradients are summed. "
        "Replicas share the parts. 0: one part for each replica.",
        bounds=(0, 4096),
    )
    row_tokens: int = fixed_setting(
        32,
        "Tokens in one row of a batch. Gradients of a language model go back this many tokens.",
        bounds=(1, 2**16),
    )
    steps_per_call: int = fixed_setting(
        16,
        "Training steps in one call of the compiled function.",
        bounds=(1, 1024),  # each is traced by itself: a call of 2,048 takes minutes until it runs
    )
    shuffle: bool = fixed_setting(True, "Shuffle the rows of a block of text.")
    heldout: str = fixed_setting(
        "", "Files like --corpus that the run is scored on after every epoch.", path=True
    )
    heldout_share: float = fixed_setting(
        0.05,
        "The share of the text, examples or pairs to score on when --heldout is empty. 0: none.",
        bounds=(0, 1),
        half_open=True,
    )
    cache: str = setting(
        "auto",
        "Where token ids are kept, so that text is tokenised only once: in memory, on disk (in the "
        "workdir), or not. `auto`: in memory if they take at most 1 GiB.",
        choices=("auto", "none", "memory", "disk"),
    )
    block_bytes: int = fixed_setting(
        2 << 20, "Bytes of a block of text, in which it is read and shuffled.", bounds=(1024, 2**30)
    )
    readers: int = fixed_setting(4, "Files read at the same time.", bounds=(1, 1024))
    map_parallelism: int = setting(
        -1, "Blocks tokenised at the same time. -1: automatic.", bounds=(-1, 1024)
    )
    prefetch: int = setting(
        -1, "Batches prepared ahead of the step. -1: automatic.", bounds=(-1, 10_000)
    )

    @property
    def micro_tokens(self) -> int:
        """The tokens of a micro-batch; all tokens of the batch if `micro_batches` is 0."""
        return self.batch_tokens // max(1, self.micro_batches)
