"""Exit codes, after BSD's sysexits.h, and the error that ends a command with one of them.

The codes are promises to scripts: docs/reference/operation/cli.md lists them.
"""

from __future__ import annotations

from typing import Final

from leveret.errors import AmqpError, in_plain_words

OK: Final = 0
#: There was nothing to get, a check did not hold, damage was found, or the broker could not run.
NOTHING: Final = 1
#: A data directory or a backup that cannot be read, or that a broker uses.
UNUSABLE: Final = 2
#: EX_USAGE: the command line is wrong.
USAGE: Final = 64
#: EX_DATAERR: the broker refused what was asked for, or no queue took a message.
REFUSED: Final = 65
#: EX_NOINPUT: a file to read is not there.
NO_INPUT: Final = 66
#: EX_UNAVAILABLE: no broker answers, or it went away.
UNAVAILABLE: Final = 69
#: EX_SOFTWARE: a fault of the command, or one that ended the broker (`app.ground.INTERNAL_ERROR`).
INTERNAL: Final = 70
#: EX_OSERR: something of the system that the command needs is missing or does not work.
SYSTEM: Final = 71
#: EX_CANTCREAT: a file that was to be written cannot be made.
CANNOT_CREATE: Final = 73
#: EX_IOERR: reading or writing failed on the way, such as on a full disk.
IO_FAILED: Final = 74
#: EX_PROTOCOL: the broker closed the connection over what was sent.
PROTOCOL: Final = 76
#: EX_NOPERM: login or permission was refused.
NO_PERMISSION: Final = 77
#: EX_CONFIG: a setting does not fit.
CONFIG: Final = 78
#: Ended by SIGINT.
INTERRUPTED: Final = 130
#: Who read the output went away, as `head` does: the code that a shell shows for SIGPIPE.
NOT_READ: Final = 141


class Failure(Exception):
    """Ends a command with a line on standard error, or several, and an exit code."""

    def __init__(self, text: str, code: int, *more: str) -> None:
        super().__init__(text)
        self.code = code
        #: A text may hold line feeds of others: it is one line all the same.
        self.lines: Final = [line for line in (text, *more) if line]


def refused(error: AmqpError) -> Failure:
    """Return the end of a command that a broker's close stands for."""
    if error.code in {403, 530}:
        return Failure(str(error), NO_PERMISSION)
    return Failure(in_plain_words(str(error)), REFUSED if error.soft else PROTOCOL)
