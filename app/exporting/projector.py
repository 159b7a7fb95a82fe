"""Write words and vectors for TensorBoard's Embedding Projector.

Format: https://www.tensorflow.org/tensorboard/tensorboard_projector_plugin. The command
`tensorboard --logdir=FOLDER` looks for `projector_config.pbtxt` in FOLDER and beside event files.
Its paths must stay inside the folder of that file.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np

from ..errors import UsageError
from ..system.files import replacing
from ..types import WordVectors
from .array_files import finite_rows

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
    """Write the first words to `vectors.tsv`, `metadata.tsv` and `projector_config.pbtxt`.

    The metadata columns are the word, its rank by frequency from 1 and, if known, its count and the
    decimal logarithm of that, by which the projector can colour the words. Words without a finite
    vector are left out, with a warning. Numbers are written with six digits. Existing files are
    replaced.

    Args:
        limit: The most words to write, at most `MAX_POINTS`. By default the number that t-SNE uses
            without sampling.

    Returns:
        The number of words written.

    Raises:
        UsageError: The limit is out of range, no word has a finite vector, or the folder is a file.
        RunError: The files cannot be written.
    """
    if not 1 <= limit <= MAX_POINTS:
        raise UsageError(f"--limit={limit}: the projector shows 1 to {MAX_POINTS:,} words")
    # The projector draws nothing at all if a single number is not finite.
    rows = finite_rows(vectors, np.arange(len(vectors.tokens)))[:limit]
    if not len(rows):
        raise UsageError(f"--output={folder}: no word has a finite vector; train or choose others")
    folder = Path(folder)
    columns, counts = vectors.matrix.shape[1], vectors.counts
    line = "\t".join(["%.6g"] * columns) + "\n"
    with (
        replacing(folder / "projector_config.pbtxt") as config_file,
        replacing(folder / "metadata.tsv") as metadata_file,
        replacing(folder / "vectors.tsv") as vectors_file,
    ):
        config_file.write_text(_CONFIG.format(points=len(rows), columns=columns), encoding="utf-8")
        with open(vectors_file, "w", encoding="utf-8") as file:
            file.writelines(line % tuple(vectors.matrix[row].tolist()) for row in rows)
        with open(metadata_file, "w", encoding="utf-8", errors="replace") as file:
            names = [] if counts is None else ["count", "log10(count)"]
            print("word", "rank", *names, sep="\t", file=file)
            for row in rows.tolist():
                # A tab or a line break would shift every following label.
                word = re.sub(r"[\t\r\n]", " ", vectors.tokens[row])
                numbers = []
                if counts is not None:
                    numbers = [counts[row], f"{math.log10(max(counts[row], 1)):.4g}"]
                print(word, row + 1, *numbers, sep="\t", file=file)
    return len(rows)
