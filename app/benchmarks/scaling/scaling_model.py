"""Predict the speed of N workers on machines of their own, from the costs of one step here.

The costs are those of `scaling_programs.measure_costs`: a step of one process, and its gradients
alone. The rest is the update of its rows. So one of N replicas takes its share of the gradients,
and the update of the rows of all N. This neglects the packing of rows, and counts a row again for
each replica that has it. Every worker has a link that sends and receives at once; processor and
link take turns. There are as many parameter servers as workers.

With --sync_steps=N the seconds and bytes of a word are those measured with two workers, and the
speed of one machine is that of one process in the same benchmark, with its input. A replica sends
(R - 1) / R of its changed rows to their owners, and as many merged rows to all. So of R replicas
each sends 2 (R - 1) / R times the bytes that each of two sends. R machines pay where R words take
less time than one machine takes for R:

    bits of a word / (R x seconds of a word on one machine - seconds of a word of a worker)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_BITS = 8e-9  # gigabits of a byte


class LocalSide(NamedTuple):
    """Two workers that were measured with --sync_steps.

    Attributes:
        sync_steps: The steps between two exchanges.
        words_per_second: The words/s of both together on this machine.
        bytes_per_word: The bytes that a worker sends for each of its words.
        step_words: The words of one worker in a step.
        one_words_per_second: The words/s of one process, which also include its input.
    """

    sync_steps: int
    words_per_second: float
    bytes_per_word: float
    step_words: float
    one_words_per_second: float

    @property
    def strategy(self) -> str:
        """Return the name of the strategy, as in the records of `predict`."""
        return f"multi_worker sync {self.sync_steps}"


def predict(
    costs: Mapping[str, Any],
    batch: int,
    step_words: float,
    columns: int,
    gigabits: Sequence[int],
    message_seconds: float,
    local: Sequence[LocalSide] = (),
) -> list[dict[str, Any]]:
    """Predict the speed of each number of workers above 1, without measuring anything.

    Args:
        costs: The result of `measure_costs`. Where its `rows` are None, the case of a shared batch
            is left out.
        batch: Tokens of a step of one process.
        step_words: Words of the corpus in a step of one process.
        columns: Columns of the tables.
        gigabits: Speeds of a link, in Gbit/s.
        message_seconds: Seconds of an empty message.
        local: The measurements with --sync_steps.

    Returns:
        One record for each case: first `multi_worker` with one batch shared by all workers, and
        with a batch for each worker, then with --sync_steps, then `parameter_server`. Each has
        `strategy`, `workers`, `step_tokens`, `words` of all workers in a step, `seconds` of a step
        without the network, `bytes` that a link carries one way in a step, `messages` sent one
        after the other, `bytes_per_word`, `break_even_gigabits` (the speed at which link and
        processor take the same time), `pays_gigabits` (the speed from which the workers are faster
        than one process; None if they never are), and `words_per_second` by speed of the link.
    """
    rows = dict(costs["rows"])
    alone, step, gradient = rows[1], costs["step_seconds"], costs["gradient_seconds"]
    row_seconds = max(0.0, step - gradient) / alone
    speeds = {side.strategy: side.one_words_per_second for side in local}
    cases = []
    for n in (n for n in rows if n > 1):
        # The vectors of all replicas go round a ring, a message for each hop.
        for tokens, part in ((batch, rows[n]), (n * batch, alone)):
            if part is not None:
                share = tokens / n / batch
                seconds = share * gradient + n * part * row_seconds
                words, sent = n * share * step_words, (n - 1) * _row_bytes(part, columns)
                cases.append(("multi_worker", n, tokens, words, seconds, sent, n - 1))
        for side in local:
            share = side.bytes_per_word * 2 * (n - 1) / n  # one replica sends this for its words
            cases.append(
                (
                    side.strategy,
                    n,
                    n * batch,
                    n * side.step_words,
                    side.step_words / side.words_per_second,
                    share * side.step_words,
                    4 * (n - 1) / side.sync_steps,
                )
            )
        # Ids, then rows, then gradients with their ids.
        sent = 2 * _row_bytes(alone, columns)
        cases.append(("parameter_server", n, batch, n * step_words, step, sent, 3))
    keys = ("strategy", "workers", "step_tokens", "words", "seconds", "bytes", "messages")
    predicted = [dict(zip(keys, case, strict=True)) for case in cases]
    for one in predicted:
        bits, fixed = _BITS * one["bytes"], one["seconds"] + one["messages"] * message_seconds
        one["bytes_per_word"] = one["workers"] * one["bytes"] / one["words"]
        one["break_even_gigabits"] = bits / one["seconds"]
        speed_of_one = speeds.get(one["strategy"], step_words / step)
        spare = one["words"] / speed_of_one - fixed  # less than the time of one process
        one["pays_gigabits"] = bits / spare if spare > 0 else None
        one["words_per_second"] = {
            speed: one["words"] / (fixed + bits / speed) for speed in gigabits
        }
    return sorted(predicted, key=lambda one: one["strategy"])


def _row_bytes(rows: float, columns: int) -> float:
    """Return the bytes of rows with their ids, 4 bytes for each id and value."""
    return 4 * rows * (1 + columns)
