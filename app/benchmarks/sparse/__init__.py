"""Steps of large embedding tables, beside Keras and TensorFlow."""
