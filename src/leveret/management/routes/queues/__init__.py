"""Routes of queues and their messages, and of publishers and sinks."""
