"""Drop-ins for Keras models with large tables; each is named for what it replaces."""

from __future__ import annotations

from app.keras.auditing import audit
from app.keras.embedding import RowEmbedding
from app.keras.optimizers import (
    SGD,
    Adagrad,
    LazyAdam,
    LazyAdamW,
    LossScaleOptimizer,
    RowwiseAdagrad,
)

__all__ = [
    "SGD",
    "Adagrad",
    "LazyAdam",
    "LazyAdamW",
    "LossScaleOptimizer",
    "RowEmbedding",
    "RowwiseAdagrad",
    "audit",
]
