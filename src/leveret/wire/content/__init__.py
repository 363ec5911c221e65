"""Methods with their content, whole in bytes, read and written; and what became of publishes."""
