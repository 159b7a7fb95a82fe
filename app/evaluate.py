"""Scores word vectors: python -m app.evaluate --workdir=DIR (or --vectors=FILE)

With --heldout=FILE it scores a language model: its perplexity on that text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags as absl_flags

from app import flags, settings
from app.errors import UsageError
from app.evaluation import report
from app.files import replacing


def main(_: Sequence[str]) -> None:
    """Prints a table of scores, and writes them as JSON if asked."""
    given = absl_flags.FLAGS
    if given.heldout:
        text, record = _perplexity(given.workdir, given.heldout)
    else:
        scores = report.run(
            *(flags.vectors(), given.benchmarks, given.pairs, given.analogies),
            *(given.case, given.restrict),
        )
        text, record = report.table(scores), report.summary(scores)
    print(text)
    if given.json:
        with replacing(given.json) as temporary:
            Path(temporary).write_text(json.dumps(record, indent=1) + "\n")


def define() -> None:
    """Defines the flags of this command."""
    flags.define_vectors()
    absl_flags.DEFINE_string("heldout", "", "Text to score a language model on: files as --corpus.")
    names = ",".join(report.benchmarks)
    absl_flags.DEFINE_list("benchmarks", names, f"Of {names}; empty for none.")
    absl_flags.DEFINE_list("pairs", "", "Files of one's own word pairs: word, word, score a line.")
    absl_flags.DEFINE_list("analogies", "", "Files of one's own analogies: four words a line.")
    absl_flags.DEFINE_string("json", "", "A file to write the scores to.")


def _perplexity(folder: str, heldout: str) -> tuple[str, dict[str, Any]]:
    """What to say of the language model in a workdir, and the same for programs."""
    stored = flags.stored_in(folder)
    task = stored.get("task")
    if task != "language_model":
        found = f"holds a run of --task={task}" if task else "no trained run there"
        raise UsageError(
            f"--workdir={folder}: {found}; --heldout={heldout} scores a language model only"
        )
    flags.start_tensorflow()
    from app import build, devices
    from app.text import vocabulary
    from app.training import language_model
    from app.training.workdir import Workdir

    config, place = settings.from_names(stored), Workdir(folder)
    devices.use_machine(config.run)
    known = vocabulary.load(str(place.vocabulary))
    score, step = build.trained_language_model(config, known, place)
    found = score(language_model.of_files(heldout, known, config))
    if not found.words:
        raise UsageError(language_model.nothing_known(heldout))
    perplexity = language_model.of_loss(found.loss)["perplexity"]
    text = (
        f"perplexity {perplexity:,.2f}, {found.loss:.4f} nats a token, of step {step:,}: "
        f"{found.tokens:,} tokens, <eos> after each document included, "
        f"{1 - found.words / found.tokens:.1%} of them <eos> or <unk>; "
        f"a vocabulary of {len(known.tokens):,}"
    )
    return text, {"perplexity": perplexity, "step": step, **found._asdict()}


if __name__ == "__main__":
    define()
    flags.run(main)
