"""Methods with their content as bytes, read and written; and the outcome of publishes."""
