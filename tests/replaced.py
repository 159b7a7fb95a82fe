"""Replacements of commands of the guides that would take too long, or serve for ever."""

from __future__ import annotations

# Command -> the command that runs instead. Every other command runs as it is in the guide.
REPLACED = {
    # The same target and configuration on a small corpus.
    "make train": "make train ARGS='--corpus=corpus.txt --epochs=1 --dim=16'",
    # The same configurations with a smaller model, and fewer epochs more.
    "python -m app.train --flagfile=configs/words.cfg --corpus=corpus.txt "
    "--workdir=data/runs/mine": (
        "python -m app.train --flagfile=configs/words.cfg --corpus=corpus.txt "
        "--workdir=data/runs/mine --epochs=2 --dim=16"
    ),
    "python -m app.train --workdir=data/runs/mine --epochs=25": (
        "python -m app.train --workdir=data/runs/mine --epochs=3"
    ),
    # It serves until it is stopped, so only what it would serve is checked.
    "make tensorboard": "make --dry-run tensorboard | grep 'dir=.*data/runs/words/'",
    # The same runs on a small corpus.
    "python -m app.train --flagfile=configs/words.cfg --workdir=data/runs/before --cache=none "
    "--map_parallelism=1 --prefetch=0 --profile_steps=400,800": "python -m app.train "
    "--flagfile=configs/words.cfg --epochs=12 --workdir=data/runs/before --cache=none "
    "--map_parallelism=1 --prefetch=0 --corpus=corpus.txt --profile_steps=16,120 --dim=16",
    "python -m app.train --flagfile=configs/words.cfg --workdir=data/runs/after "
    "--profile_steps=400,800": "python -m app.train --flagfile=configs/words.cfg --epochs=12 "
    "--workdir=data/runs/after --corpus=corpus.txt --profile_steps=16,120 --dim=16",
    "python -m app.profile --flagfile=configs/words.cfg --live": "python -m app.profile "
    "--flagfile=configs/words.cfg --corpus=corpus.txt --live --seconds=0.2",
    # Of a program that is one of the tests.
    "python -m app.profile --workdir=logs": 'python -W ignore -c "from pathlib import Path; '
    "from tests.profiling.slow_programs import record; record('small_table', Path('logs'))\" && "
    "python -m app.profile --workdir=logs",
    # As `make tensorboard`.
    "tensorboard --logdir=data/runs": "test -d data/runs/after/tensorboard",
    # What it would install.
    "pip install .": "pip wheel --quiet --no-deps --wheel-dir=wheels . && "
    "python -m zipfile --list wheels/lexrow-*.whl | grep lexrow/keras/layers/embedding.py",
    # The same case on a small table.
    "python -m app.bench sparse --optimizers=lazy_adam --json=sparse.json --plot=sparse.png": (
        "python -m app.bench sparse --optimizers=lazy_adam --json=sparse.json --plot=sparse.png "
        "--rows=1000 --dim=8 --steps=3 --vocabularies=500,1000"
    ),
    # The same configuration on a small corpus, and the same case on a small vocabulary.
    "python -m app.train --flagfile=configs/language_model.cfg --workdir=data/runs/model": (
        "python -m app.train --flagfile=configs/language_model.cfg --workdir=data/runs/model "
        "--corpus=corpus.txt --epochs=1 --dim=8 --batch_tokens=256"
    ),
    "python -m app.bench softmax --json=softmax.json --plot=softmax.png": (
        "python -m app.bench softmax --json=softmax.json --plot=softmax.png --vocabularies=20,50 "
        "--targets=8 --dim=4 --steps=1 --losses=class_softmax --peers=copies"
    ),
    # The same configuration on a small corpus, and the same case on a small table.
    "python -m app.train --flagfile=configs/words.cfg --table=host --hot_rows=20000 --plan_only": (
        "python -m app.train --flagfile=configs/words.cfg --table=host --hot_rows=20000 "
        "--plan_only --corpus=corpus.txt"
    ),
    "python -m app.train --flagfile=configs/words.cfg --workdir=data/runs/host --table=host "
    "--hot_rows=20000": (
        "python -m app.train --flagfile=configs/words.cfg --workdir=data/runs/host --table=host "
        "--hot_rows=200 --corpus=corpus.txt --epochs=1 --dim=16"
    ),
    "python -m app.train --flagfile=configs/words.cfg --workdir=data/runs/stream --cache=none "
    "--table=dynamic --table_gb=0.5": (
        "python -m app.train --flagfile=configs/words.cfg --workdir=data/runs/stream --cache=none "
        "--table=dynamic --table_gb=0.01 --corpus=corpus.txt --epochs=1 --dim=16"
    ),
    "python -m app.bench tables --json=tables.json --plot=tables.png": (
        "python -m app.bench tables --json=tables.json --plot=tables.png --rows=1000 --dim=4 "
        "--ids=32 --steps=20 --stage_steps=10 --sides=device,host --hot_shares=10 --peers=naive "
        "--optimizers=lazy_adam"
    ),
    # In the background, for the command after it, at a free port.
    "python -m app.cluster --data_workers=2 --port=5050": (
        "python -m app.cluster --data_workers=2 >served 2>&1 & echo $! >served.pid; "
        "until grep --quiet ^--data_service served; do kill -0 $(cat served.pid); sleep 0.2; done"
    ),
    "python -m app.train --flagfile=configs/words.cfg --workdir=data/runs/served --cache=none "
    "--data_service=127.0.0.1:5050": (
        "python -m app.train --flagfile=configs/words.cfg --workdir=data/runs/served --cache=none "
        "$(grep ^--data_service served) --corpus=corpus.txt --epochs=1; kill $(cat served.pid)"
    ),
    # The same configuration on a small corpus, with fewer processes.
    "python -m app.cluster --workers=2 --ps=2 -- --flagfile=configs/words.cfg "
    "--workdir=data/runs/servers": (
        "python -m app.cluster --workers=1 --ps=1 -- --flagfile=configs/words.cfg "
        "--workdir=data/runs/servers --corpus=corpus.txt --epochs=1 --dim=16"
    ),
    # The same configuration on a small corpus, which has few steps, with a block for each worker.
    "python -m app.cluster --workers=2 -- --flagfile=configs/words.cfg "
    "--workdir=data/runs/apart --sync_steps=512 --batch_tokens=8192": (
        "python -m app.cluster --workers=2 -- --flagfile=configs/words.cfg --corpus=corpus.txt "
        "--workdir=data/runs/apart --sync_steps=1 --batch_tokens=512 --epochs=1 --dim=16 "
        "--block_bytes=4096"
    ),
    # The same case on little text, with one process.
    "python -m app.bench scaling --json=scaling.json --plot=scaling.png": (
        "python -m app.bench scaling --json=scaling.json --plot=scaling.png --corpus=corpus.txt "
        "--epochs=1 --dim=4 --workers= --vocabularies=2000 --columns=2 --modelled="
    ),
    # The same case on little text.
    "python -m app.bench pipeline --json=pipeline.json --plot=pipeline.png": (
        "python -m app.bench pipeline --json=pipeline.json --plot=pipeline.png --corpus=corpus.txt "
        "--examples=300 --example_epochs=2 --words=2000 --epochs=1 --peers=naive,map"
    ),
    # The same with fewer rows and passes.
    "python -m app.train --flagfile=configs/subwords.cfg --corpus=corpus.txt "
    "--workdir=data/runs/subwords": (
        "python -m app.train --flagfile=configs/subwords.cfg --corpus=corpus.txt "
        "--workdir=data/runs/subwords --ngram_buckets=5000 --dim=16 --epochs=1"
    ),
    # The same with fewer rows, and beside nobody.
    "python -m app.bench subwords --corpus=corpus.txt --epochs=1 --json=subwords.json": (
        "python -m app.bench subwords --corpus=corpus.txt --epochs=1 --json=subwords.json "
        "--peers= --dim=4 --ngram_buckets=500"
    ),
    # The same on fewer passes, and beside nobody.
    "python -m app.bench classify --corpus=reviews.txt --json=classify.json --plot=classify.png": (
        "python -m app.bench classify --corpus=reviews.txt --json=classify.json "
        "--plot=classify.png --peers= --epochs=1 --dim=4 --word_ngrams=1"
    ),
    "python -m app.train --flagfile=configs/recommend.cfg --corpus=ratings.csv "
    "--workdir=data/runs/ratings": (
        "python -m app.train --flagfile=configs/recommend.cfg --corpus=ratings.csv "
        "--workdir=data/runs/ratings --epochs=2"
    ),
    "python -m app.bench recommend --corpus=ratings.csv --heldout=later.csv --json=recommend.json "
    "--plot=recommend.png": (
        "python -m app.bench recommend --corpus=ratings.csv --heldout=later.csv "
        "--json=recommend.json --plot=recommend.png --peers= --dim=4 --train_flags=--epochs=1"
    ),
    # The same case on small tables, with two sides of one model.
    "python -m app.bench export --json=export.json": (
        "python -m app.bench export --json=export.json --rows=300 --dim=4"
    ),
    "python -m app.bench keras --json=keras.json --plot=keras.png": (
        "python -m app.bench keras --json=keras.json --plot=keras.png --models=two_tower "
        "--sides=device --peers=keras --users=100 --items=50 --dim=4 --batch=8 --steps=3"
    ),
    # The run that this test is a part of, and the other steps of .ci/run.
    "make test": "true",
    "make lint": "true",
    "make smoke": "true",
}
