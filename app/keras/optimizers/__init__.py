"""Optimizers of Keras with row-sparse updates.

Keras calls these methods of `row_sparse.RowSparse` one after the other: `_filter_empty_gradients`
adds the gradients of repeated rows (`row_accumulation.Merged`), `_clip_gradients` clips the rows,
and `_backend_update_step` updates them by the rule of a class of `row_optimizers`. With
`gradient_accumulation_steps` a `RowAccumulator` adds the rows of several batches in between.
"""
