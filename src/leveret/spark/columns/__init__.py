"""Messages as Arrow columns, and the columns that a read asked for."""
