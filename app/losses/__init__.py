"""Losses over gathered rows."""
