"""Word vectors in the formats of other programs, written whole or not at all.

`FORMATS` has them by the values of `lexrow export --format`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Set

from ..errors import UsageError
from ..settings import CorpusConfig
from ..types import WordVectors
from . import array_files, fasttext_bin, projector, static_embedding, word2vec


def _saved_model(vectors: WordVectors, path: str, corpus: CorpusConfig) -> None:
    """Write word vectors as a SavedModel to the folder `path`."""
    from . import saved_model  # it imports TensorFlow, which no other format needs

    saved_model.write(vectors, path)


# Each writes vectors to a path; `corpus` says how their text was split. Some have options.
FORMATS: dict[str, Callable[..., object]] = {
    "word2vec": lambda vectors, path, corpus: word2vec.write(vectors, path),
    "word2vec_binary": lambda vectors, path, corpus: word2vec.write(vectors, path, binary=True),
    "fasttext": lambda vectors, path, corpus: fasttext_bin.write(vectors, path),
    "saved_model": _saved_model,
    "projector": lambda vectors, path, corpus, limit=projector.TSNE_POINTS: projector.write(
        vectors, path, limit
    ),
    "safetensors": lambda vectors, path, corpus: array_files.write_safetensors(vectors, path),
    "parquet": lambda vectors, path, corpus: array_files.write_parquet(vectors, path),
    "static_embedding": lambda vectors, path, corpus, sif=0.0: static_embedding.write(
        vectors, path, corpus, sif
    ),
}
# Those for vectors of a task that also has formats of its own.
SHARED = {
    "classify": ("word2vec", "word2vec_binary", "safetensors", "parquet", "static_embedding"),
    "recommend": ("word2vec", "safetensors", "parquet"),
}
# The options of one format.
OPTIONS = {
    "projector": ("limit",),
    "static_embedding": ("sif",),
    "fasttext_quantized": ("cutoff", "qout", "bytes"),
}


def check(format: str, task: str, own: Collection[str], options: Set[str]) -> None:
    """Raise UsageError if a task has no such format, or the format has no such option.

    Args:
        own: The formats that the task alone has.
        options: The names of the options that are given.
    """
    known = dict.fromkeys((*own, *SHARED.get(task, FORMATS)))
    if format not in known:
        choices = ", ".join(known)
        raise UsageError(f"--format={format}: no format of --task={task}; choose from {choices}")
    for name in sorted(options - {*OPTIONS.get(format, ())}):
        raise UsageError(f"--{name} means nothing to --format={format}; leave it out")
