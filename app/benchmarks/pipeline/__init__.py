"""Input pipelines, beside usual ways to write one."""
