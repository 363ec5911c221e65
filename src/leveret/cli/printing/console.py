"""Standard output for rich: as wide as the terminal, or without a limit into a pipe."""

from __future__ import annotations

import sys
from typing import Final

from rich.console import Console

#: In a pipe a row is one line of any length.
_PIPE_COLUMNS: Final = 100_000


class StandardOutput(Console):
    """Standard output; its close is handled like in every command."""

    def __init__(self) -> None:
        super().__init__(width=None if sys.stdout.isatty() else _PIPE_COLUMNS)

    def on_broken_pipe(self) -> None:
        """End the command like others.  Raises: BrokenPipeError."""
        raise BrokenPipeError
