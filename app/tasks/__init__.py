"""The tasks of --task, one folder each: each builds a `training.job.Job` from the configuration."""
