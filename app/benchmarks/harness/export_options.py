"""The settings of the benchmark `export`."""

from __future__ import annotations

import dataclasses

from ...config.setting import setting
from .options import Options


@dataclasses.dataclass(frozen=True)
class ExportOptions(Options):
    """The export of word vectors, format by format."""

    rows: int = setting(500_000, "Words, which are made up.", bounds=(1, 10**8))
    dim: int = setting(300, "Columns of a vector.", bounds=(1, 1_000_000))
    formats: str = setting(
        "word2vec,word2vec_binary,fasttext,projector,safetensors,parquet,static_embedding,"
        "saved_model",
        "Comma-separated formats of lexrow.export.",
    )
    train_flags: str = setting("", "More flags of lexrow.train, for Lexrow.")
