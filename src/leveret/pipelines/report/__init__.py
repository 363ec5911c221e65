"""Traffic by exchange, routing key and window of time."""
