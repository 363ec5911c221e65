"""Routes of queues, and of the publishers and sinks that publish to them."""
