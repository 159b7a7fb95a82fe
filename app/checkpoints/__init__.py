"""Checkpoints, and the workdir of a run."""
