"""Optimizers for Keras models that update rows."""
