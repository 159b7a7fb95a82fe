"""A run that was killed or stopped ends as if nothing had happened, bit for bit."""

import shutil
import signal

import pytest

from tests.integration.commands import (
    Command,
    checkpoint,
    done,
    newest_step,
    steps_logged,
    tensors,
    train,
)


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM]
)
def test_stopped_by_a_signal(tmp_path, corpus, trained, number):
    workdir = tmp_path / "my run"
    command = Command(tmp_path, *train(workdir, corpus))
    ended = command.signal_when(lambda: len(steps_logged(workdir)) > 4, number)
    assert ended.code == 130 and "Traceback" not in ended.err
    again = f"lexrow train --workdir='{workdir}'"
    assert ended.err.splitlines()[-1].endswith(
        f": stopped as asked, and saved; continue with: {again}"
    )
    assert 0 < steps_logged(workdir)[-1] == newest_step(workdir) < newest_step(trained)
    done(tmp_path, "app.train", f"--workdir={workdir}")
    assert tensors(workdir) == tensors(trained)


def test_stopped_while_counting(tmp_path, corpus):
    command = Command(tmp_path, *train(tmp_path / "run", corpus))
    ended = command.signal_when((tmp_path / "run" / "lock").exists, signal.SIGINT)
    assert ended.code == 130 and "Traceback" not in ended.err
    assert ended.err.endswith(": interrupted\n")


@pytest.mark.slow
@pytest.mark.parametrize("parallelism", [1, 4])
def test_parallel_maps_change_nothing(tmp_path, corpus, trained, parallelism):
    workdir = tmp_path / "run"
    done(tmp_path, *train(workdir, corpus, f"--map_parallelism={parallelism}"))
    assert tensors(workdir) == tensors(trained)


@pytest.mark.slow
def test_the_flags_of_a_run_rerun_it(tmp_path, trained):
    workdir = tmp_path / "run"
    done(tmp_path, "app.train", f"--flagfile={trained}/flags.cfg", f"--workdir={workdir}")
    assert tensors(workdir) == tensors(trained)
    flags, former = ((d / "flags.cfg").read_text().splitlines() for d in (workdir, trained))
    assert [line for line in flags if line not in former] == [f"--workdir={workdir}"]


@pytest.mark.slow
def test_a_finished_run_has_nothing_to_do(tmp_path, trained):
    workdir = shutil.copytree(trained, tmp_path / "run")
    kept = {path: path.stat().st_mtime_ns for path in checkpoint(workdir).iterdir()}
    done(tmp_path, "app.train", f"--workdir={workdir}")
    assert {path: path.stat().st_mtime_ns for path in checkpoint(workdir).iterdir()} == kept
    assert steps_logged(workdir) == steps_logged(trained)


@pytest.mark.slow
def test_half_written_files_are_swept_and_never_read(tmp_path, trained):
    workdir = shutil.copytree(trained, tmp_path / "run")
    left = [workdir / f".{name}.new-0123abcd" for name in ("flags.cfg", "vocab.tsv", "corpus.json")]
    left += [workdir / ".metrics.jsonl.new-0123abcd"]
    for path in left:
        path.write_text("half")
    newer = workdir / "checkpoints/.step-000000999999.new-0123abcd"
    shutil.copytree(checkpoint(workdir), newer)
    (newer / "input/values.json").write_text("half")
    export = workdir / ".vectors.txt.new-0123abcd"  # which app.export may be writing
    export.write_text("half")
    assert "damaged" not in done(tmp_path, "app.train", f"--workdir={workdir}").err
    assert [path for path in (*left, newer, export) if path.exists()] == [export]
    assert tensors(workdir) == tensors(trained)
