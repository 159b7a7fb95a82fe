"""Losses that score a sample of the words."""
