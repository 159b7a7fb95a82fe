"""Drop-ins for Keras models with large tables; each is named for what it replaces."""

from __future__ import annotations

from .embedding import RowEmbedding
from .keras_audit import audit
from .row_optimizers import (
    SGD,
    Adagrad,
    LazyAdam,
    LazyAdamW,
    LossScaleOptimizer,
    RowwiseAdagrad,
)
from .softmax_layers import (
    NCE,
    AdaptiveSoftmax,
    ClassSoftmax,
    HierarchicalSoftmax,
    SampledSoftmax,
    Softmax,
    output_as_loss,
)

__all__ = [
    "NCE",
    "SGD",
    "Adagrad",
    "AdaptiveSoftmax",
    "ClassSoftmax",
    "HierarchicalSoftmax",
    "LazyAdam",
    "LazyAdamW",
    "LossScaleOptimizer",
    "RowEmbedding",
    "RowwiseAdagrad",
    "SampledSoftmax",
    "Softmax",
    "audit",
    "output_as_loss",
]
