"""Reports on a model: its memory, and operations on whole tables."""
