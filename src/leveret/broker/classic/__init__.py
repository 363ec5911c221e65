"""Classic and quorum queues: order, acks, limits, expiry and dead letters."""
