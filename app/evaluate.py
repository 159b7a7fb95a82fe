"""Score word vectors.

    python -m app.evaluate --workdir=DIR (or --vectors=FILE)

With --heldout=FILE it scores a language model, a classifier or a recommender on that file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags as absl_flags

from .checkpoints.workdir import write_json
from .cli import flags, startup
from .config import settings
from .config.setting import fault
from .errors import UsageError
from .evaluation import score_report


def main(_: Sequence[str]) -> None:
    """Score word vectors or, with --heldout, the run of a workdir; print the scores.

    They are also written to the file of --json, if given.

    Raises:
        UsageError: The flags, the vectors, the workdir or a file to score on cannot be used.
        RunError: There is no checkpoint that can be read, or --json cannot be written.
    """
    values = absl_flags.FLAGS
    if values.heldout:
        text, record = _score_heldout(values.workdir, values.heldout)
    else:
        scores = score_report.run(
            *(flags.vectors(), values.benchmarks, values.pairs, values.analogies),
            *(values.case, values.restrict),
        )
        text, record = score_report.table(scores), score_report.summary(scores)
    print(text)
    if values.json:
        write_json(Path(values.json), record)


def define() -> None:
    """Define the flags of this command."""
    flags.define_vectors()
    text = "Files to score the run on, in the format of --corpus."
    absl_flags.DEFINE(flags.Paths(), "heldout", "", text)
    names, parser = ",".join(score_report.benchmarks), flags.Names()
    text = f"Benchmarks to run, of {names}, which come with gensim; empty for none."
    absl_flags.DEFINE(parser, "benchmarks", names, text)
    text = "Your own files of word pairs; a line has two words and a score."
    absl_flags.DEFINE(parser, "pairs", "", text)
    text = "Your own files of analogies; a line has four words."
    absl_flags.DEFINE(parser, "analogies", "", text)
    text = "For a recommender: lengths of the lists of items to score, as --top of app.train."
    absl_flags.DEFINE(flags.Text(), "top", "", text)
    absl_flags.DEFINE(flags.Paths(), "json", "", "A file to write the scores to.")


def _score_heldout(folder: str, heldout: str) -> tuple[str, dict[str, Any]]:
    """Return the scores of the run in a workdir on held-out files, as text and as JSON values.

    --top replaces the value of the run. TensorFlow is started.

    Raises:
        UsageError: --top is wrong, the run is of no task with such scores, or a file cannot be
            used.
        RunError: There is no checkpoint that can be read.
    """
    stored = flags.stored_in(folder)
    top = absl_flags.FLAGS.top
    if top:
        wrong = fault(settings.fields()["top"], top)
        if wrong:
            raise UsageError(f"--top={top}: {wrong}")
        stored["top"] = top
    task = stored.get("task")
    config, place = startup.start_run(folder, stored)
    from .tasks import all_tasks

    if task not in all_tasks.SCORES:
        content = f"holds a run of --task={task}" if task else "no trained run there"
        raise UsageError(
            f"--workdir={folder}: {content}; --heldout={heldout} scores --task="
            f"{' and '.join(all_tasks.SCORES)} only"
        )
    return all_tasks.SCORES[task](config, place, heldout)


if __name__ == "__main__":
    define()
    flags.run(main)
