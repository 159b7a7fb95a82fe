"""keras.layers.Embedding as a product with one-hot vectors, whose gradient is dense."""

import keras
import tensorflow as tf


class DenseEmbedding(keras.layers.Embedding):
    """Same weights; Keras' optimizers are right with it, as nothing is row-sparse."""

    def call(self, inputs):
        one_hot = tf.one_hot(inputs, self.input_dim, dtype=self.compute_dtype)
        return keras.ops.matmul(one_hot, keras.ops.cast(self.embeddings, self.compute_dtype))
