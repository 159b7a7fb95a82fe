"""Build objects from flag values: losses, optimizers, tables, runners, and where tables live."""
