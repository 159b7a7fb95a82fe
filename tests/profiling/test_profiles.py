import os

import pytest

from app.errors import RunError, UsageError
from app.profiling import profile_report, profiles


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "run/tensorboard/plugins/profile/2026_01_01_00_00_00"
    made.mkdir(parents=True)
    return made


def test_the_newest_of_several(tmp_path, folder):
    """By its name, which is its time: a copy's files may be of any age."""
    later = folder.with_name("2026_01_01_00_00_09")
    later.mkdir()
    for path, age in ((folder, 5), (later, 9)):
        (path / "host.xplane.pb").write_bytes(b"")
        os.utime(path / "host.xplane.pb", (1e9 - age, 1e9 - age))
    assert profiles.find_newest(tmp_path) == profiles.find_newest(tmp_path / "run") == later


def test_no_profile(tmp_path, folder):
    with pytest.raises(UsageError, match=r"^--workdir=.*/run: no profile there; record one with: "):
        profiles.find_newest(tmp_path / "run")
    with pytest.raises(
        UsageError, match=r"^--workdir=.*/none: no such folder; give that of a run$"
    ):
        profiles.find_newest(tmp_path / "none")


@pytest.mark.parametrize("content", [b"\x0a\xff\xff", b"no protocol buffer" * 9])
def test_a_damaged_file(folder, content, capfd):
    file = folder / "host.xplane.pb"
    file.write_bytes(content)
    with pytest.raises(RunError, match=r"host\.xplane\.pb is truncated or no profile; delete it"):
        profiles.read(file)


def test_a_file_without_a_step(folder):
    (folder / "host.xplane.pb").write_bytes(b"")
    with pytest.raises(RunError, match="has no whole step: record more of them"):
        profile_report.diagnose(folder, None)
