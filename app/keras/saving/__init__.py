"""Tables in the files of Keras models."""
