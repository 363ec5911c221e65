"""Classic and quorum queues, and what streams share with them."""
