"""Layers and optimizers for Keras models with large tables, named like those they replace."""

from __future__ import annotations

from .audits.keras_audit import audit
from .audits.keras_memory_plan import memory_plan
from .inputs.checked_inputs import check_inputs
from .inputs.prefetched_rows import prefetch_rows
from .inputs.table_metrics import TableMetrics
from .layers.dynamic_embedding import DynamicEmbedding
from .layers.embedding import RowEmbedding
from .layers.embedding_reduce import RowEmbeddingReduce
from .layers.feature_configs import FeatureConfig, TableConfig
from .layers.feature_embedding import FeatureEmbedding
from .layers.sampled_layers import NCE, SampledSoftmax
from .layers.softmax_layers import (
    AdaptiveSoftmax,
    ClassSoftmax,
    HierarchicalSoftmax,
    Softmax,
    output_as_loss,
)
from .layers.stock_layers import to_keras
from .layers.word_vectors import load_vectors
from .merged import add_gradients
from .optimizers.loss_scale import LossScaleOptimizer
from .optimizers.row_optimizers import (
    SGD,
    Adagrad,
    Ftrl,
    LazyAdam,
    LazyAdamW,
    RowwiseAdagrad,
)
from .saving.model_files import load_model, save_model
from .tables.stored_rows import StoredRows

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
    "load_model",
    "load_vectors",
    "memory_plan",
    "output_as_loss",
    "prefetch_rows",
    "save_model",
    "to_keras",
]
