"""The command scores files of one's own without gensim."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# The command on a machine without gensim, whose files the benchmarks are.
PROGRAM = """
from app import evaluate
from app.evaluation import score_report
score_report._folder = lambda: None
evaluate.define()
evaluate.flags.run(evaluate.main)
"""


def test_pairs_of_ones_own_need_no_gensim(tmp_path):
    (tmp_path / "v.txt").write_text("3 2\nking 1 0\nqueen 1 .1\nfrog 0 1\n")
    (tmp_path / "pairs.tsv").write_text("king\tqueen\t9\nking\tfrog\t1\nqueen\tfrog\t2\n")
    files = f"--vectors={tmp_path}/v.txt", f"--pairs={tmp_path}/pairs.tsv"
    for more, code, text in (((), 0, "1.000"), (("--benchmarks=ws353",), 2, "comes with gensim")):
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, *files, *more],
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
        )
        assert ended.returncode == code and text in ended.stdout + ended.stderr
