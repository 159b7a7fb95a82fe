"""Tables that make a row when a key is first seen."""
