"""The origin of a page's data: the source, the range of times, and the equivalent command.

The command is computed from the job's arguments, also for a call from Python.  It contains no
password, because URIs are shown without users.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

#: The maximum length of a shown command; a command with many patterns may be very long.
COMMAND_CHARACTERS: Final = 2000

_USER: Final = re.compile(r"//[^/]*@")

Given = str | int | bool | Sequence[str] | None


@dataclass(frozen=True, slots=True)
class PageOrigin:
    """The source, the times of its first and last message if they are known, and the command.

    `times` is the label of the times: `Ran` if they are the times of the run.
    """

    source: str
    command: str = ""
    first: datetime | None = None
    last: datetime | None = None
    times: str = "Time"

    def described(self) -> dict[str, object]:
        """Return the origin as data of a page."""
        return {
            "source": self.source,
            "command": self.command[:COMMAND_CHARACTERS],
            "first": milliseconds(self.first),
            "last": milliseconds(self.last),
            "times": self.times,
            "made": milliseconds(datetime.now(UTC)),
        }


def command_line(job: str, *arguments: str, **options: Given) -> str:
    """Return the command equivalent to a call, without options that are None or empty.

    The option `--max-count` is named `max_count`.  User and password are removed from `uri` and
    `to`.
    """
    words = ["leveret", "pipeline", job, *arguments]
    for name, value in options.items():
        option = f"--{name.rstrip('_').replace('_', '-')}"
        if value is None or value is False or value == "":
            continue
        if value is True:
            words.append(option)
            continue
        for text in (str(value),) if isinstance(value, str | int) else value:
            words += [option, without_user(text) if name in ("uri", "to") else text]
    return shlex.join(words)


def path_text(path: object) -> str | None:
    """Return a path as text, or None if no path, or a file's contents instead, is given."""
    return None if path is None or isinstance(path, Mapping) else str(path)


def moment_text(moment: datetime | None) -> str | None:
    """Format a moment for the command line."""
    return None if moment is None else moment.isoformat()


def without_user(uri: str) -> str:
    """Return a URI without its user and password."""
    return _USER.sub("//", uri, count=1)


def headers_given(headers: Mapping[str, str | None] | None) -> list[str]:
    """Return the selected headers as values of the command's option."""
    pairs = (headers or {}).items()
    return [name if value is None else f"{name}={value}" for name, value in pairs]


def milliseconds(moment: datetime | None) -> int | None:
    """Return a moment in ms since 1970; a moment without a time zone is in UTC."""
    if moment is None:
        return None
    known = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return round(known.timestamp() * 1000)
