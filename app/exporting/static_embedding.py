"""Write word vectors as a folder that sentence-transformers and model2vec load as a text encoder.

The vector of a text is the mean of the vectors of its words. sentence-transformers loads the folder
as `StaticEmbedding` (its class reads `tokenizer.json` and the tensor `embeddings`), model2vec as
`StaticModel` (its `persistence` also reads `config.json`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..errors import UsageError
from ..settings import CorpusConfig
from ..system.files import replacing_folder
from ..types import WordVectors
from . import safetensors_file
from .row_blocks import finite_rows, read_blocks, unique_rows
from .safetensors_file import Tensor
from .word_tokenizer import make_tokenizer

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
from model2vec import StaticModel
vectors = StaticModel.from_pretrained("FOLDER").encode(["a text"])
```

```python
from sentence_transformers import SentenceTransformer
vectors = SentenceTransformer("FOLDER").encode(["a text"])
```

model2vec leaves out unknown words. sentence-transformers counts them as zeros, which makes the
vector of a text shorter and does not change its direction.
"""


def write(vectors: WordVectors, folder: str | Path, config: CorpusConfig, sif: float) -> None:
    """Write the folder; an earlier one of this format is replaced as a whole.

    Rows that repeat a word, and rows with numbers that are not finite, are left out with a warning.
    The last row, for unknown words, is zero.

    Args:
        vectors: Word vectors.
        folder: The folder to write.
        config: How the text of the words was tokenized.
        sif: a of the weight a / (a + p) of a word, where p is its share of the corpus (smooth
            inverse frequency; Arora, Liang and Ma 2017, algorithm 1, without the removal of the
            first component). With 0, no vector is weighted.

    Raises:
        UsageError: There is no word, the counts that weights need are not known, the folder has
            other content, or `tokenizers` is not installed.
        RunError: The folder cannot be written.
    """
    rows_N = finite_rows(vectors, unique_rows(vectors))
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
        path = temporary / "model.safetensors"
        safetensors_file.write_tensors(path, {"embeddings": Tensor("F32", shape, parts)})
        # The library's own `save` would raise no OSError on a full disk.
        (temporary / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
        for name, content in (("config", settings), ("modules", _MODULES)):
            (temporary / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
        (temporary / "README.md").write_text(card, encoding="utf-8")


def _weights(vectors: WordVectors, sif: float) -> np.ndarray | None:
    """Return the weight of each word, (V,) float32; None for `sif` 0."""
    if not sif:
        return None
    if vectors.counts is None:
        raise UsageError(
            f"--sif={sif:g} needs counts of words, which a file of vectors does not have; give "
            "--workdir, or --sif=0"
        )
    shares_V = vectors.counts / max(1, vectors.counts.sum())
    return (sif / (sif + shares_V)).astype(np.float32)


def _parts(
    vectors: WordVectors, rows_N: np.ndarray, weights_V: np.ndarray | None
) -> Iterator[np.ndarray]:
    """Yield the vectors of some rows with their weights, and then a row of zeros."""
    low = 0
    for block in read_blocks(vectors, rows_N):
        part = rows_N[low : low + len(block)]
        yield block if weights_V is None else block * weights_V[part, np.newaxis]
        low += len(block)
    yield np.zeros((1, vectors.matrix.shape[1]), "<f4")
