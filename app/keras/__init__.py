"""Layers and optimizers for Keras models with large tables, named like those they replace."""

from __future__ import annotations

from .dynamic_embedding import DynamicEmbedding
from .embedding import RowEmbedding
from .embedding_reduce import RowEmbeddingReduce
from .keras_audit import audit
from .prefetched_rows import prefetch_rows
from .row_optimizers import (
    SGD,
    Adagrad,
    LazyAdam,
    LazyAdamW,
    LossScaleOptimizer,
    RowwiseAdagrad,
)
from .sampled_layers import NCE, SampledSoftmax
from .softmax_layers import (
    AdaptiveSoftmax,
    ClassSoftmax,
    HierarchicalSoftmax,
    Softmax,
    output_as_loss,
)
from .table_metrics import TableMetrics

__all__ = [
    "NCE",
    "SGD",
    "Adagrad",
    "AdaptiveSoftmax",
    "ClassSoftmax",
    "DynamicEmbedding",
    "HierarchicalSoftmax",
    "LazyAdam",
    "LazyAdamW",
    "LossScaleOptimizer",
    "RowEmbedding",
    "RowEmbeddingReduce",
    "RowwiseAdagrad",
    "SampledSoftmax",
    "Softmax",
    "TableMetrics",
    "audit",
    "output_as_loss",
    "prefetch_rows",
]
