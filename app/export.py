"""Export vectors or a model.

    lexrow export --workdir=DIR --format=word2vec --output=PATH

Formats of word vectors also take --vectors=FILE instead of a trained run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from absl import flags as absl_flags

from . import exporting
from .checkpoints.workdir import Workdir, read_settings
from .cli import flags, startup
from .errors import UsageError
from .exporting import FORMATS, OPTIONS, SHARED
from .settings import flag_values
from .settings.setting import MOST_ROWS


def main(_: Sequence[str]) -> None:
    """Write the vectors or the model to --output in the format of --format, and print a message.

    Raises:
        UsageError: --output is empty or a part of the run, the task has no such format, a flag is
            of another format, or the vectors or the workdir cannot be used.
        RunError: There is no checkpoint that can be read, or --output cannot be written.
    """
    values = absl_flags.FLAGS
    if not values.output:
        raise UsageError("--output= is empty; name the file or folder to write")
    if values.workdir:
        Workdir(values.workdir).check_output(values.output)
    stored = read_settings(values.workdir)
    task = stored.get("task", "words")
    formats: Mapping[str, Callable[..., str]] = {}
    if values.workdir and not stored:
        raise UsageError(
            f"--workdir={values.workdir}: no trained run there; name the folder of one"
        )
    if stored:
        startup.start_tensorflow()
        from .tasks import all_tasks

        formats = all_tasks.EXPORTS.get(task, {})
    names = {name for names in OPTIONS.values() for name in names}
    names |= {"restrict"} if values.format in formats else set()
    exporting.check(values.format, task, formats, {name for name in names if values[name].present})
    options = {name: values[name].value for name in OPTIONS.get(values.format, ())}
    if values.format in formats:
        run = startup.start_run(values.workdir, stored)
        print(formats[values.format](*run, values.output, **options))
        return
    if values.restrict and values.sif:
        raise UsageError("--sif and --restrict: the shares of words need all counts; leave out one")
    vectors = flags.vectors().first(values.restrict)
    if values.format == "saved_model":
        startup.start_tensorflow()
    FORMATS[values.format](vectors, values.output, flag_values.from_names(stored).corpus, **options)
    rows, columns = len(vectors.tokens), vectors.matrix.shape[1]
    has_text_ops = values.format == "saved_model" and vectors.form
    needs = " (to load it: import tensorflow_text)" if has_text_ops else ""
    print(f"{values.output}: {rows:,} vectors of {columns} numbers, as {values.format}{needs}")


def define() -> None:
    """Define the flags of this command."""
    flags.define_vectors(compares=False)
    flags.define(
        "format",
        "word2vec",
        f"The format to write. Words: {', '.join(FORMATS)}. A classifier: fasttext, "
        f"fasttext_quantized, saved_model, {', '.join(SHARED['classify'])}. "
        f"A recommender: vectors, faiss, {', '.join(SHARED['recommend'])}.",
    )
    text = "The file to write; a folder for saved_model, projector and static_embedding."
    flags.define("output", "", text, path=True)
    text = "The number of words to write for the projector."
    flags.define("limit", 10_000, text, bounds=(1, MOST_ROWS))
    text = (
        "For static_embedding: each word has the weight sif / (sif + p), where p is its share of "
        "the text. 0: no weights. Usual: 1e-3."
    )
    flags.define("sif", 0.0, text, bounds=(0, 1e6))
    text = "The rows of words and n-grams that fasttext_quantized keeps, the longest. 0: all."
    flags.define("cutoff", 0, text, bounds=(0, MOST_ROWS))
    text = "Whether fasttext_quantized also quantises the rows of labels."
    flags.define("qout", False, text)
    text = "The most bytes of a file of fasttext_quantized, which keeps as many rows. 0: any."
    flags.define("bytes", 0, text, bounds=(0, 2**40))


if __name__ == "__main__":
    define()
    flags.run(main)
