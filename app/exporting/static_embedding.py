"""Write word vectors as a folder that sentence-transformers and model2vec load as a text encoder.

The vector of a text is the mean of the vectors of its words. sentence-transformers loads the folder
as `StaticEmbedding` (its class reads `tokenizer.json` and the tensor `embeddings`), model2vec as
`StaticModel` (its `persistence` also reads `config.json`).
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UsageError, needs_package
from ..settings import CorpusConfig
from ..system.files import replacing_folder
from ..text import unicode_rules
from ..text.vector_files import unique_rows
from ..types import WordVectors
from .array_files import Tensor, finite_rows, write_tensors

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_UNKNOWN = "[UNK]"
_BLOCK_ROWS = 4_096
_LAST_CASED = 0x1FFFF  # no character after it has another case
_MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.StaticEmbedding"}
]
_CARD = """\
---
library_name: model2vec
pipeline_tag: sentence-similarity
tags:
- embeddings
- static-embeddings
- sentence-transformers
---
# Static word vectors

{words:,} words with vectors of {columns} numbers, trained with Lexrow.
The vector of a text is the mean of the vectors of its words. {weights}

```python
from model2vec import StaticModel  # or SentenceTransformer("FOLDER") of sentence_transformers
vectors = StaticModel.from_pretrained("FOLDER").encode(["a text"])
```

model2vec leaves out unknown words. sentence-transformers counts them as zeros, which makes the
vector of a text shorter and does not change its direction.
"""


def write(vectors: WordVectors, folder: str | Path, config: CorpusConfig, sif: float = 0.0) -> None:
    """Write the folder; an earlier one of this format is replaced as a whole.

    Rows that repeat a word, and rows with numbers that are not finite, are left out with a warning.
    The last row, for unknown words, is zero.

    Args:
        config: How the text of the words was tokenized.
        sif: a of the weight a / (a + p) of a word, where p is its share of the corpus (smooth
            inverse frequency; Arora, Liang and Ma 2017, algorithm 1, without the removal of the
            first component). With 0, no vector is weighted.

    Raises:
        UsageError: There is no word, the counts that weights need are not known, the folder has
            other content, or `tokenizers` is not installed.
        RunError: The folder cannot be written.
    """
    rows_N = finite_rows(vectors, unique_rows(vectors.tokens))
    if not len(rows_N):
        raise UsageError(f"--output={folder}: no word has a finite vector; train or choose others")
    weights_V = _weights(vectors, sif)
    tokenizer = make_tokenizer([vectors.tokens[row] for row in rows_N], config)
    shape = len(rows_N) + 1, vectors.matrix.shape[1]
    settings = {
        "model_type": "model2vec",
        "architectures": ["StaticModel"],
        "hidden_dim": shape[1],
        "normalize": False,
        "max_length": None,  # else model2vec reads the first 512 words only
        "embedding_dtype": "float32",
    }
    weights = (
        f"Each word has the weight {sif:g} / ({sif:g} + its share of the text)." if sif else ""
    )
    card = _CARD.format(words=len(rows_N), columns=shape[1], weights=weights)
    with replacing_folder(folder, "model.safetensors") as temporary:
        parts = _parts(vectors, rows_N, weights_V)
        tensors = {"embeddings": Tensor("F32", shape, parts)}
        write_tensors(temporary / "model.safetensors", tensors)
        # The library's own `save` would raise no OSError on a full disk.
        (temporary / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
        for name, content in (("config", settings), ("modules", _MODULES)):
            (temporary / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
        (temporary / "README.md").write_text(card, encoding="utf-8")


def _weights(vectors: WordVectors, sif: float) -> np.ndarray:
    """Return the weight of each word, (V,) float32; 1 for `sif` 0."""
    if not sif:
        return np.ones(len(vectors.tokens), np.float32)
    if vectors.counts is None:
        raise UsageError(
            f"--sif={sif:g} needs counts of words, which a file of vectors does not have; give "
            "--workdir, or --sif=0"
        )
    return (sif / (sif + vectors.counts / max(1, vectors.counts.sum()))).astype(np.float32)


def _parts(vectors: WordVectors, rows_N: np.ndarray, weights_V: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the vectors of some rows times their weights, and then a row of zeros."""
    for rows_M in np.split(rows_N, range(_BLOCK_ROWS, len(rows_N), _BLOCK_ROWS)):
        yield np.asarray(vectors.matrix[rows_M] * weights_V[rows_M, np.newaxis], "<f4")
    yield np.zeros((1, vectors.matrix.shape[1]), "<f4")


def make_tokenizer(tokens: Sequence[str], config: CorpusConfig) -> Tokenizer:
    """Return a tokenizer of whole words, whose ids are the positions of the words.

    It splits texts as `text.tokenize` does, by the patterns of `unicode_rules`. Letters that are
    new in Unicode are those of the library's version. An unknown word gets the next id, V. Its name
    is `[UNK]`, with signs after it if a word has this name.

    Args:
        tokens: The V words, each once.
        config: How the text of these words was tokenized.

    Raises:
        UsageError: The library is not installed.
    """
    what = "--format=static_embedding needs tokenizers"
    with needs_package(f'{what}; pip install "lexrow[handover]"'):
        from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
    vocabulary = {token: number for number, token in enumerate(tokens)}
    unknown = _UNKNOWN
    while unknown in vocabulary:
        unknown += "_"
    vocabulary[unknown] = len(tokens)
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))
    if config.tokenizer == "whitespace":
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        return tokenizer
    tokenizer.normalizer = normalizers.Sequence(
        _normalizers(unicode_rules.normal_form(config), set().union(*tokens))
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
