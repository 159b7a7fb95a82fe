"""Lexrow: word vectors and large embedding tables, trained row by row in TensorFlow 2."""

from __future__ import annotations

__version__ = "0.1.0"
