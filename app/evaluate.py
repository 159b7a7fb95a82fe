"""Scores word vectors: python -m app.evaluate --workdir=DIR (or --vectors=FILE)

With --heldout=FILE it scores a language model, a classifier or recommendations on those files.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags as absl_flags

from .cli import flags
from .config import settings
from .errors import UsageError
from .evaluation import score_report
from .system.files import replacing


def main(_: Sequence[str]) -> None:
    """Prints a table of scores, and writes them as JSON if asked."""
    given = absl_flags.FLAGS
    if given.heldout:
        text, record = _heldout(given.workdir, given.heldout)
    else:
        scores = score_report.run(
            *(flags.vectors(), given.benchmarks, given.pairs, given.analogies),
            *(given.case, given.restrict),
        )
        text, record = score_report.table(scores), score_report.summary(scores)
    print(text)
    if given.json:
        with replacing(given.json) as temporary:
            Path(temporary).write_text(json.dumps(record, indent=1) + "\n")


def define() -> None:
    """Defines the flags of this command."""
    flags.define_vectors()
    absl_flags.DEFINE(flags.Paths(), "heldout", "", "Files as of --corpus to score the run on.")
    names, several = ",".join(score_report.benchmarks), flags.Names()
    text = f"Some of {names}, which come with gensim; empty for none."
    absl_flags.DEFINE(several, "benchmarks", names, text)
    text = "Files of one's own word pairs: word, word, score a line."
    absl_flags.DEFINE(several, "pairs", "", text)
    text = "Files of one's own analogies: four words a line."
    absl_flags.DEFINE(several, "analogies", "", text)
    text = "Of recommendations: numbers of items, as of app.train."
    absl_flags.DEFINE(flags.Text(), "top", "", text)
    absl_flags.DEFINE(flags.Paths(), "json", "", "A file to write the scores to.")


def _heldout(folder: str, heldout: str) -> tuple[str, dict[str, Any]]:
    """What to say of the run in a workdir on such files, and the same for programs."""
    stored = flags.stored_in(folder)
    top = absl_flags.FLAGS.top
    if top:
        wrong = settings.fault(settings.fields()["top"], top)
        if wrong:
            raise UsageError(f"--top={top}: {wrong}")
        stored["top"] = top
    task = stored.get("task")
    flags.start_tensorflow()
    from .checkpoints.workdir import Workdir
    from .system import devices
    from .tasks import all_tasks

    if task not in all_tasks.SCORES:
        found = f"holds a run of --task={task}" if task else "no trained run there"
        raise UsageError(
            f"--workdir={folder}: {found}; --heldout={heldout} scores --task="
            f"{' and '.join(all_tasks.SCORES)} only"
        )
    config = settings.from_names(stored)
    devices.use_machine(config.run)
    return all_tasks.SCORES[task](config, Workdir(folder), heldout)


if __name__ == "__main__":
    define()
    flags.run(main)
