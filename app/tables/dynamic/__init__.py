"""Tables whose rows are made when a key is first seen."""
