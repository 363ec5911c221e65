"""Parsers of option values: numbers, sizes, durations, flags and names.

Each function takes Spark's text and returns its value.  All of them raise `ValueError` with the
fault, to which the caller adds the option's name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from leveret.client import parse_uri

OFFSET_MAX: Final = 2**63 - 1

#: Names of queues and streams are AMQP short strings.
_NAME_BYTES_MAX: Final = 255

_ENVIRONMENT_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPAN: Final = re.compile(r"(\d{1,12}) *([a-z]*)")
_SPAN_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE: Final = re.compile(r"(\d{1,15}) *([a-z]*)")
_SIZE_BYTES: Final = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def uri(text: str) -> str:
    """Parse an AMQP URI."""
    parse_uri(text)
    return text


def source_uri(text: str) -> str:
    """Parse an AMQP URI or a data directory's URI: `file:///var/lib/leveret?vhost=%2F`."""
    if not text.startswith("file:"):
        return uri(text)
    file_parts(text)
    return text


def file_parts(text: str) -> tuple[str, str]:
    """Return the directory and the vhost in a data directory's URI."""
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.fragment:
        raise ValueError("the URI of a data directory is file:///path, perhaps with ?vhost=name")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := set(query) - {"vhost"}:
        raise ValueError(f"unknown query parameter {min(unknown)!r}; known: vhost")
    return unquote(parts.path), query.get("vhost", "/")


def http_uri(text: str) -> str:
    """Check the address of an HTTP listener, which has no path."""
    # Unlike urllib's errors, these do not quote the address, which may contain a password.
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError("not an address such as http://localhost:15672") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not an address such as http://localhost:15672")
    if parts.username or parts.password or parts.query or parts.path not in ("", "/"):
        raise ValueError("only scheme, host and port belong here; credentials come from the URI")
    if port == 0:
        raise ValueError("a port is a number from 1 to 65535")
    return text.rstrip("/")


def name(text: str) -> str:
    """Check the name of a stream or queue."""
    if not 0 < len(text.encode()) <= _NAME_BYTES_MAX:
        raise ValueError(f"a name of 1 to {_NAME_BYTES_MAX} bytes")
    return text


def names(text: str) -> tuple[str, ...]:
    """Parse names that are separated by commas or in a JSON list."""
    found = texts(text)
    for one in found:
        name(one)
    return found


def texts(text: str) -> tuple[str, ...]:
    """Parse one or more distinct strings that are separated by commas or in a JSON list."""
    if text.lstrip().startswith("["):
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ValueError(f"not JSON: {error}") from None
        if not all(isinstance(one, str) for one in found):
            raise ValueError("not a JSON list of strings")
    else:
        found = [one.strip() for one in text.split(",")]
    if not found or "" in found:
        raise ValueError("one of the texts is empty")
    twice = {one for one in found if found.count(one) > 1}
    if twice:
        raise ValueError(f"given twice: {', '.join(sorted(twice))}")
    return tuple(found)


def regular_expression(text: str) -> str:
    """Check a regex in Python's syntax."""
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    return text


def variable(text: str) -> str:
    """Check the name of an environment variable."""
    # Errors do not quote the text, because a user may have given the password itself.
    if not _ENVIRONMENT_NAME.fullmatch(text):
        raise ValueError("not a name of an environment variable")
    return text


def file(text: str) -> str:
    """Check the path of a file, which must be absolute."""
    if not text.startswith("/"):
        raise ValueError("not an absolute path; processes with other directories read the file")
    return text


def word(*known: str) -> Callable[[str], str]:
    """Return a parser that accepts one of some words, ignoring case."""
    by_lower = {one.lower(): one for one in known}

    def read(text: str) -> str:
        found = by_lower.get(text.strip().lower())
        if found is None:
            raise ValueError(f"{text!r} is none of: {', '.join(known)}")
        return found

    return read


def word_or_texts(*known: str) -> Callable[[str], str | tuple[str, ...]]:
    """Return a parser that accepts one of some words, ignoring case, or a list as `texts` does."""
    by_lower = {one.lower(): one for one in known}

    def read(text: str) -> str | tuple[str, ...]:
        return by_lower.get(text.strip().lower()) or texts(text)

    return read


def flag(text: str) -> bool:
    """Parse a Boolean."""
    flags = {"true": True, "false": False}
    if text.lower() not in flags:
        raise ValueError(f"{text!r} is neither true nor false")
    return flags[text.lower()]


def number(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of integers from `least` to `most`."""

    def read(text: str) -> int:
        digits = text.strip()
        if not (digits.isascii() and digits.isdigit() and least <= int(digits) <= most):
            raise ValueError(f"{text!r} is not a number from {least} to {most}")
        return int(digits)

    return read


def span_ms(text: str) -> int:
    """Parse a duration such as `500ms`, `30s`, `15m` or `1h` into one or more milliseconds."""
    found = _SPAN.fullmatch(text.strip().lower())
    span = int(found[1]) * _SPAN_MS.get(found[2], 0) if found else 0
    if span == 0:
        raise ValueError(f"{text!r} is not a duration: a number and one of {', '.join(_SPAN_MS)}")
    return span


def size_bytes(text: str) -> int:
    """Parse a size such as `1000000`, `500k` or `2g` into one or more bytes."""
    found = _SIZE.fullmatch(text.strip().lower())
    unit = found[2].removesuffix("b") if found else ""
    size = int(found[1]) * _SIZE_BYTES.get(unit, 0) if found else 0
    if size == 0:
        raise ValueError(f"{text!r} is not a size: a number of bytes, or one with k, m, g or t")
    return size
