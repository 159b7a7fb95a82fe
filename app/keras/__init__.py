"""Layers and optimizers for Keras models with large tables, named like those they replace."""

from __future__ import annotations

from .keras_audit import audit
from .keras_memory_plan import memory_plan
from .layers.dynamic_embedding import DynamicEmbedding
from .layers.embedding import RowEmbedding
from .layers.embedding_reduce import RowEmbeddingReduce
from .layers.feature_embedding import FeatureConfig, FeatureEmbedding, TableConfig
from .layers.softmax_layers import (
    NCE,
    AdaptiveSoftmax,
    ClassSoftmax,
    HierarchicalSoftmax,
    SampledSoftmax,
    Softmax,
    output_as_loss,
)
from .layers.stock_layers import to_keras
from .layers.word_vectors import load_vectors
from .optimizers.row_accumulation import add_gradients
from .optimizers.row_optimizers import SGD, Adagrad, Ftrl, LazyAdam, LazyAdamW, RowwiseAdagrad
from .optimizers.row_sparse import LossScaleOptimizer
from .prefetched_rows import TableMetrics, check_inputs, prefetch_rows
from .saving import load_model, save_model
from .steps_program import compile_steps
from .tables.initial_rows import StoredRows

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
    "compile_steps",
    "load_model",
    "load_vectors",
    "memory_plan",
    "output_as_loss",
    "prefetch_rows",
    "save_model",
    "to_keras",
]
