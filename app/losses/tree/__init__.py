"""Hierarchical softmax over a Huffman tree."""
