"""Exit codes, after BSD's sysexits.h, and the error that ends a command with one of them.

The codes are promises to scripts: docs/cli.md lists them.
"""

from __future__ import annotations

from typing import Final

from leveret.errors import AmqpError

OK: Final = 0
#: There was nothing to get, a check did not hold, damage was found, or the broker could not run.
NOTHING: Final = 1
#: A data directory or a backup that cannot be read, or that a broker uses.
UNUSABLE: Final = 2
#: EX_USAGE: the command line is wrong.
USAGE: Final = 64
#: EX_DATAERR: the broker refused what was asked for; the channel was closed.
REFUSED: Final = 65
#: EX_NOINPUT: a file to read is not there.
NO_INPUT: Final = 66
#: EX_UNAVAILABLE: no broker answers, it went away, or it did not take a message.
UNAVAILABLE: Final = 69
#: EX_SOFTWARE: what nobody expected ended the broker (`leveret.app.INTERNAL_ERROR`).
INTERNAL: Final = 70
#: EX_PROTOCOL: the broker closed the connection over what was sent.
PROTOCOL: Final = 76
#: EX_NOPERM: login or permission was refused.
NO_PERMISSION: Final = 77
#: EX_CONFIG: a setting does not fit.
CONFIG: Final = 78
#: Ended by SIGINT.
INTERRUPTED: Final = 130


class Failure(Exception):
    """Ends a command with a line on standard error and an exit code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def refused(error: AmqpError) -> Failure:
    """Return the end of a command that a broker's close stands for."""
    if error.code in {403, 530}:
        return Failure(str(error), NO_PERMISSION)
    return Failure(str(error), REFUSED if error.soft else PROTOCOL)
