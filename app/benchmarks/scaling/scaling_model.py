"""Predict the speed of N workers on machines of their own, from the costs of one step here.

A step of one process is timed here: all of it, and its gradients alone. The rest is the update of
its rows. So one of N replicas takes its share of the gradients, and the update of the rows of all
N. This neglects the packing of rows, and counts a row again for each replica that has it.
Every worker has a link that sends and receives at once; processor and link take turns. There are as
many parameter servers as workers.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from ...config import checks
from ...errors import RunError, UsageError
from ...system import devices
from ...training.gradients import compute_gradients
from ...training.step import split_steps, train_function
from ..harness import programs
from . import scaling_jobs

_STEPS, _POOL, _ROUNDS = 4, 4, 20  # steps of a call; calls to use in turn; timed calls
_BITS = 8e-9  # gigabits of a byte


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Measure the costs of a step of one process: its time, and the rows of a share of its batch.

    Args:
        job: `workdir` (of a run), `batch_tokens`, `columns` and `workers` (numbers above 1).

    Returns:
        `step_seconds`, `gradient_seconds` (both of one step), and two lists of pairs by number of
        workers: `rows`, the mean number of unique rows of all tables in one worker's share of a
        batch, None if the batch cannot be divided; and `left_out`, the reason why it cannot.

    Raises:
        RunError: The text has less than one call.
    """
    config = scaling_jobs.read_config(job["workdir"], job["batch_tokens"], _STEPS, 1)
    devices.use_machine(config.run)
    text = scaling_jobs.load_text(config)
    made = scaling_jobs.make_job(config, text, len(text.vocabulary.tokens), job["columns"])
    calls = scaling_jobs.first_calls(made, _POOL)
    if not calls:
        raise RunError("the text has no whole call; give more text as --corpus")
    train = train_function(made.model, made.placed.tables, made.optimizer, config.run.seed)
    devices_of = {name: table.device for name, table in made.placed.tables.items()}

    @tf.function(autograph=False)
    def gradients(data_S: Any, first: tf.Tensor) -> list[Any]:
        """Return the gradients of each step of a call, without an update."""
        return [
            compute_gradients(
                made.model,
                lambda name, ids_U: made.placed.tables[name].gather(ids_U),
                batches,
                devices_of,
            ).gradients
            for batches in split_steps(data_S, first, config.run.seed, 1)
        ]

    left_out: list[tuple[int, str]] = []

    def share_rows(count: int) -> float | None:
        """Return the rows of one share of `count`; or None, with the reason in `left_out`."""
        parts = scaling_jobs.read_config(job["workdir"], job["batch_tokens"], _STEPS, count)
        try:
            checks.check_micro_batches(parts)
        except UsageError as error:
            left_out.append((count, str(error)))
            return None
        data = [tf.split(data, count, axis=1)[0] for data, _ in calls]
        return scaling_jobs.count_rows(made.model, data, config.run.seed)

    return {
        "step_seconds": _seconds(lambda data, first: train(data, first, tf.constant(0.01)), calls),
        "gradient_seconds": _seconds(gradients, calls),
        "rows": [(count, share_rows(count)) for count in [1, *job["workers"]]],
        "left_out": left_out,
    }


def _seconds(run: Callable[..., Any], calls: Sequence) -> float:
    """Return the median seconds of a step; the first `_POOL` calls do not count.

    Each call waits for the first tensor of the result. `calls` are used in turn.
    """
    seconds = []
    for number in range(_POOL + _ROUNDS):  # the first compile, and use memory for the first time
        start = time.perf_counter()
        tf.nest.flatten(run(*calls[number % len(calls)]))[0].numpy()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[_POOL:]) / _STEPS


def predict(
    costs: Mapping[str, Any],
    batch: int,
    step_words: float,
    columns: int,
    gigabits: Sequence[int],
    message_seconds: float,
) -> list[dict[str, Any]]:
    """Predict the speed of each number of workers above 1, without measuring anything.

    Args:
        costs: The result of `measure`. Where its `rows` are None, the case of a shared batch is
            left out.
        batch: Tokens of a step of one process.
        step_words: Words of the corpus in a step of one process.
        columns: Columns of the tables.
        gigabits: Speeds of a link, in Gbit/s.
        message_seconds: Seconds of an empty message.

    Returns:
        One record for each case: first `multi_worker` with one batch shared by all workers, and
        with a batch for each worker, then `parameter_server`. Each has `strategy`, `workers`,
        `step_tokens`, `words` of all workers in a step, `seconds` of a step without the network,
        `bytes` that a link carries one way in a step, `messages` sent one after the other,
        `bytes_per_word`, `break_even_gigabits` (the speed at which link and processor take the
        same time), and `words_per_second` by speed of the link.
    """
    rows = dict(costs["rows"])
    alone, step, gradient = rows[1], costs["step_seconds"], costs["gradient_seconds"]
    row_seconds = max(0.0, step - gradient) / alone
    cases = []
    for n in (n for n in rows if n > 1):
        # The vectors of all replicas go round a ring, a message for each hop.
        for tokens, part in ((batch, rows[n]), (n * batch, alone)):
            if part is not None:
                share = tokens / n / batch
                seconds = share * gradient + n * part * row_seconds
                words, sent = n * share * step_words, (n - 1) * _row_bytes(part, columns)
                cases.append(("multi_worker", n, tokens, words, seconds, sent, n - 1))
        # Ids, then rows, then gradients with their ids.
        sent = 2 * _row_bytes(alone, columns)
        cases.append(("parameter_server", n, batch, n * step_words, step, sent, 3))
    keys = ("strategy", "workers", "step_tokens", "words", "seconds", "bytes", "messages")
    predicted = [dict(zip(keys, case, strict=True)) for case in cases]
    for one in predicted:
        bits, fixed = _BITS * one["bytes"], one["seconds"] + one["messages"] * message_seconds
        one["bytes_per_word"] = one["workers"] * one["bytes"] / one["words"]
        one["break_even_gigabits"] = bits / one["seconds"]
        one["words_per_second"] = {
            speed: one["words"] / (fixed + bits / speed) for speed in gigabits
        }
    return sorted(predicted, key=lambda one: one["strategy"])


def _row_bytes(rows: float, columns: int) -> float:
    """Return the bytes of rows with their ids, 4 bytes for each id and value."""
    return 4 * rows * (1 + columns)


if __name__ == "__main__":
    programs.answer(measure)
