"""Labels of texts: `--task=classify`."""
