"""Write a sample of words and vectors for TensorBoard's Embedding Projector.

Format: https://www.tensorflow.org/tensorboard/tensorboard_projector_plugin. The command
`tensorboard --logdir=FOLDER` looks for `projector_config.pbtxt` in FOLDER and beside event files.
Its paths must stay inside the folder of that file.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from ..errors import UsageError
from ..system.files import replacing
from ..types import WordVectors
from .row_blocks import finite_rows

# Limits of the projector of TensorBoard 2.21 (data.ts and data-provider-server.ts under
# tensorboard/plugins/projector/vz_projector; tensorboard issues 773 and 3647). It loads the first
# 100,000 points at most. t-SNE samples 10,000 of them, UMAP 5,000 and PCA 50,000.
MAX_POINTS = 100_000
TSNE_POINTS = 10_000

_CONFIG = """\
embeddings {{
  tensor_name: "words"
  tensor_shape: {points}
  tensor_shape: {columns}
  tensor_path: "vectors.tsv"
  metadata_path: "metadata.tsv"
}}
"""


def write(vectors: WordVectors, folder: str | Path, limit: int = TSNE_POINTS) -> int:
    """Write a sample of the words to `vectors.tsv`, `metadata.tsv` and `projector_config.pbtxt`.

    The metadata columns are the word, its rank by frequency from 1, its stratum (a range of ranks,
    for colours) and its count, if known. Words without a finite vector are left out, with a
    warning. Numbers are written with six digits. Existing files are replaced. See `sample` for the
    choice of words.

    Args:
        limit: The number of words to sample, at most `MAX_POINTS`. By default the number that t-SNE
            uses without sampling.

    Returns:
        The number of words written.

    Raises:
        UsageError: The limit is out of range, no word has a finite vector, or the folder is a file.
        RunError: The files cannot be written.
    """
    if not 1 <= limit <= MAX_POINTS:
        raise UsageError(f"--limit={limit}: the projector shows 1 to {MAX_POINTS:,} words")
    # The projector draws nothing at all if a single number is not finite.
    usable = finite_rows(vectors, np.arange(len(vectors.tokens)))
    if not len(usable):
        raise UsageError(f"--output={folder}: no word has a finite vector; train or choose others")
    rows = usable[sample(len(usable), limit)]
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--output={folder}: is a file; give a folder")
    with (
        replacing(folder / "projector_config.pbtxt") as config_file,
        replacing(folder / "metadata.tsv") as metadata_file,
        replacing(folder / "vectors.tsv") as vectors_file,
    ):
        columns = vectors.matrix.shape[1]
        line = "\t".join(["%.6g"] * columns) + "\n"
        with open(vectors_file, "w", encoding="utf-8") as file:
            file.writelines(line % tuple(vectors.matrix[row].tolist()) for row in rows)
        _write_metadata(vectors, rows, metadata_file)
        config_file.write_text(_CONFIG.format(points=len(rows), columns=columns), encoding="utf-8")
    return len(rows)


def sample(size: int, limit: int) -> np.ndarray:
    """Return ranks of words, equally many from each decade of rank: 1-10, 11-100, 101-1,000, ...

    The ranks from a decade are evenly spaced. A decade with fewer words than its share is taken
    whole, and the other decades share the rest.

    Args:
        size: The number of words.
        limit: The most words to choose.

    Returns:
        Ranks from 0, ascending, int64, `min(size, limit)` in number.
    """
    edges = [0]
    while edges[-1] < size:
        edges.append(min(size, 10 ** len(edges)))
    left, chosen = limit, [np.empty(0, np.int64)]
    strata = list(zip(edges[:-1], edges[1:], strict=True))
    # The smallest stratum comes first, as the larger ones share the words that it cannot give.
    strata.sort(key=lambda stratum: stratum[1] - stratum[0])
    for number, (low, high) in enumerate(strata):
        take = min(high - low, left // (len(strata) - number))
        chosen.append(low + np.arange(take) * (high - low) // max(take, 1))
        left -= take
    return np.sort(np.concatenate(chosen))


def _write_metadata(vectors: WordVectors, rows: np.ndarray, path: Path) -> None:
    """Write a header and a line for each row: word, rank from 1, stratum and the count, if known.

    Tabs and line breaks within a word become spaces.
    """
    header = ["word", "rank", "stratum"] + (["count"] if vectors.counts is not None else [])
    with open(path, "w", encoding="utf-8", errors="replace") as file:
        print(*header, sep="\t", file=file)
        for row in rows.tolist():
            power = len(str(row))
            stratum = f"{10 ** (power - 1) + 1 if power > 1 else 1}-{10**power}"
            count = [] if vectors.counts is None else [vectors.counts[row]]
            # A tab or a line break would shift every following label.
            word = re.sub(r"[\t\r\n]", " ", vectors.tokens[row])
            print(word, row + 1, stratum, *count, sep="\t", file=file)
