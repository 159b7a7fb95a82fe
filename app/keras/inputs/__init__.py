"""Datasets and callbacks for models with tables."""
