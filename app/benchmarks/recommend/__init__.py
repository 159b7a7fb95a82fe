"""Items for users, beside implicit."""
