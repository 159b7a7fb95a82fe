"""What runs instead of commands of the guides that would take too long, or serve for ever."""

# Command -> the command that runs instead.
REPLACED = {
    # The same target and configuration on a small corpus.
    "make train": "make train ARGS='--corpus=corpus.txt --epochs=1 --dim=16'",
    # It serves until it is stopped, so only what it would serve is checked.
    "make tensorboard": "make --dry-run tensorboard | grep 'dir=.*data/runs/words/'",
    "tensorboard --logdir=data/runs": "test -d data/runs/after/tensorboard",
    # Of a program that is one of the tests.
    "lexrow profile --workdir=logs": 'python -W ignore -c "from pathlib import Path; '
    "from tests.profiling.slow_programs import record; record('small_table', Path('logs'))\" && "
    "lexrow profile --workdir=logs",
    # What it would install.
    'pip install ".[train]"': "pip wheel --quiet --no-deps --wheel-dir=wheels . && "
    "python -m zipfile --list wheels/lexrow-*.whl | grep lexrow/keras/layers/embedding.py",
    # The run that this test is a part of, and the other steps of .ci/run.
    "make test": "true",
    "make lint": "true",
    "make smoke": "true",
}

# Part of a command of ours -> flags that are added to each such command, for little data.
ADDED = {
    "--preset=words": "--corpus=corpus.txt --epochs=2 --dim=16",
    "data/runs/mine --epochs=25": "--epochs=3",
    "--profile_steps=400,800": "--profile_steps=16,120 --epochs=12",
    "=data/runs/host": "--hot_rows=200",
    "--table_gb=0.5": "--table_gb=0.01",
    "lexrow cluster": "--batch_tokens=512 --block_bytes=4096",  # a block for each worker
    "--sync_steps=512": "--sync_steps=1",
    "--preset=language_model": "--corpus=corpus.txt --epochs=1 --dim=8 --batch_tokens=256",
    "--preset=subwords": "--ngram_buckets=5000 --dim=16 --epochs=1",
    "--preset=recommend": "--epochs=2",
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
    "language": "--vocabularies=50 --fitted= --peers= --losses=softmax --dim=4 --row_tokens=5",
    "tables": "--dim=4 --epochs=1 --sides=device,host --hot_shares=10 --optimizers=lazy_adam",
    "scaling": "--corpus=corpus.txt --epochs=1 --dim=4 --workers=",
}
