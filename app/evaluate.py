"""Scores word vectors: python -m app.evaluate --workdir=DIR (or --vectors=FILE)"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from absl import flags as absl_flags

from app import flags
from app.evaluation import report
from app.files import replacing


def main(_: Sequence[str]) -> None:
    """Prints a table of scores, and writes them as JSON if asked."""
    given = absl_flags.FLAGS
    scores = report.run(
        flags.vectors(), given.benchmarks, given.pairs, given.analogies, given.case, given.restrict
    )
    print(report.table(scores))
    if given.json:
        with replacing(given.json) as temporary:
            Path(temporary).write_text(json.dumps(report.summary(scores), indent=1) + "\n")


def define() -> None:
    """Defines the flags of this command."""
    flags.define_vectors()
    names = ",".join(report.benchmarks)
    absl_flags.DEFINE_list("benchmarks", names, f"Of {names}; empty for none.")
    absl_flags.DEFINE_list("pairs", "", "Files of one's own word pairs: word, word, score a line.")
    absl_flags.DEFINE_list("analogies", "", "Files of one's own analogies: four words a line.")
    absl_flags.DEFINE_string("json", "", "A file to write the scores to.")


if __name__ == "__main__":
    define()
    flags.run(main)
