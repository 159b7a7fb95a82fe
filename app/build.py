"""From --task to what it does in each command: the only place that knows all tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from app.config import Config
from app.tasks import classify, language_model, recommend, words
from app.training.job import Job
from app.training.workdir import Workdir

JOBS: dict[str, Callable[[Config, Workdir, bool], Job]] = {
    "words": words.job,
    "classify": classify.job,
    "language_model": language_model.job,
    "recommend": recommend.job,
}

# Scores a trained run on files: for people, and for programs.
SCORES: dict[str, Callable[[Config, Workdir, str], tuple[str, dict[str, Any]]]] = {
    "language_model": language_model.evaluate,
    "classify": classify.evaluate,
    "recommend": recommend.evaluate,
}

# Writes a trained run, by format, to a path, and tells what was written; besides word vectors.
EXPORTS: dict[str, Mapping[str, Callable[[Config, Workdir, str], str]]] = {
    "classify": classify.EXPORTS,
    "recommend": recommend.EXPORTS,
}
