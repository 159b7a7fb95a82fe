"""Benchmarks: cases that run our side and its peers alike, and what the cases share."""
