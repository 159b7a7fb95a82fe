"""Running it: the step, the loop, and what they leave behind."""
