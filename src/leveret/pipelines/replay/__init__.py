"""Messages of the past published again."""
