"""The settings of a benchmark: a field is a flag of `app.bench`; a case uses those it knows."""

from __future__ import annotations

import dataclasses

from app import config
from app.config import setting
from app.errors import UsageError


def _as_in_training(name: str) -> object:
    """A setting that both sides share: our trainer's flag of that name, its default included."""
    field = config.fields()[name]
    return dataclasses.field(default=field.default, metadata=field.metadata)


@dataclasses.dataclass(frozen=True)
class Options:
    """What to compare, how often, and where the results go."""

    corpus: str = _as_in_training("corpus")
    model: str = _as_in_training("model")
    dim: int = _as_in_training("dim")
    window: int = _as_in_training("window")
    epochs: int = _as_in_training("epochs")
    min_count: int = _as_in_training("min_count")
    repeats: int = setting(1, "Runs of each side; medians are reported.", minimum=1)
    peers: str = setting("gensim", "Comma-separated peers to run beside ours; empty runs none.")
    train_flags: str = setting("", "More flags for our side, as on the command line of app.train.")
    json: str = setting("", "Write every number to this file.")
    plot: str = setting("", "Draw the comparison to this file (.png, .svg or .pdf).")
    keep: str = setting("", "A folder in which to keep the vectors and logs of every run.")


def check(options: Options) -> None:
    """Raises UsageError for the first value that cannot be."""
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        choices, minimum = field.metadata["choices"], field.metadata["minimum"]
        if choices and value not in choices:
            raise UsageError(f"--{field.name}={value}: not one of {', '.join(choices)}")
        if minimum is not None and not value >= minimum:
            raise UsageError(f"--{field.name}={value}: give at least {minimum:g}")
