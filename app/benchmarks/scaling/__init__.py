"""Training by several processes, beside one process."""
