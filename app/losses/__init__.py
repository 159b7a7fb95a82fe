"""Losses: how a hidden vector predicts words, labels or items."""
