"""The rules by which `--tokenizer=unicode` writes and splits words, for every engine that has them.

Training normalizes text in a graph of TensorFlow, an exported encoder by a library of its own
(`exporting.static_embedding`), and queries and scores do it in Python, so that they need not start
TensorFlow. All take their patterns from this module.

The patterns are written for RE2 (TensorFlow) and Oniguruma (tokenizers); those of the normalization
also for `re`. The guide is Unicode Standard Annex 29, Unicode Text Segmentation.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ..settings import CorpusConfig

if TYPE_CHECKING:
    import tensorflow as tf


# The forms of words: as they are, Unicode's NFKC, and its NFKC_Casefold; see `normalize`.
PLAIN: Final = ""
NFKC: Final = "NFKC"
FOLDED: Final = "NFKC_Casefold"

ZERO_WIDTH_SPACE = "\u200b"
# Characters that show nothing by themselves: soft hyphens, joiners, marks of direction, variation
# selectors (Default_Ignorable_Code_Point), and other format characters (General_Category Cf).
IGNORED = (
    "[\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u115f-\u1160\u17b4-\u17b5"
    "\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]+"
)
# The folded form of the Turkish capital İ is i with a dot above, which is an i. With more accents
# above (Lithuanian), the dot stays: without it they would have to be composed anew.
_DOTTED_I = "(i\u0307[\u0300-\u036f]+)|(i)\u0307", r"\1\2"
# Signs that are typed for letters: (letter before, sign, letter after, what the sign stands for).
_CYRILLIC, _HEBREW = "[бвгджзклмнпрстфхцчшщґБВГДЖЗКЛМНПРСТФХЦЧШЩҐ]", "[\u05d0-\u05ea]"
JOINTS = (
    (_CYRILLIC, "['\u2019]", "[еєюяёіїЕЄЮЯЁІЇ]", "\u02bc"),  # Ukrainian and Belarusian м'яч
    (_HEBREW, '"', _HEBREW, "\u05f4"),
    (_HEBREW, "['\u2019]", _HEBREW, "\u05f3"),
)
# Twice, as the letter after a sign may be the letter before the next one.
_JOIN = 2 * tuple(
    (f"({before}){sign}({after})", rf"\1{joint}\2") for before, sign, after, joint in JOINTS
)
# Patterns and replacements before and after Unicode's own normalization, in order.
BEFORE = ((ZERO_WIDTH_SPACE, " "), (IGNORED, ""), *_JOIN)
AFTER = {NFKC: (), FOLDED: (_DOTTED_I,)}

# White space that is left after NFKC. RE2 has fewer characters in `\s`.
_WIDE = r"\x{85}\x{1680}\x{2028}\x{2029}"
_SPACE = rf"\t-\r {_WIDE}"
# Marks, and Hebrew and Armenian punctuation inside words, belong to the letter before them.
_MARK = r"\p{M}\x{55B}\x{55C}\x{55E}\x{5F3}\x{5F4}"
# Scripts that are written without spaces: letters that may begin a run, and others.
_KANA = r"\x{30FC}"  # the prolonged sound mark, of both kinds of kana
_UNSPACED = (
    (r"\p{Han}\x{3006}", ""),
    (rf"\p{{Katakana}}{_KANA}", ""),
    (r"\p{Hiragana}", _KANA),
    (r"\x{E01}-\x{E30}\x{E32}\x{E33}\x{E40}-\x{E46}", ""),  # Thai, without digits and signs
    (r"\x{E81}-\x{EB0}\x{EB2}\x{EB3}\x{EBD}\x{EC0}-\x{EC6}\x{EDC}-\x{EDF}", ""),  # Lao
    (r"\x{1780}-\x{17B3}\x{17D7}\x{17DC}", ""),  # Khmer
    (  # Myanmar
        r"\x{1000}-\x{102A}\x{103F}\x{1050}-\x{1055}\x{105A}-\x{105D}\x{1061}\x{1065}\x{1066}"
        r"\x{106E}-\x{1070}\x{1075}-\x{1081}\x{108E}\x{A9E0}-\x{A9EF}\x{A9FA}-\x{A9FE}"
        r"\x{AA60}-\x{AA76}\x{AA7A}\x{AA7E}\x{AA7F}",
        "",
    ),
)
_RUNS = [f"[{first}][{first}{more}{_MARK}]*" for first, more in _UNSPACED]
_LETTER = rf"[^\P{{L}}{''.join(first for first, _ in _UNSPACED)}][{_MARK}]*"
# A run of letters of one unspaced script, or of all other scripts. Catalan has l·l.
LETTERS = "|".join([*_RUNS, rf"(?:[lL](?:\x{{B7}}[lL])+|{_LETTER})+"])
# Some numerals and signs are Han characters.
_SIGN, _NUMERAL = rf"[^\p{{L}}\p{{N}}\p{{Han}}{_MARK}{_SPACE}]", r"[^\P{N}\p{Han}]"
_NO_LETTER = rf"[^\p{{L}}\p{{Han}}{_SPACE}]"
_DIGITS = rf"{_NUMERAL}(?:{_NO_LETTER}*{_NUMERAL})?[{_MARK}]*"
_SIGNS = rf"(?:{_SIGN}|{_NUMERAL}){_NO_LETTER}*"

# With white space around `LETTERS`, and at both ends of the text: what is to become white space,
# for the values False and True of --drop_punctuation.
GAPS = (
    rf"[{_SPACE}][{_MARK}]+|[\v{_WIDE}]",
    rf"(?:{_SIGN}[{_MARK}]*)*[{_SPACE}][{_MARK}]*(?:(?:{_SIGN}|[{_SPACE}])[{_MARK}]*)*",
)
# All tokens of a normalized text, for the same values.
TOKENS = (f"{LETTERS}|{_SIGNS}", f"{LETTERS}|{_DIGITS}")
# A token that has a digit but no letter.
NUMBER = r"[^\p{L}]*\p{N}[^\p{L}]*"


# Languages without spaces, their characters, and a length that few of their words have.
_LANGUAGES = (
    ("Chinese or Japanese", "[\u3005-\u3007\u3041-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]+", 4),
    ("Thai, Lao, Burmese or Khmer", "[\u0e01-\u0eff\u1000-\u109f\u1780-\u17d3]+", 10),
)
_UNSPACED_SHARE = 0.1  # of a text's letters and digits; less may be names and quotations


def unspaced_language(text: str) -> str | None:
    """Return the names of languages without spaces whose words are not separated in a text.

    Args:
        text: A sample of a text.

    Returns:
        The names of the languages, or None if the text has few such words, or they are separated.
    """
    size = sum(map(str.isalnum, text))
    for name, characters, longest in _LANGUAGES:
        runs = re.findall(characters, text.replace(ZERO_WIDTH_SPACE, " "))
        length = sum(map(len, runs))
        if length > size * _UNSPACED_SHARE and length > longest * len(runs):
            return name
    return None


def normal_form(corpus: CorpusConfig) -> str:
    """Return the form in which the tokenizer of a run writes words.

    Args:
        corpus: Has the tokenizer and its options.
    """
    if corpus.tokenizer != "unicode":
        return PLAIN
    return FOLDED if corpus.fold_case else NFKC


def normalize(words: Iterable[str], form: str) -> list[str]:
    """Return words in a form, as `normalize_strings` writes them in a graph.

    In every form but `PLAIN`, a zero-width space is a space, and `IGNORED` characters are left out.

    Args:
        form: `PLAIN`, `NFKC`, or `FOLDED`, which also folds case and writes İ as i.
    """
    return list(words) if form == PLAIN else [_normalize(word, form) for word in words]


def normalize_strings(texts: tf.Tensor, form: str) -> tf.Tensor:
    """Return texts in a form, see `normalize`, as operations of a graph.

    Args:
        texts: Valid UTF-8 strings, of any shape.
        form: `PLAIN`, `NFKC` or `FOLDED`.
    """
    if form == PLAIN:
        return texts
    import tensorflow as tf
    import tensorflow_text as tf_text

    for rule in BEFORE:
        texts = tf.strings.regex_replace(texts, *rule)
    texts = tf_text.normalize_utf8(texts, NFKC)
    if form == FOLDED:
        texts = tf_text.case_fold_utf8(texts)  # which also normalizes again
    for rule in AFTER[form]:
        texts = tf.strings.regex_replace(texts, *rule)
    return texts


def _normalize(word: str, form: str) -> str:
    """Return a word in the form `NFKC` or `FOLDED`."""
    if word.isascii():
        return word.lower() if form == FOLDED else word
    for pattern, replacement in BEFORE:
        word = re.sub(pattern, replacement, word)
    word = unicodedata.normalize(NFKC, word)
    if form == FOLDED:
        word = unicodedata.normalize(NFKC, word.casefold())
    for pattern, replacement in AFTER[form]:
        word = re.sub(pattern, replacement, word)
    return word
