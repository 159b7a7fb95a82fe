"""Checkpoints, and the folder of a run."""
