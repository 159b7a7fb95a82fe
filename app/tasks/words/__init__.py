"""Word vectors from text: `--task=words`."""
