"""The names of metrics, and the lines of metrics.jsonl.

In TensorBoard and in reports a metric has a group and a description.

TensorBoard sorts groups by name, and opens the first two: so the loss and the scores are first.
"""

from __future__ import annotations

import json
from typing import Any

from ..system.checked_files import COUNT, fits

_LOSS = "of an example in training, measured in the first step of each call"
_HELDOUT = "of the held-out data, after an epoch"
# Name in metrics.jsonl -> name in TensorBoard, and a description in Markdown.
_KNOWN = {
    "loss": ("loss/train", f"Mean loss {_LOSS}."),
    "heldout_loss": ("loss/heldout", f"Mean loss {_HELDOUT}."),
    "perplexity": ("perplexity/train", f"e to the mean loss {_LOSS}."),
    "heldout_perplexity": ("perplexity/heldout", f"e to the mean loss {_HELDOUT}."),
    "input_wait": ("speed/input_wait", "Share of the time in which the steps wait for input."),
    "stage_hit_rate": ("speed/stage_hit_rate", "Share of the rows that the device had already."),
    "staged_bytes": ("speed/staged_bytes", "Bytes of rows that a step brings to the device."),
    "stage_stall": ("speed/stage_stall", "Share of the time in which steps wait for their rows."),
    "exchanged_bytes": ("speed/exchanged_bytes", "Bytes that a process sends in a step."),
    "bytes_per_word": ("speed/bytes_per_word", "Bytes that all processes send for a word."),
    "exchange_share": ("speed/exchange_share", "Share of the time that exchanges take."),
    "epoch": ("train/epoch", "Passes over the training data."),
    "learning_rate": ("train/learning_rate", "Learning rate of the last step."),
    "seconds_left": ("train/seconds_left", "Estimated seconds of training that are left."),
    "train_seconds": ("train/seconds", "Seconds of training, without those of scoring."),
    "words": ("train/words", "Words that were trained on, in all epochs."),
    "pairs": ("train/pairs", "Pairs that were trained on, in all epochs."),
    "examples": ("train/examples", "Examples that were trained on, in all epochs."),
    "heldout_tokens": ("train/heldout_tokens", "Tokens of the held-out text."),
    "ws353": ("score/ws353", "WordSim-353: Spearman's rho of cosines and judgements."),
    "simlex999": ("score/simlex999", "SimLex-999: Spearman's rho of cosines and judgements."),
    "analogy": ("score/analogy", "Google's analogies: share of right answers by 3CosAdd."),
    "analogy_10k": (
        "score/analogy_10k",
        "Google's analogies: share of right answers by 3CosAdd among the 10,000 most frequent "
        "words, after an epoch.",
    ),
    "rmse": ("score/rmse", f"Root of the mean squared error of ratings {_HELDOUT}."),
    "mae": ("score/mae", f"Mean absolute error of ratings {_HELDOUT}."),
}


def tag(name: str) -> str:
    """Return the name of a metric in TensorBoard, `GROUP/NAME`."""
    return describe(name)[0]


def describe(name: str) -> tuple[str, str]:
    """Return the name of a metric in TensorBoard, `GROUP/NAME`, and its description in Markdown."""
    if name in _KNOWN:
        return _KNOWN[name]
    if name.endswith("_per_second"):
        unit = name.removesuffix("_per_second")
        return f"speed/{name}", f"{unit.capitalize()} of the training data in a second."
    title = name.removeprefix("heldout_").replace("_", " ")
    return f"score/{name.removeprefix('heldout_')}", f"{title.capitalize()} {_HELDOUT}."


def parse(line: bytes) -> dict[str, Any] | None:
    """Return the metrics in a line of metrics.jsonl; None if the line is damaged."""
    try:
        value = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    return value if fits(value, {"step": COUNT, "train_seconds": (float, None)}) else None
