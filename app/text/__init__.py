"""What words are: reading a corpus, splitting it into tokens, counting a vocabulary."""
