"""Train a model.

    lexrow train --preset=NAME --corpus=FILES --workdir=DIR

--preset takes the settings of an example, and flags beside it change them: words, subwords, text8
and smoke of word vectors, language_model, classify and recommend. --flagfile=FILE takes the flags
in a file, a line each, as --flagfile=DIR/flags.cfg takes those of another run.

The same command with the same workdir continues a run that was stopped.
"""

from __future__ import annotations

from collections.abc import Sequence

from absl import logging

from .cli import flags, startup


def main(_: Sequence[str]) -> None:
    """Train the task that --task names, then log the scores of the result, if there are any.

    Raises:
        UsageError: The flags, the input and the workdir do not fit together.
        RunError: Training failed, or SIGINT or SIGTERM stopped it.
    """
    config = flags.parsed()
    startup.store_programs()
    startup.start_tensorflow()
    from .system import devices
    from .training.run import train_and_evaluate

    devices.use_machine(config.run)
    report = train_and_evaluate(config, config.run.workdir)
    if report:
        logging.info("%s", report)


if __name__ == "__main__":
    flags.define_settings()
    flags.run(main, remedy="name the files of the text by --corpus=FILE, see --help")
