"""Names the bottleneck of a run: python -m app.profile --workdir=DIR, or --live

Reads the newest profile that app.train --profile_steps=START,STOP recorded. With --live, and the
flags of app.train, it measures instead: the input alone, the steps alone, and both together.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags as absl_flags

from .benchmarks.harness import picture as drawing
from .checkpoints import workdir
from .cli import flags
from .config import TableConfig, settings
from .errors import UsageError
from .profiling import profile_picture, profile_report, profiles
from .system.files import replacing


def main(_: Sequence[str]) -> None:
    """Prints the diagnosis, and writes what --json and --plot ask for."""
    given = absl_flags.FLAGS
    if given.live and (given.before or given.plot):
        raise UsageError("--live draws and compares nothing; leave out --before and --plot")
    if given.plot:
        drawing.check(given.plot)
    text, record = _live() if given.live else _recorded()
    print(text, flush=True)
    if given.json:
        with replacing(given.json) as temporary:
            temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def define() -> None:
    """Defines the flags of this command: those of a run, and its own."""
    flags.define()
    absl_flags.DEFINE(flags.Paths(), "before", "", "The folder of another run to compare with.")
    absl_flags.DEFINE_bool("live", False, "Measure now, without a profile and without training.")
    absl_flags.DEFINE(flags.Float(0.1, 86_400.0), "seconds", 5.0, "Seconds of each part of --live.")
    absl_flags.DEFINE(flags.Paths(), "json", "", "Write every number to this file.")
    absl_flags.DEFINE(flags.Paths(), "plot", "", "Draw how a step divides (.png, .svg or .pdf).")


def _recorded() -> tuple[str, dict[str, Any]]:
    given = absl_flags.FLAGS
    if not given.workdir:
        raise UsageError("--workdir= is empty; name the folder of a run, or give --live")
    found = _diagnosed("workdir", given.workdir)
    text, record = profile_report.text(found), profile_report.record(found)
    drawn = [("now", found)] if given.before else [(given.workdir, found)]
    if given.before:
        before = _diagnosed("before", given.before)
        if (before.tokens == 1) != (found.tokens == 1):
            raise UsageError(
                f"--before={given.before}: only one of both is a run of app.train, so that their "
                "steps cannot be compared; name two runs"
            )
        text += "\n" + profile_report.compared(before, found)
        record["before"] = profile_report.record(before)
        drawn.insert(0, ("before", before))
    if given.plot:
        profile_picture.draw(drawn, given.plot)
    return text, record


def _diagnosed(flag: str, path: str) -> profile_report.Diagnosis:
    profile = profiles.newest(Path(path), flag)
    # A run's workdir is three folders above a profile in its tensorboard/plugins/profile.
    stored = flags.stored_in(profile.resolve().parents[3])
    config = settings.from_names(stored) if stored else None
    return profile_report.diagnose(profile, config)


def _live() -> tuple[str, dict[str, Any]]:
    # The input is measured, and the file of a run's tables must not be touched.
    config = dataclasses.replace(flags.parsed(needs_workdir=False), table=TableConfig())
    flags.start_tensorflow()
    from .profiling import live
    from .system import devices
    from .tasks import all_tasks

    devices.use_machine(config.run)
    place = workdir.Workdir(config.run.workdir or os.devnull)
    with tempfile.TemporaryDirectory() as folder:
        place.cache = Path(folder)
        job = all_tasks.JOBS[config.run.task](config, place, True)
        found = live.measure(job, config.run.seed, absl_flags.FLAGS.seconds)
    return live.text(found, job.unit), found._asdict()


if __name__ == "__main__":
    define()
    flags.run(main)
