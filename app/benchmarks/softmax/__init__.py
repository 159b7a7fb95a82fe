"""Steps of an output layer, beside plain TensorFlow."""
