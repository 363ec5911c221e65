"""Standard output as rich writes to it: as wide as the terminal, or into a pipe without an edge."""

from __future__ import annotations

import sys
from typing import Final

from rich.console import Console

#: Into a pipe a row is one line, however long.
_PIPE_COLUMNS: Final = 100_000


class Output(Console):
    """Standard output, whose end is told as that of every command is."""

    def __init__(self) -> None:
        super().__init__(width=None if sys.stdout.isatty() else _PIPE_COLUMNS)

    def on_broken_pipe(self) -> None:
        """Let the command end as others do.  Raises: BrokenPipeError."""
        raise BrokenPipeError
