"""Hands vectors on: python -m app.export --workdir=DIR --format=word2vec --output=PATH"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from absl import flags as absl_flags

from app import flags
from app.errors import UsageError
from app.exporting import projector, word2vec
from app.types import WordVectors


def _saved_model(vectors: WordVectors, path: str) -> None:
    flags.start_tensorflow()  # which the other formats do without
    from app.exporting import saved_model

    saved_model.write(vectors, path)


FORMATS: dict[str, Callable[[WordVectors, str], object]] = {
    "word2vec": word2vec.write,
    "word2vec_binary": lambda vectors, path: word2vec.write(vectors, path, binary=True),
    "saved_model": _saved_model,
    "projector": lambda vectors, path: projector.write(vectors, path, absl_flags.FLAGS.limit),
}


def main(_: Sequence[str]) -> None:
    """Writes the vectors in the format asked for."""
    given = absl_flags.FLAGS
    if not given.output:
        raise UsageError("--output= is empty; name the file or folder to write")
    vectors = flags.vectors()
    FORMATS[given.format](vectors, given.output)
    print(f"{given.output}: {len(vectors.tokens):,} words of {vectors.matrix.shape[1]} numbers")


def define() -> None:
    """Defines the flags of this command."""
    flags.define_vectors()
    absl_flags.DEFINE_enum("format", "word2vec", list(FORMATS), "What to write.")
    absl_flags.DEFINE_string("output", "", "The file, or folder for saved_model and projector.")
    absl_flags.DEFINE_integer("limit", 10_000, "Points for the projector.", lower_bound=1)


if __name__ == "__main__":
    define()
    flags.run(main)
