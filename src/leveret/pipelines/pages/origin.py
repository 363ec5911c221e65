"""The origin of a page's data: the source, the range of times, and the command.

A command is written from the job's arguments, so it exists for a call from Python too.  It contains
no password: a URI is shown without its user.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

#: How much of a command is shown; one with many patterns may be as long as the system allows.
COMMAND_CHARACTERS: Final = 2000

_USER: Final = re.compile(r"//[^/]*@")

Given = str | int | bool | Sequence[str] | None


@dataclass(frozen=True, slots=True)
class PageOrigin:
    """The source, the times of its first and last message if they are known, and the command.

    `times` describes the times: `Ran` for those of the run itself.
    """

    source: str
    command: str = ""
    first: datetime | None = None
    last: datetime | None = None
    times: str = "Time"

    def described(self) -> dict[str, object]:
        """Return it as data of a page."""
        return {
            "source": self.source,
            "command": self.command[:COMMAND_CHARACTERS],
            "first": milliseconds(self.first),
            "last": milliseconds(self.last),
            "times": self.times,
            "made": milliseconds(datetime.now(UTC)),
        }


def command_line(job: str, *arguments: str, **options: Given) -> str:
    """Return the command equivalent to a call; options that are None or empty are left out.

    The option `--max-count` is named `max_count`; `uri` and `to` lose user and password.
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
    """Return a path as text, if there is one; contents instead of a file have no name."""
    return None if path is None or isinstance(path, Mapping) else str(path)


def moment_text(moment: datetime | None) -> str | None:
    """Format a moment for the command line."""
    return None if moment is None else moment.isoformat()


def without_user(uri: str) -> str:
    """Return a URI without its user and password."""
    return _USER.sub("//", uri, count=1)


def headers_given(headers: Mapping[str, str | None] | None) -> list[str]:
    """Return the chosen headers as the command line writes them."""
    pairs = (headers or {}).items()
    return [name if value is None else f"{name}={value}" for name, value in pairs]


def milliseconds(moment: datetime | None) -> int | None:
    """Return a moment in a browser's milliseconds; one without a time zone is UTC."""
    if moment is None:
        return None
    known = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return round(known.timestamp() * 1000)
