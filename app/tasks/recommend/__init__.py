"""Items for users: `--task=recommend`."""
