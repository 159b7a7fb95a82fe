"""What a run is, told before it starts."""

from __future__ import annotations

import os

import tensorflow as tf

from app.config import Config
from app.settings import by_name, fields
from app.text.vocabulary import UNK
from app.training import plan
from app.training.loop import Job
from app.training.words import GROWING, Text

_NVIDIA_DRIVER = "/proc/driver/nvidia/version"
# Which words of the corpus a step is made of, by task.
_BUT = {"words": " after subsampling", "language_model": " that are not held out"}


def banner(settings: Config, text: Text, job: Job) -> str:
    """Devices, settings that are not the defaults, vocabulary, tables, memory by place, and steps.

    With --plan_only, all that takes memory.
    """
    given = by_name(settings)
    defaults = {name: field.default for name, field in fields().items()}
    told = [f"--{name}={value}" for name, value in given.items() if value != defaults[name]]
    words = text.words
    known = f"{len(text.vocabulary.tokens):,} words"
    if text.vocabulary is GROWING:
        known = "grows with the text"
    elif not settings.vocabulary.vocab:  # which counts other text
        known += f", {_known(text) / words:.1%} of it"
    tables = ", ".join(
        f"{item.name} {item.size} ({plan.shown(item.bytes)})"
        for item in job.memory
        if item.name in job.model.tables()
    )
    totals = ", ".join(
        f"{place} {plan.shown(count)}" for place, count in plan.totals(job.memory).items()
    )
    whole = plan.lines(job.memory) if settings.run.plan_only else ()
    steps = settings.run.epochs * job.expected_batches * job.steps_per_batch
    return "\n".join(
        (
            f"device      {job.device} of {_devices()}, products in {job.model.dtype.name}",
            *_warnings(),
            f"flags       {' '.join(told) or 'all as by default'}",
            f"corpus      {words:,} words in {len(text.sources)} file(s)",
            f"vocabulary  {known}",
            f"tables      {tables}",
            f"memory      {totals}",
            *whole,
            f"plan        {settings.run.epochs} epochs, about {steps:,} steps of "
            f"{settings.input.batch_tokens:,} words{_BUT[settings.run.task]}",
        )
    )


def _known(text: Text) -> int:
    """Words of the corpus that have an id of their own."""
    tokens, counts = text.vocabulary.tokens, text.vocabulary.counts
    return int(counts.sum()) - (int(counts[tokens.index(UNK)]) if UNK in tokens else 0)


def _devices() -> str:
    devices = tf.config.list_physical_devices("CPU") + tf.config.list_physical_devices("GPU")
    return ", ".join(device.name.removeprefix("/physical_device:") for device in devices)


def _warnings() -> list[str]:
    if tf.config.list_physical_devices("GPU") or not os.path.exists(_NVIDIA_DRIVER):
        return []
    return [
        "            there is an NVIDIA driver, but TensorFlow finds no GPU: `make setup` again; "
        "TF_CPP_MIN_LOG_LEVEL=0 tells why"
    ]
