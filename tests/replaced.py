"""Replacements of commands of the guides that would take too long, or serve for ever."""

from __future__ import annotations

# Command -> the command that runs instead. Every other command runs as it is in the guide.
REPLACED = {
    # The same target and configuration on a small corpus.
    "make train": "make train ARGS='--corpus=corpus.txt --epochs=1 --dim=16'",
    # The same configurations with a smaller model, and fewer epochs more.
    "lexrow train --flagfile=configs/words.cfg --corpus=corpus.txt --workdir=data/runs/mine": (
        "lexrow train --flagfile=configs/words.cfg --corpus=corpus.txt "
        "--workdir=data/runs/mine --epochs=2 --dim=16"
    ),
    "lexrow train --workdir=data/runs/mine --epochs=25": (
        "lexrow train --workdir=data/runs/mine --epochs=3"
    ),
    # It serves until it is stopped, so only what it would serve is checked.
    "make tensorboard": "make --dry-run tensorboard | grep 'dir=.*data/runs/words/'",
    # The same runs on a small corpus.
    "lexrow train --flagfile=configs/words.cfg --workdir=data/runs/before --cache=none "
    "--map_parallelism=1 --prefetch=0 --profile_steps=400,800": "lexrow train "
    "--flagfile=configs/words.cfg --epochs=12 --workdir=data/runs/before --cache=none "
    "--map_parallelism=1 --prefetch=0 --corpus=corpus.txt --profile_steps=16,120 --dim=16",
    "lexrow train --flagfile=configs/words.cfg --workdir=data/runs/after "
    "--profile_steps=400,800": "lexrow train --flagfile=configs/words.cfg --epochs=12 "
    "--workdir=data/runs/after --corpus=corpus.txt --profile_steps=16,120 --dim=16",
    # Of a program that is one of the tests.
    "lexrow profile --workdir=logs": 'python -W ignore -c "from pathlib import Path; '
    "from tests.profiling.slow_programs import record; record('small_table', Path('logs'))\" && "
    "lexrow profile --workdir=logs",
    # As `make tensorboard`.
    "tensorboard --logdir=data/runs": "test -d data/runs/after/tensorboard",
    # What it would install.
    "pip install .": "pip wheel --quiet --no-deps --wheel-dir=wheels . && "
    "python -m zipfile --list wheels/lexrow-*.whl | grep lexrow/keras/layers/embedding.py",
    # The same configuration on a small corpus.
    "lexrow train --flagfile=configs/language_model.cfg --workdir=data/runs/model": (
        "lexrow train --flagfile=configs/language_model.cfg --workdir=data/runs/model "
        "--corpus=corpus.txt --epochs=1 --dim=8 --batch_tokens=256"
    ),
    # The same configuration on a small corpus.
    "lexrow train --flagfile=configs/words.cfg --table=host --hot_rows=20000 --plan_only": (
        "lexrow train --flagfile=configs/words.cfg --table=host --hot_rows=20000 "
        "--plan_only --corpus=corpus.txt"
    ),
    "lexrow train --flagfile=configs/words.cfg --workdir=data/runs/host --table=host "
    "--hot_rows=20000": (
        "lexrow train --flagfile=configs/words.cfg --workdir=data/runs/host --table=host "
        "--hot_rows=200 --corpus=corpus.txt --epochs=1 --dim=16"
    ),
    "lexrow train --flagfile=configs/words.cfg --workdir=data/runs/stream --cache=none "
    "--table=dynamic --table_gb=0.5": (
        "lexrow train --flagfile=configs/words.cfg --workdir=data/runs/stream --cache=none "
        "--table=dynamic --table_gb=0.01 --corpus=corpus.txt --epochs=1 --dim=16"
    ),
    # The same configuration on a small corpus, with fewer processes.
    "lexrow cluster --workers=2 -- --flagfile=configs/words.cfg --workdir=data/runs/workers": (
        "lexrow cluster --workers=2 -- --flagfile=configs/words.cfg --corpus=corpus.txt "
        "--workdir=data/runs/workers --batch_tokens=512 --epochs=1 --dim=16 --block_bytes=4096"
    ),
    # The same configuration on a small corpus, which has few steps, with a block for each worker.
    "lexrow cluster --workers=2 -- --flagfile=configs/words.cfg "
    "--workdir=data/runs/apart --sync_steps=512 --batch_tokens=8192": (
        "lexrow cluster --workers=2 -- --flagfile=configs/words.cfg --corpus=corpus.txt "
        "--workdir=data/runs/apart --sync_steps=1 --batch_tokens=512 --epochs=1 --dim=16 "
        "--block_bytes=4096"
    ),
    # The same with fewer rows and passes.
    "lexrow train --flagfile=configs/subwords.cfg --corpus=corpus.txt "
    "--workdir=data/runs/subwords": (
        "lexrow train --flagfile=configs/subwords.cfg --corpus=corpus.txt "
        "--workdir=data/runs/subwords --ngram_buckets=5000 --dim=16 --epochs=1"
    ),
    "lexrow train --flagfile=configs/recommend.cfg --corpus=ratings.csv "
    "--workdir=data/runs/ratings": (
        "lexrow train --flagfile=configs/recommend.cfg --corpus=ratings.csv "
        "--workdir=data/runs/ratings --epochs=2"
    ),
    # The run that this test is a part of, and the other steps of .ci/run.
    "make test": "true",
    "make lint": "true",
    "make smoke": "true",
}

# Case of tests.benchmarks -> flags after those of the guide, for little data and few processes.
SMALLER = {
    "words": "--epochs=1 --dim=4 --peers=",
    "subwords": "--peers= --dim=4 --ngram_buckets=500",
    "classify": "--peers= --epochs=1 --dim=4 --word_ngrams=1",
    "recommend": "--peers= --dim=4 --train_flags=--epochs=1",
    "sparse": "--rows=1000 --dim=8 --steps=3 --vocabularies=500 --peers=keras",
    "keras": "--sides=device --peers=keras --users=100 --items=50 --dim=4 --batch=8 --steps=3",
    "softmax": "--vocabularies=20,50 --targets=8 --dim=4 --steps=1 --losses=class_softmax",
    "tables": "--dim=4 --epochs=1 --sides=device,host --hot_shares=10 --optimizers=lazy_adam",
    "scaling": "--corpus=corpus.txt --epochs=1 --dim=4 --workers=",
}
