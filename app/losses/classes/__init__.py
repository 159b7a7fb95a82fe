"""Softmax over classes of words."""
