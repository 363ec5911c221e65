"""The report job: traffic by exchange, routing key and time window."""
