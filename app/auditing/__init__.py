"""Find what a traced training step does to whole tables."""
