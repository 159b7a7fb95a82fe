"""Tables whose rows are stored in a file."""
