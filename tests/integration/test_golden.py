"""Workdirs that were written by an older version are read, used and resumed by this one.

They are committed in tests/golden, see its README. To write some of them anew, with what this
test expects of them: python -m tests.integration.test_golden NAME…
"""

import io
import pathlib
import re
import shutil
import signal
import sys
import tempfile

import numpy as np
import pytest

from tests.integration import commands
from tests.integration.commands import ROOT, SMALL, Command, Ended, steps_logged

GOLDEN = ROOT / "tests/golden"
COMMON = (
    *("--dim=4", "--steps_per_call=2", "--epochs=2", "--compute_dtype=float32", "--device=CPU:0"),
    *("--log_seconds=0", "--keep_checkpoints=1"),
)
WORDS = ("--corpus=words.txt", *SMALL, "--batch_tokens=64", "--block_bytes=2048", *COMMON)
LANGUAGE_MODEL = (
    *("--task=language_model", "--corpus=words.txt", "--min_count=2", "--optimizer=lazy_adam"),
    *("--batch_tokens=128", "--row_tokens=16", "--block_bytes=2048", *COMMON),
)
CLASSIFY = (
    *("--task=classify", "--corpus=labels.txt", "--word_ngrams=2", "--buckets=20"),
    *("--batch_tokens=128", *COMMON),
)
RECOMMEND = ("--task=recommend", "--corpus=likes.txt", "--batch_tokens=64", "--top=3", *COMMON)
STAGED = ("--table=host", "--hot_rows=7", "--stage_steps=4")


# What lexrow train was given; a run whose name says so was stopped in the middle of an epoch.
CASES = {
    "words": WORDS,
    "words_stopped": WORDS,
    "words_host": (*WORDS, *STAGED),
    "words_file": (*WORDS, *STAGED, "--table_file=words_file/rows"),
    "words_sharded": (*WORDS, "--table=sharded"),
    "words_dynamic": (*WORDS, "--table=dynamic", "--table_gb=0.00002"),
    "words_bfloat16": (*WORDS, "--table_dtype=bfloat16"),
    "language_model": LANGUAGE_MODEL,
    "language_model_stopped": LANGUAGE_MODEL,
    "classify": CLASSIFY,
    "classify_ngrams": (*CLASSIFY, "--buckets=2000"),
    "recommend": RECOMMEND,
}
STARTERS = {"words_sharded": ("tests.integration.on_two_devices",)}
# Another processor may round a number to its other neighbour, 2^-8 of it away.
RTOL = {"words_bfloat16": 0.02}
# Commands that read a workdir and print, and the texts that those of standard input predict.
QUESTIONS = {
    "words": ("app.evaluate --benchmarks= --pairs=pairs.tsv", "app.neighbors ba be --k=3"),
    "language_model": ("app.evaluate --heldout=words.txt", "app.neighbors ba --k=3"),
    "classify": ("app.evaluate --heldout=labels.txt", "app.predict --k=3"),
    "classify_ngrams": ("app.predict --k=3",),
    "recommend": (
        "app.evaluate --heldout=likes.txt",
        "app.recommend user1 user5 --k=4",
        "app.neighbors item3 --k=3",
    ),
}
TEXTS = {
    "classify": "one good two\nbad five\nodd strange\n",
    "classify_ngrams": "one good two\nbad five\nfive bad bad\n",
}


@pytest.fixture
def folder(tmp_path):
    """A folder with the golden workdirs and their corpora, in which commands run."""
    return shutil.copytree(GOLDEN, tmp_path / "golden")


@pytest.mark.parametrize("name", CASES)
def test_a_golden_workdir_is_exported_bit_for_bit(folder, name):
    found, expected = (
        contents(path) for path in (exported(folder, name), folder / "exports" / name)
    )
    for file in [file for file in expected if file.endswith(".npy")]:
        # A recommender's vectors come out of products; another processor rounds them differently.
        vectors = (np.load(io.BytesIO(files.pop(file))) for files in (found, expected))
        np.testing.assert_allclose(*vectors, rtol=1e-5, atol=1e-7, err_msg=file)
    assert found == expected


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_golden_workdir_answers_as_before(folder, name):
    found, expected = answers(folder, name), (folder / f"answers/{name}.txt").read_text("utf-8")
    # A number that is shown with many digits may differ in the last of them on another processor.
    number = re.compile(r"-?\d+\.\d+")
    assert number.sub("#", found) == number.sub("#", expected)
    pairs = (np.array(number.findall(text), float) for text in (found, expected))
    np.testing.assert_allclose(*pairs, rtol=1e-4, err_msg=found)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n != "words_stopped")) for n in CASES]
)
def test_a_golden_workdir_is_resumed(folder, name):
    before = steps_logged(folder / name)
    ended = resumed(folder, name)
    assert "resuming at step" in ended.err and "damaged" not in ended.err
    after = steps_logged(folder / name)
    assert after[: len(before)] == before and after[-1] > before[-1]
    with np.load(folder / "resumed.npz") as expected:
        found, rtol = vectors(exported(folder, name)), RTOL.get(name, 1e-4)
        np.testing.assert_allclose(found, expected[name], rtol=rtol, atol=rtol / 100)


def exported(folder: pathlib.Path, name: str) -> pathlib.Path:
    """Export a workdir; return the file, or the folder of a recommender."""
    form = "vectors" if name == "recommend" else "word2vec"
    output = folder / "exported"
    done(folder, "app.export", f"--workdir={name}", f"--format={form}", f"--output={output.name}")
    return output


def answers(folder: pathlib.Path, name: str) -> str:
    """Return what the commands of `QUESTIONS` print, one after the other."""
    return "\n".join(
        done(folder, *command.split(), f"--workdir={name}", stdin=TEXTS.get(name, "")).out
        for command in QUESTIONS[name]
    )


def resumed(folder: pathlib.Path, name: str) -> Ended:
    """Train a workdir to its end, or for one more epoch if it is there."""
    more = () if name.endswith("_stopped") else ("--epochs=3",)
    return done(folder, *STARTERS.get(name, ()), "app.train", f"--workdir={name}", *more)


def done(folder: pathlib.Path, *argv: str, **options: str) -> Ended:
    """Run a command in a folder; it has to end well."""
    return commands.done(folder.parent, *argv, within=folder, **options)


def contents(path: pathlib.Path) -> dict[str, bytes]:
    """Return the bytes of a file, or of the files in a folder by name."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return {file.name if path.is_dir() else "": file.read_bytes() for file in files}


def vectors(path: pathlib.Path) -> np.ndarray:
    """Return the numbers of an export."""
    if path.is_dir():
        return np.concatenate([np.load(file) for file in sorted(path.glob("*.npy"))])
    _, *lines = path.read_text(encoding="utf-8").splitlines()
    return np.array([line.split()[1:] for line in lines], np.float32)


def main() -> None:
    """Write workdirs anew, and what the test expects of them."""
    with np.load(GOLDEN / "resumed.npz") as known:
        expected = dict(known)
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as scratch:
            folder = shutil.copytree(GOLDEN, pathlib.Path(scratch) / "golden")
            shutil.rmtree(folder / name, ignore_errors=True)
            train(folder, name)
            shutil.rmtree(folder / name / "tensorboard")
            (folder / name / "lock").unlink()
            for layouts in (folder / name).glob("checkpoints/*/tables.json"):
                # Where --table_file lies; commands that run in the folder find it without.
                layouts.write_text(layouts.read_text("utf-8").replace(f"{folder}/", ""), "utf-8")
            replace(GOLDEN / name, folder / name)
            replace(GOLDEN / "exports" / name, exported(folder, name))
            if name in QUESTIONS:
                (GOLDEN / f"answers/{name}.txt").write_text(answers(folder, name), "utf-8")
            resumed(folder, name)
            expected[name] = vectors(exported(folder, name))
    np.savez_compressed(GOLDEN / "resumed.npz", **expected)


def train(folder: pathlib.Path, name: str) -> None:
    """Make the run of a case."""
    command = (*STARTERS.get(name, ()), "app.train", f"--workdir={name}", *CASES[name])
    print("python -m", *command)
    if not name.endswith("_stopped"):
        done(folder, *command)
        return
    started = Command(folder.parent, *command, within=folder)
    ended = started.signal_when(lambda: len(steps_logged(folder / name)) > 4, signal.SIGTERM)
    assert "stopped as asked" in ended.err, ended


def replace(target: pathlib.Path, source: pathlib.Path) -> None:
    """Put a copy of a file or a folder where another may be."""
    if source.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)


if __name__ == "__main__":
    main()
