"""Layers and optimizers for Keras models with large tables, named like those they replace."""

from __future__ import annotations

from .checked_inputs import check_inputs
from .dynamic_embedding import DynamicEmbedding
from .embedding import RowEmbedding
from .embedding_reduce import RowEmbeddingReduce
from .feature_configs import FeatureConfig, TableConfig
from .feature_embedding import FeatureEmbedding
from .keras_audit import audit
from .keras_memory_plan import memory_plan
from .merged import add_gradients
from .model_files import save_model
from .prefetched_rows import prefetch_rows
from .row_optimizers import (
    SGD,
    Adagrad,
    Ftrl,
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
from .stored_rows import StoredRows
from .table_metrics import TableMetrics
from .to_keras import to_keras
from .word_vectors import load_vectors

__all__ = [
    "NCE",
    "SGD",
    "Adagrad",
    "AdaptiveSoftmax",
    "ClassSoftmax",
    "DynamicEmbedding",
    "FeatureConfig",
    "FeatureEmbedding",
    "Ftrl",
    "HierarchicalSoftmax",
    "LazyAdam",
    "LazyAdamW",
    "LossScaleOptimizer",
    "RowEmbedding",
    "RowEmbeddingReduce",
    "RowwiseAdagrad",
    "SampledSoftmax",
    "Softmax",
    "StoredRows",
    "TableConfig",
    "TableMetrics",
    "add_gradients",
    "audit",
    "check_inputs",
    "load_vectors",
    "memory_plan",
    "output_as_loss",
    "prefetch_rows",
    "save_model",
    "to_keras",
]
