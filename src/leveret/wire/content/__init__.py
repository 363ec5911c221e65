"""Methods with their content, whole in bytes: publishes and deliveries, read and written."""
