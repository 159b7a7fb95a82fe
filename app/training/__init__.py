"""Training: the step, the loop over steps, and the metrics, profiles and checkpoints of a run."""
