"""The hierarchical softmax, a loss over the paths of a Huffman tree."""
