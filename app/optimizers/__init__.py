"""Optimizers: pure update rules for rows, and the function that applies them to tables."""
