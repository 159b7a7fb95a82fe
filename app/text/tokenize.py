"""Make functions that split strings into ragged tokens, for the maps of tf.data.

A token of more than `LONGEST_TOKEN` bytes is not a word (a line of base64, a file of zeros). Every
reader of text drops it.

tensorflow_text is imported where it is used: that takes 0.1 s, and most commands do without it.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf
from absl import logging

from ..config import CorpusConfig

# RE2 syntax. White space beyond ASCII (Unicode property White_Space).
_WIDE_SPACE = r"[\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}]"
# White space that NFKC keeps, after a character that may have no script of its own.
_GAP = r"([^a-zA-Z])[\s\v\x{85}\x{2028}\x{2029}]"
_OGHAM_SPACE = "\N{OGHAM SPACE MARK}"
# Letters, marks (accents) and numbers are what a token is made of.
_EDGES = r"^[^\pL\pM\pN]+|[^\pL\pM\pN]+$"
_NUMBER = r"[^\pL]*\pN[^\pL]*"

# Bytes. word2vec.c cuts words at 100 (MAX_STRING); fastText has no limit. The longest words of
# natural languages have about 200 letters; URLs may be longer.
LONGEST_TOKEN = 1000

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
        """Return the short tokens, and their row splits."""
        short = tf.ragged.boolean_mask(tokens, tokens.with_flat_values(is_short))
        return short.flat_values, short.row_splits

    # A mask copies all tokens, and few texts have a long one.
    kept = tf.cond(dropped > 0, drop, lambda: (tokens.flat_values, tokens.row_splits))
    return tf.RaggedTensor.from_row_splits(*kept, validate=False), dropped


def warn_about_long_tokens(dropped: int) -> None:
    """Log a warning with the number of tokens that were dropped as too long, unless it is 0.

    Args:
        dropped: The number of tokens.
    """
    if dropped:
        logging.warning(
            "dropped %d tokens of more than %d bytes, which are not words", dropped, LONGEST_TOKEN
        )


def make_splitter(config: CorpusConfig) -> Tokenizer:
    """Return the function that splits strings into tokens by `config.tokenizer`.

    `whitespace` splits at Unicode white space. `unicode` normalizes (NFKC), folds case if
    `fold_case`, and splits at white space, at punctuation and where the script changes. Digits and
    the signs around them may then share a token. `drop_punctuation` removes signs from both ends of
    each token, and tokens of signs only. `drop_numbers` removes tokens that have digits but no
    letter.

    Args:
        config: Has the tokenizer and its options.

    Returns:
        Function from valid UTF-8 strings (N,) to tokens (N, None).
    """
    return {"whitespace": _whitespace, "unicode": _unicode}[config.tokenizer](config)


def _whitespace(config: CorpusConfig) -> Tokenizer:
    """Return the splitter `whitespace` (see `make_splitter`); no option of `config` is used."""
    # tf.strings.split is twice as fast as WhitespaceTokenizer. But it asks the C library for white
    # space, and some locales (ISO 8859, macOS) see white space inside UTF-8 characters.
    with tf.init_scope():
        high_bytes = tf.constant([bytes(range(0x80, 0x100))])
        safe = tf.strings.split(high_bytes).flat_values.shape == (1,)
    split = tf.strings.split
    if not safe:
        import tensorflow_text

        split = tensorflow_text.WhitespaceTokenizer().tokenize
    # tf.strings.split ignores wide spaces, and WhitespaceTokenizer leaves bytes of them on tokens.
    return lambda texts: split(tf.strings.regex_replace(texts, _WIDE_SPACE, " "))


def _unicode(config: CorpusConfig) -> Tokenizer:
    """Return the splitter `unicode`, see `make_splitter`."""
    import tensorflow_text as tf_text

    script_tokenizer = tf_text.UnicodeScriptTokenizer()

    def tokens(texts: tf.Tensor) -> tf.RaggedTensor:
        """Return the tokens (N, None) of valid UTF-8 strings (N,)."""
        texts = tf_text.normalize_utf8(texts, "NFKC")
        if config.fold_case:
            texts = tf_text.case_fold_utf8(texts)
        # The tokenizer splits at a space only if the script changes there. Digits and the ASCII
        # space share the script "Common", so "1990 1991" would become the token "19901991". The
        # Ogham space has a script of its own.
        texts = tf.strings.regex_replace(texts, _GAP, rf"\1{_OGHAM_SPACE}")
        # The public `tokenize` also computes byte offsets, which doubles the run time and takes a
        # second to trace.
        codes = tf.strings.unicode_decode(texts, "UTF-8")
        words, *_ = script_tokenizer._tokenize_codepoints_with_offsets(codes)
        words = words.with_values(tf.strings.unicode_encode(words.values, "UTF-8"))
        if config.drop_punctuation:
            words = words.with_flat_values(tf.strings.regex_replace(words.flat_values, _EDGES, ""))
            words = tf.ragged.boolean_mask(words, tf.not_equal(words, ""))
        if config.drop_numbers:
            number = tf.strings.regex_full_match(words.flat_values, _NUMBER)
            words = tf.ragged.boolean_mask(words, words.with_flat_values(~number))
        return words

    return tokens
