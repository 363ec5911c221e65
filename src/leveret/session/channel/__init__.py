"""A channel and what belongs to it: its deliveries, confirms, contents and transaction."""
