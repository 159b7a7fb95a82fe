"""Layers for Keras models, and what they are made of."""
