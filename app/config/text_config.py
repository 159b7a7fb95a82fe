"""Settings of what goes in: text, vocabulary, batches."""

from __future__ import annotations

import dataclasses

from .setting import setting

_WORDS = ("task", "words")
_TEXT = ("task", "words", "language_model")
_TOKENS = (*_TEXT, "classify")
_SCORED = ("task", "language_model", "classify", "recommend")


@dataclasses.dataclass(frozen=True)
class CorpusConfig:
    """Which text is read, and what a token of it is."""

    corpus: str = setting(
        "docstrings",
        "Comma-separated files and globs (.gz, .bz2 and .xz too), or `docstrings`, "
        "`docstrings:package,package`, or `text8`.",
        path=True,
    )
    documents: str = setting(
        "line",
        "What bounds a document; no window crosses a boundary, where a language model has <eos>. "
        "`line`: every line is a document. `file` and `none`: windows cross line ends, and stop at "
        "the end of a file. A block of text (--block_bytes) ends a document in any case.",
        choices=("line", "file", "none"),
        fixed=True,
        only=_TEXT,
    )
    tokenizer: str = setting(
        "whitespace",
        "`whitespace` splits at white space; `unicode` normalises (NFKC) and splits at white "
        "space, punctuation and changes of script. A token of more than 1,000 bytes is dropped.",
        choices=("whitespace", "unicode"),
        fixed=True,
        only=_TOKENS,
    )
    fold_case: bool = setting(
        True, "Fold case (tokenizer `unicode` only).", fixed=True, only=_TOKENS
    )
    drop_punctuation: bool = setting(
        True, "Drop punctuation tokens (tokenizer `unicode` only).", fixed=True, only=_TOKENS
    )
    drop_numbers: bool = setting(
        False, "Drop tokens of digits (tokenizer `unicode` only).", fixed=True, only=_TOKENS
    )
    invalid_utf8: str = setting(
        "replace",
        "Bytes that are not UTF-8: `replace` them by U+FFFD and say how many, or stop (`error`).",
        choices=("replace", "error"),
        fixed=True,
        only=_TOKENS,
    )
    data_dir: str = setting(
        "data/raw", "Where downloads and extracted docstrings are kept.", path=True
    )


@dataclasses.dataclass(frozen=True)
class VocabularyConfig:
    """Which tokens get a row."""

    vocab: str = setting(
        "", "A vocab.tsv to take the tokens from.", fixed=True, only=_TOKENS, path=True
    )
    min_count: int = setting(
        5,
        "Drop tokens seen fewer times than this.",
        minimum=1,
        maximum=10**9,
        fixed=True,
        by_task={"classify": 1, "recommend": 1},
    )
    max_vocab_size: int = setting(
        0,
        "Keep at most this many tokens; 0 keeps all. A language model has <unk> and <eos> among "
        "them.",
        minimum=0,
        maximum=2**31 - 1,
        fixed=True,
        only=_TOKENS,
    )
    vocab_memory_entries: int = setting(
        50_000_000,
        "While counting, drop the rarest tokens whenever more distinct ones than this are held (a "
        "dynamic table counts none).",
        minimum=1000,
        maximum=10**12,
        only=_TEXT,
    )


@dataclasses.dataclass(frozen=True)
class InputConfig:
    """How text becomes batches of token ids."""

    subsample: float = setting(
        1e-3,
        "Frequent tokens are dropped at random above this share of the corpus; 0 keeps all.",
        minimum=0,
        maximum=1,
        fixed=True,
        only=_WORDS,
    )
    batch_tokens: int = setting(
        4096,
        "Tokens of a step: centres, or those to predict; to classify, words and n-grams, and fewer "
        "than this where an epoch would not have 50 steps; to recommend, pairs of a user and an "
        "item.",
        minimum=1,
        maximum=2**24,
        fixed=True,
        by_task={"recommend": 2048},
    )
    micro_batches: int = setting(
        0,
        "Equal parts of a step's batch, each with draws of its own, whose gradients are summed "
        "before the rows change; replicas share them. 0: one for each replica, of which there is "
        "one without --strategy.",
        minimum=0,
        maximum=4096,
    )
    row_tokens: int = setting(
        32,
        "Of these, tokens of a row; gradients of a language model go back as far.",
        minimum=1,
        maximum=2**16,
        fixed=True,
        only=_TEXT,
    )
    steps_per_call: int = setting(
        16,
        "Steps that one call of the compiled function makes.",
        minimum=1,
        maximum=4096,
        fixed=True,
        by_task={"classify": 8, "recommend": 4},
    )
    shuffle: bool = setting(
        True,
        "Shuffle the rows of a block of text, so that a batch is not all from one document.",
        fixed=True,
        only=_WORDS,
    )
    heldout: str = setting(
        "",
        "Files as of --corpus that the run is scored on after every epoch.",
        fixed=True,
        only=_SCORED,
        path=True,
    )
    heldout_share: float = setting(
        0.05,
        "Without --heldout: the share of the text, examples or pairs that the run is not trained "
        "but scored on; 0 for none. Of a language model, the end of every block of text.",
        minimum=0,
        below=1,
        fixed=True,
        only=_SCORED,
        by_task={"classify": 0.1, "recommend": 0.1},
    )
    cache: str = setting(
        "none",
        "Where token ids are kept between epochs, so that text is tokenised once: `memory`, "
        "`disk` (in the workdir) or `none`.",
        choices=("none", "memory", "disk"),
        only=_TEXT,
    )
    block_bytes: int = setting(
        2 << 20,
        "Text is read, tokenised and shuffled in blocks of so many bytes.",
        minimum=1024,
        maximum=2**30,
        fixed=True,
        only=_TOKENS,
    )
    readers: int = setting(
        4, "Files read at a time.", minimum=1, maximum=1024, fixed=True, only=_TOKENS
    )
    data_service: str = setting(
        "",
        "HOST:PORT of a tf.data service, whose workers then read and tokenise the text (start one "
        "with python -m app.cluster). They must see the files under the same names.",
        only=_WORDS,
    )
    map_parallelism: int = setting(
        -1, "Blocks tokenised at a time; -1: automatic.", minimum=-1, maximum=1024
    )
    prefetch: int = setting(
        -1, "Batches made ahead of the step; -1: automatic.", minimum=-1, maximum=10_000
    )

    @property
    def micro_tokens(self) -> int:
        """Tokens of a micro-batch, where the number of those is settled."""
        return self.batch_tokens // max(1, self.micro_batches)
