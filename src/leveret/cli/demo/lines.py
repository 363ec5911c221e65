"""The messages of the demo: lines of log files, each with its source and its severity.

A line is bytes and need not be UTF-8.  Nothing but the line feed that ends it is removed.

The files in `logs/` are shipped with Leveret.  A web server, Celery, PostgreSQL and RabbitMQ wrote
them while they ran a fictional shop, with deliberate failures.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from leveret.cli import exits

#: The logs shipped with Leveret; they contain lines for each of the demo's queues.
SHIPPED: Final = Path(__file__).with_name("logs")

#: The maximum number of lines, because the demo must end in minutes.  It reports skipped lines.
LINES_MAX: Final = 100_000

#: Larger files are skipped.
FILE_BYTES_MAX: Final = 64 * 1024 * 1024

#: A severity is near the start of a line; such a word further on is part of the text.
_HEAD_BYTES: Final = 140

_WORDS: Final = {
    b"FATAL": "fatal",
    b"CRITICAL": "fatal",
    b"EMERG": "fatal",
    b"ALERT": "fatal",
    b"SEVERE": "error",
    b"ERROR": "error",
    b"ERR": "error",
    b"WARNING": "warning",
    b"WARN": "warning",
    b"NOTICE": "notice",
    b"INFO": "info",
    b"DEBUG": "debug",
    b"TRACE": "debug",
}
_ANDROID: Final = {
    b"V": "debug",
    b"D": "debug",
    b"I": "info",
    b"W": "warning",
    b"E": "error",
    b"F": "fatal",
}
_NAMES: Final = b"|".join(_WORDS)

#: A name in capitals, or in any case in brackets or between a comma and two spaces.
_SEVERITY: Final = re.compile(
    rb"\b(" + _NAMES + rb")\b|\[((?i:" + _NAMES + rb"))\]|, ((?i:" + _NAMES + rb"))  "
)
_LOGCAT: Final = re.compile(rb"\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} +\d+ +\d+ ([VDIWEF]) ")


@dataclass(frozen=True, slots=True)
class DemoMessage:
    """One message: its identity `<source>-<number>`, its routing key and its body."""

    message_id: str
    source: str
    routing_key: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Input:
    """The lines of all files in order, a description of their origin, and the sources' names."""

    lines: tuple[DemoMessage, ...]
    origin: str
    sources: tuple[str, ...]


def read_input(directory: Path | None) -> Input:
    """Return the lines of the files in `directory`, by default those shipped with Leveret.

    Raises: Failure if the directory contains no text files.
    """
    found = _read(SHIPPED if directory is None else directory)
    if not found.lines:
        raise exits.Failure(f"{directory or SHIPPED} contains no text files", exits.NO_INPUT)
    if directory is None:
        return replace(found, origin=f"{', '.join(found.sources)}, which come with Leveret")
    return found


def severity(body: bytes) -> str:
    """Return the severity in a line, or `unknown` if it has none."""
    if logcat := _LOGCAT.match(body):
        return _ANDROID[logcat[1]]
    found = _SEVERITY.search(body[:_HEAD_BYTES])
    if found is None:
        return "unknown"
    return _WORDS[(found[1] or found[2] or found[3]).upper()]


def source_name(path: Path) -> str:
    """Return the word for a file in routing keys."""
    return re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-") or "log"


def split_lines(data: bytes) -> list[bytes]:
    """Return the lines of a file without their line feeds."""
    lines = data.split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


def _read(directory: Path) -> Input:
    """Return the lines of the text files in a directory tree."""
    lines: list[DemoMessage] = []
    sources: list[str] = []
    left_out = False
    for path, data in _text_files(directory):
        if len(lines) == LINES_MAX:
            left_out = True
            break
        name = _unused(source_name(path), sources)
        sources.append(name)
        bodies = split_lines(data)
        room = LINES_MAX - len(lines)
        left_out = len(bodies) > room
        lines += [_line(name, number, body) for number, body in enumerate(bodies[:room], 1)]
    origin = f"{len(sources)} file{'s' * (len(sources) != 1)} in {directory}"
    if left_out:
        origin += f" (the first {LINES_MAX:,} lines)"
    return Input(tuple(lines), origin, tuple(sources))


def _text_files(directory: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield the readable text files."""
    for path in sorted(directory.rglob("*")):
        try:
            if not path.is_file() or not 0 < path.stat().st_size <= FILE_BYTES_MAX:
                continue
            data = path.read_bytes()
        except OSError:
            continue
        # Binary files, such as archives and databases, have zeros near the start.
        if b"\0" not in data[:65_536]:
            yield path, data


def _unused(name: str, taken: Iterable[str]) -> str:
    """Return `name`, with a number appended if it is taken."""
    used = set(taken)
    number = 2
    unused = name
    while unused in used:
        unused = f"{name}-{number}"
        number += 1
    return unused


def _line(source: str, number: int, body: bytes) -> DemoMessage:
    """Return the message for a line."""
    return DemoMessage(f"{source}-{number}", source, f"{source}.{severity(body)}", body)
