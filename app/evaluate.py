"""Score a trained run, or a file of word vectors.

    lexrow evaluate --workdir=DIR (or --vectors=FILE)

With --heldout=FILE it scores a language model, a classifier or a recommender on that file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags as absl_flags

from .checkpoints.workdir import read_settings, write_json
from .cli import flags, startup
from .errors import UsageError
from .evaluation import score_report
from .settings.recommend_config import check_score_users
from .settings.setting import MOST_ROWS

_OF_RECOMMENDERS = ("top", "score_users")
# The flags that concern word vectors alone, and not a run that --heldout scores.
_OF_VECTORS = ("vectors", "case", "restrict", "benchmarks", "pairs", "analogies")


def main(_: Sequence[str]) -> None:
    """Score word vectors or, with --heldout, the run of a workdir; print the scores.

    They are also written to the file of --json, if given.

    Raises:
        UsageError: The flags, the vectors, the workdir or a file to score on cannot be used, or a
            flag has no effect.
        RunError: There is no checkpoint that can be read, or --json cannot be written.
    """
    values = absl_flags.FLAGS
    if values.heldout:
        text, record = _score_heldout(values.workdir, values.heldout)
    else:
        _check_vector_flags()
        # Files of one's own need no gensim, if benchmarks are not asked for.
        has_own = values.pairs or values.analogies
        names = None if has_own and not values["benchmarks"].present else values.benchmarks
        scores = score_report.run(
            *(flags.vectors(), names, values.pairs, values.analogies),
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
    flags.define("heldout", "", text, path=True)
    names, parser = ",".join(score_report.benchmarks), flags.Names()
    text = f"Benchmarks to run, of {names}, which come with gensim; empty for none."
    absl_flags.DEFINE(parser, "benchmarks", names, text)
    text = "Your own files of word pairs; a line has two words and a score."
    absl_flags.DEFINE(parser, "pairs", "", text)
    text = "Your own files of analogies; a line has four words."
    absl_flags.DEFINE(parser, "analogies", "", text)
    text = "For a recommender: lengths of the lists of items to score, as --top of lexrow train."
    flags.define("top", "", text, bounds=(1, MOST_ROWS), numbers=int)
    text = "For a recommender: how many users to rank items for, drawn by its --seed; or `all`."
    flags.define("score_users", "all", text)
    flags.define("json", "", "A file to write the scores to.", path=True)


def _refuse(names: Sequence[str], beside: str) -> None:
    """Raise UsageError if one of some flags is given, which means nothing beside others."""
    for name in names:
        if absl_flags.FLAGS[name].present:
            raise UsageError(f"--{name} means nothing {beside}; leave it out")


def _check_vector_flags() -> None:
    """Raise UsageError if there is nothing to score the vectors on, or --top has no effect."""
    values = absl_flags.FLAGS
    _refuse(_OF_RECOMMENDERS, "without --heldout=FILE")
    if values.pairs or values.analogies:
        return
    if not values.benchmarks:
        raise UsageError(
            "--benchmarks= leaves nothing to score on; give --pairs=FILE or --analogies=FILE, or "
            f"name benchmarks, of {','.join(score_report.benchmarks)}"
        )
    task = read_settings(values.workdir).get("task", "words")
    if task != "words" and not values["benchmarks"].present:
        raise UsageError(
            f"--workdir={values.workdir} holds a run of --task={task}; give --heldout=FILE to "
            "score it on, in the format of its --corpus, or --benchmarks for vectors of words"
        )


def _score_heldout(folder: str, heldout: str) -> tuple[str, dict[str, Any]]:
    """Return the scores of the run in a workdir on held-out files, as text and as JSON values.

    --top replaces the value of the run, and --score_users does. TensorFlow is started.

    Raises:
        UsageError: --top or --score_users is wrong, a flag means nothing to such scores, the run is
            of no task with such scores, or a file cannot be used.
        RunError: There is no checkpoint that can be read.
    """
    _refuse(_OF_VECTORS, f"to --heldout={heldout}")
    stored, values = read_settings(folder), absl_flags.FLAGS
    task = stored.get("task")
    if task == "recommend":
        stored["score_users"] = values.score_users
        check_score_users(values.score_users)
    elif task:
        _refuse(_OF_RECOMMENDERS, f"to --task={task}")
    if values.top:
        stored["top"] = values.top
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
