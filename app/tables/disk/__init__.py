"""Tables whose rows are in a file."""
