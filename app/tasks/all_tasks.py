"""Map the values of --task to the functions of each task. Only this module knows all tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..training.job import Job
from .classify import classifier_export, classify_job, tuning
from .language_model import language_export, language_model_job
from .recommend import item_export, recommend_job
from .words import words_export, words_job

JOBS: dict[str, Callable[..., Job]] = {
    "words": words_job.make_job,
    "classify": classify_job.make_job,
    "language_model": language_model_job.make_job,
    "recommend": recommend_job.make_job,
}

# Functions that search for settings before the training, if the given ones ask for it. They return
# the settings to train with.
SEARCHES: dict[str, Callable[..., Any]] = {"classify": tuning.tune}

# Functions that score a trained run on files. They return text for people and values for JSON.
SCORES: dict[str, Callable[..., tuple[str, dict[str, Any]]]] = {
    "language_model": language_model_job.evaluate,
    "classify": classify_job.evaluate,
    "recommend": recommend_job.evaluate,
}

# By --format, functions that write a trained run to a path and return a message. Formats of word
# vectors from files, too, are in `lexrow export`.
EXPORTS: dict[str, Mapping[str, Callable[..., str]]] = {
    "words": words_export.EXPORTS,
    "classify": classifier_export.EXPORTS,
    "language_model": language_export.EXPORTS,
    "recommend": item_export.EXPORTS,
}
