"""Word vectors: `--task=words`."""
