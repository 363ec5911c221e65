"""Regular expressions of policies and permissions, which match in bounded time."""
