"""What a workdir that is there allows, and what a full disk and damaged files do to it."""

import pytest

from tests.integration.commands import (
    WORDS,
    checkpoint,
    done,
    logged,
    newest_step,
    refused,
    run,
    steps_logged,
    tensors,
    train,
    write_corpus,
)


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.slow
def test_more_epochs_on_a_finished_run(tmp_path, workdir, trained):
    last = newest_step(trained)
    done(tmp_path, "app.train", f"--workdir={workdir}", "--epochs=3")
    assert 1.4 < newest_step(workdir) / last < 1.6
    assert steps_logged(workdir)[: len(steps_logged(trained))] == steps_logged(trained)
    assert "--epochs=3" in (workdir / "flags.cfg").read_text().splitlines()
    assert tensors(workdir) != tensors(trained)
    # Once more: what is stored is now three epochs.
    former = tensors(workdir)
    done(tmp_path, "app.train", f"--workdir={workdir}")
    assert tensors(workdir) == former


@pytest.mark.slow
def test_other_text_on_a_finished_run(tmp_path, workdir, trained):
    vocabulary = (workdir / "vocab.tsv").read_bytes()
    other = write_corpus(tmp_path / "other.txt", 1000, seed=5)
    more = (f"--workdir={workdir}", f"--corpus={other}", "--epochs=3")
    ended = done(tmp_path, "app.train", *more)
    assert "other text than before; the vocabulary of --workdir is kept" in ended.err
    assert (workdir / "vocab.tsv").read_bytes() == vocabulary
    steps, former = newest_step(workdir) - newest_step(trained), newest_step(trained) / 2
    assert 1.5 < steps / former < 2.5
    # The rate falls over the length of this text, not of the one before.
    rates = [row["learning_rate"] for row in logged(workdir) if row["step"] > newest_step(trained)]
    assert rates[len(rates) // 2] == pytest.approx(0.15 / 3 / 2, rel=0.1)
    assert "other text" not in done(tmp_path, "app.train", *more).err


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--dim=9", "--dim=9: --workdir={} was made with 8; give that, or a new --workdir"),
        ("--task=classify", "--task=classify: --workdir={} was made with words; give that, or a"),
        ("--noshuffle", "--shuffle=false: --workdir={} was made with true; give that, or a new"),
        ("--epochs=1", "--epochs=1: the run in --workdir={} has trained 2 already; give more"),
    ],
)
def test_a_flag_that_a_finished_run_cannot_have(tmp_path, workdir, flag, message):
    before = contents(workdir)
    assert message.format(workdir) in refused(tmp_path, "app.train", f"--workdir={workdir}", flag)
    assert contents(workdir) == before


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path, workdir, trained):
    newest = checkpoint(workdir)
    data = newest / "input/values"
    data.write_bytes(data.read_bytes()[:-100])
    ended = done(tmp_path, "app.train", f"--workdir={workdir}")
    assert f"{newest} is damaged, trying the one before it: " in ended.err
    assert f"resuming at step {newest_step(trained) - 2}" in ended.err
    assert tensors(workdir) == tensors(trained)
    assert "damaged" not in done(tmp_path, "app.evaluate", f"--workdir={workdir}").err


@pytest.mark.slow
def test_a_full_disk_while_saving(tmp_path, corpus):
    workdir = tmp_path / "run"
    done(tmp_path, *train(workdir, corpus, "--dim=300", "--epochs=1"))
    before = contents(workdir / "checkpoints")
    more = ("app.train", f"--workdir={workdir}", "--epochs=2")
    ended = run(tmp_path, *more, file_limit=50_000)
    assert ended.code == 1 and "Traceback" not in ended.err
    last = ended.err.splitlines()[-1]
    assert f"cannot write {workdir}/checkpoints/step-" in last
    reason = ": File too large; raise the limit of the size of a file (ulimit -f) or choose another"
    assert reason in last and "{{" not in last
    assert contents(workdir / "checkpoints") == before
    done(tmp_path, *more)
    assert 1.8 < newest_step(workdir) / int(min(before)[5:17]) < 2.2


@pytest.mark.slow
def test_a_full_disk_while_logging(tmp_path, corpus):
    ended = run(tmp_path, *train(tmp_path / "run", corpus), file_limit=3_000)
    assert ended.code == 1 and "Traceback" not in ended.err
    last = ended.err.splitlines()[-1]
    assert f"cannot write {tmp_path}/run/" in last
    remedy = "raise the limit of the size of a file (ulimit -f) and run again"
    assert last.endswith(f": File too large; {remedy}")


@pytest.mark.slow
def test_a_vocabulary_of_other_text_leaves_the_rate_to_fall_evenly(tmp_path):
    """The learning rate goes by the length of the text, which such a vocabulary does not tell."""
    lines = (f"{word}\t{90_000 - rank}\n" for rank, word in enumerate(WORDS))
    (tmp_path / "words.tsv").write_text("".join(lines), encoding="utf-8")
    corpus = write_corpus(tmp_path / "a.txt", 300)
    done(tmp_path, *train(tmp_path / "run", corpus, f"--vocab={tmp_path}/words.tsv", "--epochs=1"))
    rates = [row["learning_rate"] for row in logged(tmp_path / "run")]
    assert rates[0] == 0.15 and rates[-1] < 0.05
