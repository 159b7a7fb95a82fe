"""Items recommended to users: `--task=recommend`."""
