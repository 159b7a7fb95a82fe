"""tf.data pipelines: from text to batches of ids."""
