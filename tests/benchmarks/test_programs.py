from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from app.errors import RunError, UsageError
from tests.benchmarks import programs
from tests.processes import is_running, until


@pytest.mark.slow
def test_time_and_peak_memory_are_of_the_process_alone(tmp_path):
    ours = bytearray(b"x" * (200 << 20))  # Linux would count this in a child started directly
    before = time.time()
    code = "import time; text = b'x' * (64 << 20); time.sleep(0.2); print('done')"
    usage = programs.measure("child", ["-c", code], tmp_path / "log")
    assert 64 << 20 < usage.peak_bytes < 150 << 20 < len(ours)
    assert 0.2 < usage.seconds < 10
    assert before <= usage.started <= time.time()
    assert (tmp_path / "log").read_text() == "done\n"


@pytest.mark.parametrize(("code", "error"), [(2, UsageError), (1, RunError), (-9, RunError)])
def test_a_failure_is_one_line_with_the_last_of_the_output(tmp_path, code, error):
    end = f"sys.exit({code})" if code > 0 else f"os.kill(os.getpid(), {-code})"
    child = f"import os, sys; print('first'); print('the reason\\n', flush=True); {end}"
    with pytest.raises(error, match=rf"^child ended with exit code {code}: the reason$"):
        programs.measure("child", ["-c", child], tmp_path / "log")


def test_nothing_is_left_running_after_an_interrupt(tmp_path):
    log = tmp_path / "log"

    def interrupt():
        while not (log.exists() and log.read_text().endswith("\n")):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    child = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    with pytest.raises(KeyboardInterrupt):
        programs.measure("child", ["-c", child], log)
    thread.join()
    until(lambda: not is_running(int(log.read_text())))


def test_input_and_output_may_be_files(tmp_path):
    (tmp_path / "in").write_text("asked")
    code = "import sys; print(sys.stdin.read() * 2); print('told', file=sys.stderr)"
    files = [tmp_path / name for name in ("log", "in", "out")]
    programs.measure("child", ["-c", code], *files)
    assert (tmp_path / "out").read_text() == "askedasked\n"
    assert (tmp_path / "log").read_text() == "told\n"
