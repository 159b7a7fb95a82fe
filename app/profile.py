"""Name the bottleneck of a run.

    lexrow profile --workdir=DIR

It reads the newest profile that `lexrow train --profile_steps=START,STOP` recorded, or Keras.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from absl import flags as absl_flags

from .checkpoints import workdir
from .cli import flags
from .errors import UsageError
from .profiling import profile_report, profiles
from .settings import flag_values


def main(_: Sequence[str]) -> None:
    """Print the diagnosis of the newest profile in --workdir.

    With --before, print also a comparison with its newest profile. Write the files of --json and
    --plot, if given.

    Raises:
        UsageError: --workdir is empty, a folder has no profile, a stored flag is wrong, or only one
            of the two profiles is of `lexrow train`.
        RunError: A profile is damaged or has no whole call, or a file cannot be written.
    """
    values = absl_flags.FLAGS
    if not values.workdir:
        raise UsageError("--workdir= is empty; name the folder of a run")
    if values.plot:
        profile_report.check_picture(values.plot)
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
        profile_report.draw_picture(bars, values.plot)
    print(text, flush=True)
    if values.json:
        workdir.write_json(Path(values.json), record)


def define() -> None:
    """Define the flags of this command."""
    flags.define("workdir", "", "The workdir of a run, or the log folder of Keras.", path=True)
    flags.define("before", "", "The folder of another run to compare with.", path=True)
    flags.define("json", "", "Write every number to this file.", path=True)
    flags.define("plot", "", "Draw the parts of a step (.png, .svg or .pdf).", path=True)


def _diagnose(flag: str, path: str) -> profile_report.Diagnosis:
    """Return the diagnosis of the newest profile below a folder.

    It uses the settings in the `flags.cfg` of the profile's run, if there is one.

    Args:
        flag: The name of the flag that gave the folder, for messages.
        path: The folder to search.
    """
    profile = profiles.find_newest(Path(path), flag)
    # Of a profile in WORKDIR/tensorboard/NAME/plugins/profile; earlier versions had no NAME.
    above = [path for path in profile.resolve().parents[3:5] if (path / "flags.cfg").exists()]
    stored = workdir.read_settings(above[0] if above else "")
    return profile_report.diagnose(profile, flag_values.from_names(stored) if stored else None)


if __name__ == "__main__":
    define()
    flags.run(main)
