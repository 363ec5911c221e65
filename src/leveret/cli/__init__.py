"""The `leveret` command: it parses, calls and prints.

Each command lies in the module of its name, which is imported when the command is used: starting a
broker is to take well under a second.
"""

from __future__ import annotations

from leveret.cli.root import app, main

__all__ = ["app", "main"]
