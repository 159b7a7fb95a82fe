"""What a token is: functions from strings to ragged tokens, for tf.data's map.

A token of more than `LONGEST_TOKEN` bytes is no word (a line of base64, a file of zeros): it is
dropped by every reader of text.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf
import tensorflow_text as tf_text
from absl import logging

from ..config import CorpusConfig

# RE2 syntax. White space beyond ASCII (Unicode property White_Space).
_WIDE_SPACE = r"[\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}]"
# The white space that NFKC leaves, where it follows what may be of no script.
_GAP = r"([^a-zA-Z])[\s\v\x{85}\x{2028}\x{2029}]"
_OGHAM_SPACE = "\N{OGHAM SPACE MARK}"
# Letters, marks (accents) and numbers are what a token is made of.
_EDGES = r"^[^\pL\pM\pN]+|[^\pL\pM\pN]+$"
_NUMBER = r"[^\pL]*\pN[^\pL]*"

# Bytes. word2vec.c cuts words at 100 (MAX_STRING), fastText takes any. The longest words of
# languages have about 200 letters; addresses of pages may be longer.
LONGEST_TOKEN = 1000

Tokenizer = Callable[[tf.Tensor], tf.RaggedTensor]


def make_tokenizer(config: CorpusConfig) -> Tokenizer:
    """Return the function from valid UTF-8 strings (N,) to their tokens (N, None), none too long.

    See `splitter` and `without_long`.
    """
    split = make_splitter(config)
    return lambda texts: drop_long_tokens(split(texts))[0]


def drop_long_tokens(tokens: tf.RaggedTensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Return the tokens of at most `LONGEST_TOKEN` bytes, and the number of the others, int64."""
    is_short = tf.strings.length(tokens.flat_values) <= LONGEST_TOKEN
    dropped = tf.math.count_nonzero(~is_short)

    def shortened() -> tuple[tf.Tensor, tf.Tensor]:
        found = tf.ragged.boolean_mask(tokens, tokens.with_flat_values(is_short))
        return found.flat_values, found.row_splits

    # Few texts have one, and a mask copies all tokens.
    found = tf.cond(dropped > 0, shortened, lambda: (tokens.flat_values, tokens.row_splits))
    return tf.RaggedTensor.from_row_splits(*found, validate=False), dropped


def warn_about_long_tokens(dropped: int) -> None:
    """Log how many tokens of a text were too long, if any."""
    if dropped:
        logging.warning(
            "%d tokens of more than %d bytes are no words; dropped", dropped, LONGEST_TOKEN
        )


def make_splitter(config: CorpusConfig) -> Tokenizer:
    """The function that `config.tokenizer` names: valid UTF-8 strings (N,) to tokens (N, None).

    `whitespace` splits at Unicode white space. `unicode` normalises (NFKC), folds case, and splits
    at white space, punctuation and changes of script, so that digits and the signs around them may
    share a token: `drop_punctuation` also strips such signs from its ends.
    """
    return {"whitespace": _whitespace, "unicode": _unicode}[config.tokenizer](config)


def _whitespace(config: CorpusConfig) -> Tokenizer:
    # tf.strings.split is twice as fast as WhitespaceTokenizer, but it asks the C library what white
    # space is, and some locales (ISO 8859, those of macOS) see it inside characters of UTF-8.
    with tf.init_scope():
        high_bytes = tf.constant([bytes(range(0x80, 0x100))])
        safe = tf.strings.split(high_bytes).flat_values.shape == (1,)
    split = tf.strings.split if safe else tf_text.WhitespaceTokenizer().tokenize
    # tf.strings.split knows no wide space, WhitespaceTokenizer leaves parts of it on the token.
    return lambda texts: split(tf.strings.regex_replace(texts, _WIDE_SPACE, " "))


def _unicode(config: CorpusConfig) -> Tokenizer:
    splitter = tf_text.UnicodeScriptTokenizer()

    def tokens(texts: tf.Tensor) -> tf.RaggedTensor:
        texts = tf_text.normalize_utf8(texts, "NFKC")
        if config.fold_case:
            texts = tf_text.case_fold_utf8(texts)
        # The splitter sees a space as a change of script only, so that "1990 1991", all of it
        # common to all scripts, would be the token "19901991". One space has a script of its own.
        texts = tf.strings.regex_replace(texts, _GAP, rf"\1{_OGHAM_SPACE}")
        # `tokenize` would find the bytes where tokens start and end as well: that takes as long
        # again to run, and a second to trace.
        codes = tf.strings.unicode_decode(texts, "UTF-8")
        found, *_ = splitter._tokenize_codepoints_with_offsets(codes)
        found = found.with_values(tf.strings.unicode_encode(found.values, "UTF-8"))
        if config.drop_punctuation:
            found = found.with_flat_values(tf.strings.regex_replace(found.flat_values, _EDGES, ""))
            found = tf.ragged.boolean_mask(found, tf.not_equal(found, ""))
        if config.drop_numbers:
            number = tf.strings.regex_full_match(found.flat_values, _NUMBER)
            found = tf.ragged.boolean_mask(found, found.with_flat_values(~number))
        return found

    return tokens
