"""Disks for tests, demonstrations and brokers without durable data."""
