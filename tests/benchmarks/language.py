"""Compare language models with an LSTM: the trainer, Keras with our layers, and stock Keras.

    python -m tests.benchmarks.language --json=FILE

Each step reads rows of tokens, drawn by Zipf's law, and predicts the next token of each. The tokens
are the same for every side; word vectors have as many columns as the LSTM has units. Each side is a
process of its own, one at a time:

- each loss of Lexrow: calls of four steps of the trainer, with its optimizer, lazy Adam;
- `fit` and a loss: keras.fit with `RowEmbedding`, LSTM of Keras, the output layer and `LazyAdam`;
- keras: keras.fit with `Embedding`, LSTM and `Dense` over all words, and Adam.

The figures of a side:

- tokens a second, and ms a step: the median over blocks of steps, without compilation and the first
  use of memory;
- peak memory: the most resident memory of the process;
- table and slots: all trained variables of the model and its optimizer.
"""

from __future__ import annotations

from typing import Any

from app.errors import UsageError
from tests.benchmarks import harness, programs
from tests.benchmarks.harness import Measure, Report, Table

LOSSES = ("softmax", "class_softmax", "sampled_softmax", "adaptive_softmax")
FITTED = LOSSES
PEERS = ("keras",)
MEASURES = (
    Measure("tokens_per_s", "tokens/s", ",.0f", drawn=True),
    Measure("step_ms", "ms a step"),
    Measure("peak_bytes", "peak, GB", ",.2f", 1e9, drawn=True),
    Measure("table_bytes", "table and slots", ",.2f", 1e9),
    Measure("device_peak_bytes", "of the GPU", ",.2f", 1e9),
)


def define(values: Any) -> None:
    """Define the flags of the case."""
    chosen = "class_softmax,sampled_softmax"
    harness.define(values, "losses", chosen, "Losses of the trainer.", names=LOSSES)
    harness.define(values, "fitted", help="Output layers of Keras to run in `fit`.", names=FITTED)
    harness.define(values, "peers", help="Peers to run beside Lexrow.", names=PEERS)
    harness.define(values, "vocabularies", "10000,1000000", "Numbers of words.", numbers=2)
    harness.define(values, "dim", 128, "Columns of a word vector, and units of the LSTM.")
    harness.define(values, "streams", 32, "Rows of tokens of a step.")
    harness.define(values, "row_tokens", 32, "Tokens of a row.")
    harness.define(values, "steps", 20, "Steps or calls in a timed block; a slow side makes fewer.")


def run(options: Any) -> Report:
    """Run every side `options.repeats` times, but those that take too much memory."""
    sides = [*options.losses, *(f"fit {loss}" for loss in options.fitted), *options.peers]
    if not (sides and options.vocabularies):
        raise UsageError("--losses, --fitted, --peers and --vocabularies leave nothing to measure")
    described = programs.describe(["tensorflow", "keras", "numpy"])
    sizes = {name: getattr(options, name) for name in ("dim", "streams", "row_tokens", "steps")}
    groups = {
        f"{words:,} words": {side: {"side": side, "words": words, **sizes} for side in sides}
        for words in options.vocabularies
    }
    measured = programs.run_sides("language_sides:measure", groups, options.repeats)
    pairs = [(side, peer) for peer in options.peers for side in sides if side != peer]
    tables = [Table(runs, MEASURES, title, PEERS, pairs) for title, runs in measured.items()]
    title = (
        f"A language model with an LSTM of {options.dim} units, "
        f"{options.streams * options.row_tokens:,} tokens a step by Zipf's law; "
        f"{harness.count_runs(options)} a side"
    )
    return Report(title, described, tables)


if __name__ == "__main__":
    harness.main(define, run)
