"""What can be trained, a file each: from settings to a `training.loop.Job`."""
