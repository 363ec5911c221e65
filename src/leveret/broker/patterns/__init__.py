"""The regular expressions of policies and permissions, with bounded matching time."""
