"""A session of HareMQ's protocol over the same vhosts, exchanges and queues."""
