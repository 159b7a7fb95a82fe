"""Losses that are a softmax over classes of words and a softmax within each class."""
