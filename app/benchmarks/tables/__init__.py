"""Tables that live in different places, beside torch and a table that moves whole."""
