"""Make the tokenizer of exported words, for the library `tokenizers`.

It splits texts as `text.tokenize` does, by the patterns of `text.unicode_rules`. Letters that are
new in Unicode are those of the library's version.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..settings import CorpusConfig
from ..text import unicode_rules

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_UNKNOWN = "[UNK]"
_LAST_CASED = 0x1FFFF  # no character after it has another case


def make_tokenizer(tokens: Sequence[str], config: CorpusConfig) -> Tokenizer:
    """Return a tokenizer of whole words, whose ids are the positions of the words.

    An unknown word gets the next id, V. Its name is `[UNK]`, with signs after it if a word has this
    name.

    Args:
        tokens: The V words, each once.
        config: How the text of these words was tokenized.

    Raises:
        UsageError: The library is not installed.
    """
    try:
        from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
    except ImportError as error:
        raise UsageError(
            '--format=static_embedding needs tokenizers; pip install "lexrow[handover]"'
        ) from error
    vocabulary = {token: number for number, token in enumerate(tokens)}
    unknown = _UNKNOWN
    while unknown in vocabulary:
        unknown += "_"
    vocabulary[unknown] = len(tokens)
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))
    if config.tokenizer == "whitespace":
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        return tokenizer
    letters = set().union(*tokens)
    tokenizer.normalizer = normalizers.Sequence(
        _normalizers(unicode_rules.normal_form(config), letters)
    )
    pattern = Regex(unicode_rules.TOKENS[config.drop_punctuation])
    splits = [pre_tokenizers.Split(pattern, "removed", invert=True)]
    if config.drop_numbers:
        splits.append(pre_tokenizers.Split(Regex(rf"\A{unicode_rules.NUMBER}\z"), "removed"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits)
    return tokenizer


def _normalizers(form: str, letters: set[str]) -> list[Any]:
    """Return the steps that write texts in a form, as `unicode_rules.normalize` does.

    Args:
        form: `NFKC` or `FOLDED`.
        letters: The characters of the vocabulary; others need not be right.
    """
    from tokenizers import Regex, normalizers

    replace = normalizers.Replace
    steps: list[Any] = [replace(unicode_rules.ZERO_WIDTH_SPACE, " ")]
    steps.append(replace(Regex(unicode_rules.IGNORED), ""))
    for before, sign, after, joint in unicode_rules.JOINTS:
        steps.append(replace(Regex(f"(?<={before}){sign}(?={after})"), joint))
    steps.append(normalizers.NFKC())
    if form == unicode_rules.FOLDED:
        steps.append(normalizers.Lowercase())
        steps += [replace(*pair) for pair in _folded_otherwise(letters).items()]
        steps.append(normalizers.NFKC())
        steps.append(replace(Regex("(?<=i)\u0307(?![\u0300-\u036f])"), ""))
    return steps


def _folded_otherwise(letters: set[str]) -> dict[str, str]:
    """Return the lower-case letters whose folded case is another one, which has these letters."""
    pairs = {}
    for letter in map(chr, range(0x80, _LAST_CASED + 1)):
        if unicodedata.normalize("NFKC", letter) != letter:
            continue
        lower, folded = letter.lower(), unicodedata.normalize("NFKC", letter.casefold())
        if lower != folded and letters.issuperset(folded):
            pairs[lower] = folded
    return pairs
