"""What lexrow neighbors prints."""

import subprocess
import sys
from pathlib import Path


def test_a_word_of_white_space_is_shown(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("3 2\n\N{NO-BREAK SPACE} 1 2\nking 1 0\nqueen 0 1\n", encoding="utf-8")
    command = [sys.executable, "-m", "app.neighbors", f"--vectors={path}", "king"]
    ended = subprocess.run(
        command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True
    )
    assert ended.stdout.splitlines() == ["king", r"  0.447  '\xa0'", "  0.000  queen"]
