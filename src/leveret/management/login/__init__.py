"""Authentication over TCP: Basic credentials, a form, and the session of a browser."""
