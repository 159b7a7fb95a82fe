"""Build losses, optimizers, tables and runners from flag values, and decide where tables live."""
