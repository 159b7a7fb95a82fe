"""Recommenders in keras.fit, beside stock Keras and keras-rs."""
