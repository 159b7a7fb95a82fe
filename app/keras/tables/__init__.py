"""Tables that Keras sees as variables."""
