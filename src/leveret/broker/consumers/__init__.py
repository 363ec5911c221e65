"""Consumers: subscriptions, prefetch, and the choice of the consumer for the next message."""
