"""Embedding tables: where rows are stored, and how they are read and written."""
