"""Input pipelines, beside the usual ways to write one."""
