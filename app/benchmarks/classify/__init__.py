"""Labels of texts, beside fastText."""
