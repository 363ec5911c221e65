"""A channel and its parts: deliveries, confirms, content and transaction."""
