"""The embedded broker for other people's tests."""
