"""The history of the prompt: the newest lines, in a file that only its owner can read.

Lines with a password in a URI, and lines that begin with a space, are not stored.  Errors in
reading or writing the file are ignored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Final

from prompt_toolkit.history import History

from leveret.cli.contexts.kept import home

#: The maximum number of lines that the next shell loads.
_HISTORY_LINES_MAX: Final = 1_000


#: A URI with a password.
_PASSWORD: Final = re.compile(r"://[^/\s]*:[^/\s]*@")


def history_path() -> Path:
    """Return the path of the history file, in the user's state directory."""
    base = os.environ.get("XDG_STATE_HOME") or str(home() / ".local" / "state")
    return Path(base) / "leveret" / "shell_history"


class FileHistory(History):
    """The history in a file, one line per entry."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """Return the lines, newest first, and truncate the file if it has become too long."""
        try:
            self._open(os.O_RDONLY).close()
            lines = self._path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
            if len(lines) > 2 * _HISTORY_LINES_MAX:
                lines = lines[-_HISTORY_LINES_MAX:]
                with self._open(os.O_WRONLY | os.O_TRUNC) as file:
                    file.write(b"".join(line.encode() + b"\n" for line in lines))
        except OSError:
            return []
        return reversed(lines[-_HISTORY_LINES_MAX:])

    def store_string(self, string: str) -> None:
        """Add a line, unless it must not be stored."""
        line = " ".join(string.splitlines())
        if not line.strip() or line.startswith(" ") or _PASSWORD.search(line):
            return
        try:
            with self._open(os.O_WRONLY | os.O_APPEND) as file:
                file.write(line.encode("utf-8", "replace") + b"\n")
        except OSError:
            return

    def _open(self, flags: int) -> BinaryIO:
        """Open or create the file, which only its owner can read.  Raises: OSError."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        os.fchmod(descriptor, 0o600)
        return os.fdopen(descriptor, "rb" if flags == os.O_RDONLY else "wb")
