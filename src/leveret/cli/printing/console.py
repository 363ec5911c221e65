"""Standard output for rich: as wide as the terminal, or without line breaks in a pipe or a file."""

from __future__ import annotations

import sys
from typing import Final

from rich.console import Console

#: The width if standard output is not a terminal, so that each row is one line.
_PIPE_COLUMNS: Final = 100_000


class StandardOutput(Console):
    """Standard output, with the same handling of a closed pipe as in all commands."""

    def __init__(self) -> None:
        super().__init__(width=None if sys.stdout.isatty() else _PIPE_COLUMNS)

    def on_broken_pipe(self) -> None:
        """Let the command handle the closed pipe.  Raises: BrokenPipeError."""
        raise BrokenPipeError
