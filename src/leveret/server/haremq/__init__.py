"""The listener for clients of HareMQ."""
