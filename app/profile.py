"""Name the bottleneck of a run.

    lexrow profile --workdir=DIR, or --live

It reads the newest profile that `lexrow train --profile_steps=START,STOP` recorded. With --live and
the flags of `lexrow train` it measures the input alone, the steps alone, and both together.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags as absl_flags

from .checkpoints import workdir
from .cli import flags, startup
from .errors import UsageError
from .profiling import profile_picture, profile_report, profiles
from .settings import TableConfig, flag_values


def main(_: Sequence[str]) -> None:
    """Print the diagnosis of a recorded profile or, with --live, of measurements made now.

    Write the files of --json and --plot, if given.

    Raises:
        UsageError: The flags are not possible together, or --workdir or --before has no profile.
        RunError: A profile is damaged, the measurement fails, or a file cannot be written.
    """
    values = absl_flags.FLAGS
    if values.live and (values.before or values.plot):
        raise UsageError("--live draws and compares nothing; leave out --before and --plot")
    if values.plot:
        profile_picture.check(values.plot)
    text, record = _measure_live() if values.live else _read_recorded()
    print(text, flush=True)
    if values.json:
        workdir.write_json(Path(values.json), record)


def define() -> None:
    """Define the flags of a training run and of this command."""
    flags.define_settings()
    flags.define("before", "", "The folder of another run to compare with.", path=True)
    flags.define("live", False, "Measure now, without a profile and without training.")
    flags.define("seconds", 5.0, "Seconds of each part of --live.", bounds=(0.1, 86_400))
    flags.define("json", "", "Write every number to this file.", path=True)
    flags.define("plot", "", "Draw the parts of a step (.png, .svg or .pdf).", path=True)


def _read_recorded() -> tuple[str, dict[str, Any]]:
    """Return the diagnosis of the newest profile in --workdir, as text and as JSON values.

    With --before, the text also has a comparison with its newest profile, and the values have the
    diagnosis of that profile under `before`. With --plot, the diagnoses are drawn to that file.

    Raises:
        UsageError: --workdir is empty, a folder has no profile, a stored flag is wrong, or only one
            of the two profiles is of `lexrow train`.
        RunError: A profile is damaged or has no whole call, or the picture cannot be written.
    """
    values = absl_flags.FLAGS
    if not values.workdir:
        raise UsageError("--workdir= is empty; name the folder of a run, or give --live")
    diagnosis = _diagnose("workdir", values.workdir)
    text, record = profile_report.text(diagnosis), profile_report.record(diagnosis)
    bars = [("now" if values.before else values.workdir, diagnosis)]
    if values.before:
        before = _diagnose("before", values.before)
        if (before.tokens == 1) != (diagnosis.tokens == 1):
            raise UsageError(
                f"--before={values.before}: only one of both is a run of `lexrow train`, so that "
                "their steps cannot be compared; name two runs"
            )
        text += "\n" + profile_report.compare(before, diagnosis)
        record["before"] = profile_report.record(before)
        bars.insert(0, ("before", before))
    if values.plot:
        profile_picture.draw(bars, values.plot)
    return text, record


def _diagnose(flag: str, path: str) -> profile_report.Diagnosis:
    """Return the diagnosis of the newest profile below a folder.

    It uses the settings in the `flags.cfg` of the profile's run, if there is one.

    Args:
        flag: The name of the flag that gave the folder, for messages.
        path: The folder to search.
    """
    profile = profiles.find_newest(Path(path), flag)
    # A run's workdir is three folders above a profile in its tensorboard/plugins/profile.
    stored = workdir.read_settings(profile.resolve().parents[3])
    config = flag_values.from_names(stored) if stored else None
    return profile_report.diagnose(profile, config)


def _measure_live() -> tuple[str, dict[str, Any]]:
    """Measure the input and the steps now; return the rates as text and as JSON values.

    TensorFlow is started. All settings of tables have their defaults, so that new tables in the
    memory of the device are trained. Nothing is written to the workdir.

    Raises:
        UsageError: A flag or the input is not possible.
        RunError: The input cannot be read, or gives no batch.
    """
    # Tables are in memory here, so that the --table_file of a run is not touched.
    config = dataclasses.replace(flags.parsed(needs_workdir=False), table=TableConfig())
    startup.store_programs()
    startup.start_tensorflow()
    from .profiling import live
    from .system import devices
    from .tasks import all_tasks

    devices.use_machine(config.run)
    place = workdir.Workdir(config.run.workdir or os.devnull)
    with tempfile.TemporaryDirectory() as folder:
        place.cache = Path(folder)
        job = all_tasks.JOBS[config.run.task](config, place, True)
        rates = live.measure(job, config.run.seed, absl_flags.FLAGS.seconds)
    return live.text(rates, job.data.unit), rates._asdict()


if __name__ == "__main__":
    define()
    flags.run(main)
