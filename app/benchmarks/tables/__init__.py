"""Tables in different places, beside numpy and torch."""
