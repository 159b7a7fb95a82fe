"""Benchmarks: a folder for each case, which measures Lexrow and its peers in the same way."""
