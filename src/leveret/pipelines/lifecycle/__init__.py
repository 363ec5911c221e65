"""The lifecycle job: latencies and outcomes of messages, from the broker's events."""
