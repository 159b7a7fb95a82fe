"""Word vectors in the formats of other programs, written whole or not at all.

`FORMATS` has them by the values of `lexrow export --format`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Set

from ..errors import UsageError
from ..settings import CorpusConfig
from ..types import WordVectors
from . import array_files, fasttext_bin, projector, static_embedding, word2vec


def _saved_model(vectors: WordVectors, path: str, corpus: CorpusConfig) -> None:
    """Write word vectors as a SavedModel to the folder `path`."""
    from . import saved_model  # it imports TensorFlow, which no other format needs

    saved_model.write(vectors, path)


def _for_any_text(write: Callable[..., object]) -> Callable[..., object]:
    """Return a function that writes a format for which it does not matter how text is split."""
    return lambda vectors, path, corpus, **options: write(vectors, path, **options)


# Each writes vectors to a path; `corpus` says how their text was split. Some have options.
FORMATS: dict[str, Callable[..., object]] = {
    "word2vec": _for_any_text(word2vec.write),
    "word2vec_binary": _for_any_text(functools.partial(word2vec.write, binary=True)),
    "fasttext": _for_any_text(fasttext_bin.write),
    "saved_model": _saved_model,
    "projector": _for_any_text(projector.write),
    "safetensors": _for_any_text(array_files.write_safetensors),
    "parquet": _for_any_text(array_files.write_parquet),
    "static_embedding": static_embedding.write,
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
