"""The batches of the benchmark `keras`, drawn before the training begins.

The pipeline of tf.data only takes slices of arrays in memory, ahead of the training, and no batch
is used twice before all batches were used.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from ..harness.zipf import zipf_ids
from .keras_job import Job

DENSE = "dense"  # the input of the dense features
FEATURES = 13  # dense features of the DLRM, as many as in Criteo's data sets


def make_batches(job: Job, count: int, seed: int) -> tf.data.Dataset:
    """Return batches in an endless dataset, `count` of which are drawn.

    The inputs are a dictionary: the ids of each table by its name, drawn by Zipf's law, (B,) or
    (B, L) int32; and for the DLRM the dense features, normally distributed, (B, 13) float32. The
    target of the two towers is the position of the pair in its batch, int32; that of the DLRM is
    random, 0 or 1 in float32.

    Args:
        job: The side.
        count: The number of batches to draw.
        seed: The seed of all random values.
    """
    random = np.random.default_rng(seed)
    shape_SB = count, job.batch
    x: dict[str, np.ndarray] = {}
    for table in job.tables:
        shape = shape_SB if table.ids == 1 else (*shape_SB, table.ids)
        x[table.name] = zipf_ids(random, table.rows, shape)
    if job.model == "dlrm":
        x[DENSE] = random.standard_normal((*shape_SB, FEATURES), dtype=np.float32)
        y_SB = random.integers(0, 2, shape_SB).astype(np.float32)
    else:
        y_SB = np.broadcast_to(np.arange(job.batch, dtype=np.int32), shape_SB)
    return tf.data.Dataset.from_tensor_slices((x, y_SB)).repeat().prefetch(tf.data.AUTOTUNE)
