"""Hands vectors on: python -m app.export --workdir=DIR --format=word2vec --output=PATH"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from absl import flags as absl_flags

from .checkpoints.workdir import Workdir
from .cli import flags
from .config import Config, settings
from .errors import UsageError
from .exporting import projector, word2vec
from .types import WordVectors


def _saved_model(vectors: WordVectors, path: str) -> None:
    flags.start_tensorflow()  # which the other formats do without
    from .exporting import saved_model

    saved_model.write(vectors, path)


FORMATS: dict[str, Callable[[WordVectors, str], object]] = {
    "word2vec": word2vec.write,
    "word2vec_binary": lambda vectors, path: word2vec.write(vectors, path, binary=True),
    "saved_model": _saved_model,
    "projector": lambda vectors, path: projector.write(vectors, path, absl_flags.FLAGS.limit),
}


def main(_: Sequence[str]) -> None:
    """Writes the vectors, or the model, in the format asked for."""
    given = absl_flags.FLAGS
    if not given.output:
        raise UsageError("--output= is empty; name the file or folder to write")
    stored = flags.stored_in(given.workdir)
    task = stored.get("task", "words")
    formats = _formats(task) if stored else {}
    if formats:
        print(_exported(formats, task, settings.from_names(stored)))
        return
    if given.format not in FORMATS:
        raise UsageError(_no_such(task, FORMATS))
    vectors = flags.vectors()
    FORMATS[given.format](vectors, given.output)
    print(f"{given.output}: {len(vectors.tokens):,} words of {vectors.matrix.shape[1]} numbers")


def _formats(task: str) -> Mapping[str, Callable[[Config, Workdir, str], str]]:
    """Those of a task whose runs are more, or other, than word vectors."""
    flags.start_tensorflow()
    from .tasks import all_tasks

    return all_tasks.EXPORTS.get(task, {})


def _exported(
    formats: Mapping[str, Callable[[Config, Workdir, str], str]], task: str, config: Config
) -> str:
    """Writes what a run of this task has in the format; what to say of it."""
    from .system import devices

    given = absl_flags.FLAGS
    if given.format not in formats:
        raise UsageError(_no_such(task, formats))
    devices.use_machine(config.run)
    return formats[given.format](config, Workdir(given.workdir), given.output)


def _no_such(task: str, formats: Iterable[str]) -> str:
    given = absl_flags.FLAGS.format
    return f"--format={given}: no format of --task={task}; choose from {', '.join(formats)}"


def define() -> None:
    """Defines the flags of this command."""
    flags.define_vectors()
    absl_flags.DEFINE(
        flags.Text(),
        "format",
        "word2vec",
        f"What to write: of words, {', '.join(FORMATS)}; of a classifier, saved_model or word2vec; "
        "of recommendations, vectors or faiss.",
    )
    text = "The file, or folder for saved_model and projector."
    absl_flags.DEFINE(flags.Paths(), "output", "", text)
    absl_flags.DEFINE(flags.count(1), "limit", 10_000, "Points for the projector.")


if __name__ == "__main__":
    define()
    flags.run(main)
