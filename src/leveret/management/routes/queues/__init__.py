"""Routes of queues, and of who numbers or stages what goes into them."""
