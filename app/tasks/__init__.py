"""The tasks, a folder each: what can be trained, from settings to a `training.job.Job`."""
