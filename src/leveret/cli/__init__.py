"""The `leveret` command: parses arguments, calls, and prints.

Each command is in the module of its name, which is imported when the command is used: a broker
must start in well under a second.
"""

from __future__ import annotations

from leveret.cli.root import app, main

__all__ = ["app", "main"]
