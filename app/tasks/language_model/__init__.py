"""Language models: `--task=language_model`."""
