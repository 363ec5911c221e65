"""Exit codes, after BSD's sysexits.h, and the exception that ends a command with one of them.

Scripts depend on the codes: docs/reference/operation/cli.md lists them.
"""

from __future__ import annotations

from typing import Final

from leveret.errors import AmqpError, in_plain_words

OK: Final = 0
#: Nothing to get, a check failed, damage was found, or the broker could not run.
NOTHING: Final = 1
#: A data directory or a backup cannot be read, or a broker uses it.
UNUSABLE: Final = 2
#: EX_USAGE: the command line is wrong.
USAGE: Final = 64
#: EX_DATAERR: the broker refused the request, or no queue took a message.
REFUSED: Final = 65
#: EX_NOINPUT: an input file does not exist.
NO_INPUT: Final = 66
#: EX_UNAVAILABLE: no broker answers, or the connection was lost.
UNAVAILABLE: Final = 69
#: EX_SOFTWARE: a bug in the command, or one that ended the broker (`app.ground.INTERNAL_ERROR`).
INTERNAL: Final = 70
#: EX_OSERR: the system lacks something that the command needs.
SYSTEM: Final = 71
#: EX_CANTCREAT: an output file cannot be created.
CANNOT_CREATE: Final = 73
#: EX_IOERR: a read or a write failed, such as on a full disk.
IO_FAILED: Final = 74
#: EX_PROTOCOL: the broker closed the connection with an error.
PROTOCOL: Final = 76
#: EX_NOPERM: login or permission was refused.
NO_PERMISSION: Final = 77
#: EX_CONFIG: a setting is invalid.
CONFIG: Final = 78
#: Ended by SIGINT.
INTERRUPTED: Final = 130
#: The reader of the output, such as `head`, has closed it: a shell's code for SIGPIPE.
NOT_READ: Final = 141


class Failure(Exception):
    """Ends a command with an exit code, one or more lines on standard error, and a remedy."""

    def __init__(self, text: str, code: int, *more: str, hint: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.hint = hint
        #: The text is printed as one line, even if it contains line feeds from outside.
        self.lines: Final = [line for line in (text, *more) if line]


def reason_of(error: Exception) -> str:
    """Return the text of an error, for a failed system call without its number."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def refused(error: AmqpError) -> Failure:
    """Return the failure of a command after the broker closed the channel or the connection."""
    if error.code in {403, 530}:
        return Failure(str(error), NO_PERMISSION)
    return Failure(in_plain_words(str(error)), REFUSED if error.soft else PROTOCOL)
