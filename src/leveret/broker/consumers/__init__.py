"""Consumers: their subscriptions and prefetch, and which of them gets the next message."""
