"""Datasets of training batches, made from text, labelled text and ratings."""
