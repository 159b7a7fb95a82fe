"""Make functions that split strings into ragged tokens, for the maps of tf.data.

A token of more than `LONGEST_TOKEN` bytes is not a word (a line of base64, a file of zeros). Every
reader of text drops it.

tensorflow_text is imported where it is used: that takes 0.1 s, and most commands do without it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import tensorflow as tf
from absl import logging

from ..settings import CorpusConfig
from . import unicode_rules
from .reading import raw_blocks

# RE2 syntax. White space beyond ASCII (Unicode property White_Space).
_WIDE_SPACE = r"[\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}]"
# Bytes. word2vec.c cuts words at 100 (MAX_STRING); fastText has no limit. The longest words of
# natural languages have about 200 letters; URLs may be longer.
LONGEST_TOKEN = 1000

# A sample that tells whether the words of a text have spaces between them.
_SAMPLED_FILES, _SAMPLED_BYTES = 16, 1 << 16

Tokenizer = Callable[[tf.Tensor], tf.RaggedTensor]


def make_tokenizer(config: CorpusConfig) -> Tokenizer:
    """Return `make_splitter(config)` followed by `drop_long_tokens`.

    Args:
        config: Has the tokenizer and its options.

    Returns:
        Function from valid UTF-8 strings (N,) to their tokens (N, None).
    """
    split = make_splitter(config)
    return lambda texts: drop_long_tokens(split(texts))[0]


def drop_long_tokens(tokens: tf.RaggedTensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Return the tokens of at most `LONGEST_TOKEN` bytes, and how many are dropped.

    Args:
        tokens: Strings (N, None).

    Returns:
        Tokens (N, None), and the number of dropped tokens, an int64 scalar.
    """
    is_short = tf.strings.length(tokens.flat_values) <= LONGEST_TOKEN
    dropped = tf.math.count_nonzero(~is_short)

    def drop() -> tuple[tf.Tensor, tf.Tensor]:
        """Return the short tokens, and their row splits.

        `tf.ragged.boolean_mask` returns the same, and takes much longer to trace.
        """
        before = tf.pad(tf.cumsum(tf.cast(is_short, tokens.row_splits.dtype)), [[1, 0]])
        short = tf.gather(tokens.flat_values, tf.where(is_short)[:, 0])
        return short, tf.gather(before, tokens.row_splits)

    # A mask copies all tokens, and few texts have a long one.
    kept = tf.cond(dropped > 0, drop, lambda: (tokens.flat_values, tokens.row_splits))
    return tf.RaggedTensor.from_row_splits(*kept, validate=False), dropped


def warn_about_long_tokens(dropped: int) -> None:
    """Log a warning with the number of tokens that were dropped as too long, unless it is 0."""
    if dropped:
        logging.warning(
            "dropped %d tokens of more than %d bytes, which are not words", dropped, LONGEST_TOKEN
        )


def warn_about_missing_spaces(sources: Sequence[str], flag: str) -> None:
    """Log a warning if the words of a text are not separated, as in Chinese.

    Args:
        sources: Paths of the files; the beginnings of a few of them are read.
        flag: The flag that names them with its value, for the message.

    Raises:
        UsageError: A file cannot be decompressed.
        RunError: A file cannot be read.
    """
    for path in sources[:_SAMPLED_FILES]:
        _, sample = next(raw_blocks(path, "none", _SAMPLED_BYTES), (0, b""))
        language = unicode_rules.unspaced_language(sample.decode(errors="ignore"))
        if language:
            logging.warning(
                "%s: %s has %s without spaces between words, so whole sentences count as words; "
                "separate the words by spaces first, with a program for this language, and give "
                "--tokenizer=whitespace",
                *(flag, path, language),
            )
            return


def warn_about_columns(sources: Sequence[str], config: CorpusConfig) -> None:
    """Log a warning if whole lines are read of a file whose name and first line tell of columns.

    A first line with commas alone may be a header or a sentence.

    Raises:
        UsageError: A file cannot be decompressed.
        RunError: A file cannot be read.
    """
    tables = [path for path in sources if re.search(r"\.[ct]sv(\.\w+)?$", path, re.IGNORECASE)]
    for path in [] if config.text_column else tables[:_SAMPLED_FILES]:
        _, sample = next(raw_blocks(path, "none", _SAMPLED_BYTES), (0, b""))
        if found := re.match(rb"[^\r\n]*?([,;\t])", sample):
            logging.warning(
                "--corpus=%s: the first line of %s has %r, as between columns, but whole lines are "
                "read; --text_column=NAME reads one column",
                *(config.corpus, path, found[1].decode()),
            )
            return


def make_splitter(config: CorpusConfig) -> Tokenizer:
    """Return the function that splits strings into tokens by `config.tokenizer`.

    `whitespace` splits at Unicode white space. `unicode` normalizes (NFKC, or NFKC_Casefold if
    `fold_case`), and splits at white space, at punctuation, between letters and digits, and where
    one of the texts beside is of a script without spaces. Marks stay with their letter, joiners and
    other invisible characters are left out, and a zero-width space splits. Digits and the signs
    between them share a token. With `drop_punctuation` there are no tokens of signs only, and no
    signs at the ends of a number. `drop_numbers` removes tokens that have digits but no letter.

    Args:
        config: Has the tokenizer and its options.

    Returns:
        Function from valid UTF-8 strings (N,) to tokens (N, None).
    """
    split = _make_space_splitter()
    if config.tokenizer == "unicode":
        return _unicode(config, split)
    # tf.strings.split ignores wide spaces, and WhitespaceTokenizer leaves bytes of them on tokens.
    return lambda texts: split(tf.strings.regex_replace(texts, _WIDE_SPACE, " "))


def _make_space_splitter() -> Tokenizer:
    """Return a function that splits strings at ASCII white space."""
    # tf.strings.split is twice as fast as WhitespaceTokenizer. But it asks the C library for white
    # space, and some locales (ISO 8859, macOS) see white space inside UTF-8 characters.
    with tf.init_scope():
        safe = tf.strings.split(tf.constant([bytes(range(0x80, 0x100))])).flat_values.shape == (1,)
    if safe:
        return tf.strings.split
    import tensorflow_text

    return tensorflow_text.WhitespaceTokenizer().tokenize


def _unicode(config: CorpusConfig, split: Tokenizer) -> Tokenizer:
    """Return the splitter `unicode`, see `make_splitter`, on one at ASCII white space."""
    form, gaps = unicode_rules.normal_form(config), unicode_rules.GAPS[config.drop_punctuation]

    def split_texts(texts: tf.Tensor) -> tf.RaggedTensor:
        """Return the tokens (N, None) of valid UTF-8 strings (N,)."""
        # Without captured groups RE2 takes linear time and little memory for each match.
        texts = tf.strings.regex_replace(
            unicode_rules.normalize_strings(texts, form), unicode_rules.LETTERS, r" \0 "
        )
        texts = tf.strings.join([" ", texts, " "])
        words = split(tf.strings.regex_replace(texts, gaps, " "))
        if config.drop_numbers:
            number = tf.strings.regex_full_match(words.flat_values, unicode_rules.NUMBER)
            words = tf.ragged.boolean_mask(words, words.with_flat_values(~number))
        return words

    return split_texts
