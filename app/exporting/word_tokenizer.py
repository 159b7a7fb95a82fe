"""Make the tokenizer of exported words, for the library `tokenizers`.

It splits texts as `text.tokenize` does, as near as its parts allow. With --tokenizer=whitespace
there is no difference. With --tokenizer=unicode there are three: letters of scripts outside of
`_SCRIPTS` count as one script; upper case becomes lower case, where `text.tokenize` folds case
(`_FOLDED` has the letters of living languages for which this matters); and new letters are those
of the library's version of Unicode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..config import CorpusConfig
from ..errors import UsageError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# The recommended scripts of Unicode (UAX 31, revision 41, table 5), the most frequent first.
_SCRIPTS = (
    "Latin Common Cyrillic Arabic Devanagari Han Inherited Greek Hebrew Hangul Hiragana Katakana "
    "Armenian Bengali Bopomofo Ethiopic Georgian Gujarati Gurmukhi Kannada Khmer Lao Malayalam "
    "Myanmar Oriya Sinhala Tamil Telugu Thaana Thai Tibetan"
)
# Letters after NFKC whose folded case is not their lower case (CaseFolding.txt of Unicode).
_FOLDED = {"ß": "ss", "ς": "σ"}
_EDGES = r"^[^\p{L}\p{M}\p{N}]+|[^\p{L}\p{M}\p{N}]+$"
_NUMBER = r"^[^\p{L}]*\p{N}[^\p{L}]*$"
_UNKNOWN = "[UNK]"


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
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
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
    splits: list[Any] = [pre_tokenizers.WhitespaceSplit()]
    if config.tokenizer == "unicode":
        steps: list[Any] = [normalizers.NFKC()]
        if config.fold_case:
            steps += [normalizers.Lowercase()]
            steps += [normalizers.Replace(*pair) for pair in _FOLDED.items()]
        tokenizer.normalizer = normalizers.Sequence(steps)
        splits += _unicode_splits(config)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits)
    return tokenizer


def _unicode_splits(config: CorpusConfig) -> list:
    """Return the steps that split words without white space as the splitter `unicode` does."""
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Split

    scripts = _SCRIPTS.split()
    runs = [rf"\p{{{script}}}+" for script in scripts]
    other = "&&".join(rf"\P{{{script}}}" for script in scripts)
    splits = [Split(Regex("|".join([*runs, f"[{other}]+"])), "isolated")]
    if config.drop_punctuation:
        splits.append(Split(Regex(_EDGES), "removed"))
    if config.drop_numbers:
        splits.append(Split(Regex(_NUMBER), "removed"))
    return splits
