"""Layers for Keras models, and what they are made of.

- `embedding` and `embedding_reduce`: rows of ids from a known range, and their sums;
  `feature_embedding` makes a layer of one of them for each table.
- `dynamic_embedding`: rows of keys as they come.
- `softmax_layers`: the output layers. `softmax_base` has what they share, `softmax_gradients` their
  losses as functions of tables, and `tied_rows` the embedding whose rows a layer takes as its own.
- `stock_layers` and `word_vectors`: the way back to layers of Keras, and rows from files of others.
"""
