"""Export vectors or a model.

python -m app.export --workdir=DIR --format=word2vec --output=PATH
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from absl import flags as absl_flags

from .checkpoints.workdir import Workdir
from .cli import flags, startup
from .config import Config
from .errors import UsageError
from .exporting import fasttext_bin, projector, word2vec
from .types import WordVectors


def _saved_model(vectors: WordVectors, path: str) -> None:
    """Start TensorFlow, and write word vectors as a SavedModel to the folder `path`."""
    startup.start_tensorflow()  # only this format needs TensorFlow
    from .exporting import saved_model

    saved_model.write(vectors, path)


FORMATS: dict[str, Callable[[WordVectors, str], object]] = {
    "word2vec": word2vec.write,
    "word2vec_binary": lambda vectors, path: word2vec.write(vectors, path, binary=True),
    "fasttext": fasttext_bin.write,
    "saved_model": _saved_model,
    "projector": lambda vectors, path: projector.write(vectors, path, absl_flags.FLAGS.limit),
}


def main(_: Sequence[str]) -> None:
    """Write the vectors or the model to --output in the format of --format, and print a message.

    Raises:
        UsageError: --output is empty, the task has no such format, or the vectors or the workdir
            cannot be used.
        RunError: There is no checkpoint that can be read, or --output cannot be written.
    """
    values = absl_flags.FLAGS
    if not values.output:
        raise UsageError("--output= is empty; name the file or folder to write")
    stored = flags.stored_in(values.workdir)
    task = stored.get("task", "words")
    formats, has_words = _formats_of_task(task) if stored else ({}, True)
    known = {**(FORMATS if has_words else {}), **formats}
    if values.format not in known:
        raise UsageError(
            f"--format={values.format}: no format of --task={task}; choose from {', '.join(known)}"
        )
    if values.format in formats:
        print(formats[values.format](*startup.start_run(values.workdir, stored), values.output))
        return
    vectors = flags.vectors()
    FORMATS[values.format](vectors, values.output)
    print(f"{values.output}: {len(vectors.tokens):,} vectors of {vectors.matrix.shape[1]} numbers")


def _formats_of_task(
    task: str,
) -> tuple[Mapping[str, Callable[[Config, Workdir, str], str]], bool]:
    """Start TensorFlow; return the formats of a task alone, and whether it has those of words."""
    startup.start_tensorflow()
    from .tasks import all_tasks

    return all_tasks.EXPORTS.get(task, {}), task in all_tasks.WORD_VECTORS


def define() -> None:
    """Define the flags of this command."""
    flags.define_vectors()
    absl_flags.DEFINE(
        flags.Text(),
        "format",
        "word2vec",
        f"The format to write. Words: {', '.join(FORMATS)}. A classifier: fasttext, saved_model or "
        "word2vec. A recommender: vectors or faiss.",
    )
    text = "The file to write; a folder for saved_model and projector."
    absl_flags.DEFINE(flags.Paths(), "output", "", text)
    text = "The number of words to write for the projector."
    absl_flags.DEFINE(flags.count(1), "limit", 10_000, text)


if __name__ == "__main__":
    define()
    flags.run(main)
