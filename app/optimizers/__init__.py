"""How a row changes: pure update rules by name, and the writer that moves rows."""
