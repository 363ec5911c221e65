"""The `leveret` command: parses arguments, runs a command, and prints its results.

Each command has a module of the same name, which is imported only when the command runs, because
a broker must start in well under a second.
"""

from __future__ import annotations

from leveret.cli.root import app, main

__all__ = ["app", "main"]
