"""Permissions and topic permissions of a user in a vhost, as patterns of names and keys.

A pattern is searched for in the name, as in RabbitMQ: `log` matches `catalogue`, `^log$` does not.
An empty one means `^$`, which matches no exchange and no queue.

Invariants: patterns are compiled when they are set, so that a check cannot fail because of one.
"""

from __future__ import annotations

import sys
from typing import Final, final

from mypy_extensions import i64

from leveret.broker.patterns.patterns import Pattern, compile_pattern
from leveret.errors import PreconditionFailed

#: The permissions, as bits.
CONFIGURE: Final = 1
WRITE: Final = 2
READ: Final = 4

#: Patterns of most permissions, which are compiled once for all.
_SHARED: Final = ("", ".*")

#: Characters with a special meaning in a pattern.
_META: Final = "\\.^$*+?{}[]()|-#&~ \t\n\r\v\f"

#: The end of a pattern that matches anything after it; and constructs that look at the rest of the
#: text, or quote such an end.
_ANY_END: Final = ".*$"
_LOOKS_ON: Final = ("$", "(?", "\\b", "\\B", "\\z", "\\Z", "\\G", "\\Q")


def _pattern(text: str) -> Pattern:
    """Return the pattern of a permission.  Raises: PreconditionFailed (406)."""
    return compile_pattern(text or "^$")


def escape(text: str) -> str:
    """Return a pattern that matches `text` literally."""
    return "".join("\\" + letter if letter in _META else letter for letter in text)


def expand(pattern: str, variables: dict[str, str]) -> str:
    """Return `pattern` with each `{name}` of `variables` replaced by its escaped value.

    A value is matched literally, whatever the name of a user, a vhost or a client contains.  A
    `{name}` that is not a variable stays as it is.
    """
    parts: list[str] = []
    rest = pattern
    while rest:
        before, opened, after = rest.partition("{")
        parts.append(before)
        name, closed, behind = after.partition("}")
        value = variables.get(name) if closed else None
        if value is None:
            parts.append(opened)
            rest = after
        else:
            parts.append(escape(value))
            rest = behind
    return "".join(parts)


@final
class Permission:
    """Patterns of the names that a user may configure (declare, delete), write or read."""

    def __init__(self, configure: str, write: str, read: str) -> None:
        self.configure: Final = configure
        self.write: Final = write
        self.read: Final = read
        self._configure: Final = _pattern(configure)
        self._write: Final = _pattern(write)
        self._read: Final = _pattern(read)

    def pattern(self, what: int) -> Pattern:
        """Return the pattern of names for `CONFIGURE`, `WRITE` or `READ`."""
        if what == CONFIGURE:
            return self._configure
        return self._write if what == WRITE else self._read

    def memory(self) -> i64:
        """Return the bytes of memory of the strings and their patterns."""
        size: i64 = 0
        texts = (self.configure, self.write, self.read)
        for text, pattern in zip(texts, (self._configure, self._write, self._read), strict=True):
            if text not in _SHARED:
                size += pattern.memory() + i64(sys.getsizeof(text))
        return size

    def definition(self, user: str, vhost: str) -> dict[str, object]:
        """Return the permission as its journal record."""
        return {
            "user": user,
            "vhost": vhost,
            "configure": self.configure,
            "write": self.write,
            "read": self.read,
        }


@final
class TopicPermission:
    """The routing keys that a user may write to and read from one topic exchange.

    `{username}` and `{vhost}` in a pattern are replaced by the user and the vhost of the
    permission.  `{client_id}`, which does not exist in AMQP 0-9-1, stays as it is.

    Raises: PreconditionFailed (406) for an invalid pattern.
    """

    def __init__(self, write: str, read: str, user: str, vhost: str) -> None:
        self.write: Final = write
        self.read: Final = read
        _pattern(write)
        _pattern(read)
        variables = {"username": user, "vhost": vhost}
        expanded = expand(write, variables)
        self._write: Final = _expanded_pattern(expanded)
        self._read: Final = _expanded_pattern(expand(read, variables))
        start = _start_of(expanded)
        #: A pattern for the start of routing keys: if it matches, every key with that start may be
        #: written to; None if that cannot be decided.
        self.every_write: Final = None if start is None else _expanded_pattern(start)

    def pattern(self, what: int) -> Pattern | None:
        """Return the pattern of routing keys for `WRITE` or `READ`.

        None, which allows nothing, means that a name made the pattern too large.
        """
        return self._write if what == WRITE else self._read

    def memory(self) -> i64:
        """Return the bytes of memory of the strings and their patterns."""
        size = i64(sys.getsizeof(self.write) + sys.getsizeof(self.read))
        every_write = None if self.every_write is self._write else self.every_write
        for pattern in (self._write, self._read, every_write):
            if pattern is not None and pattern.text not in _SHARED:
                size += pattern.memory()
        return size

    def definition(self, user: str, vhost: str, exchange: str) -> dict[str, object]:
        """Return the permission as its journal record."""
        return {
            "user": user,
            "vhost": vhost,
            "exchange": exchange,
            "write": self.write,
            "read": self.read,
        }


def _expanded_pattern(text: str) -> Pattern | None:
    """Return the pattern of a permission, or None if it is refused."""
    try:
        return _pattern(text)
    except PreconditionFailed:
        return None


def _start_of(text: str) -> str | None:
    """Return the part of a pattern that must match the start of a key, regardless of the rest.

    Return None if the pattern depends on the rest, or matches no key.
    """
    if not text:
        return None
    if text.endswith(_ANY_END) and not text.endswith("\\" + _ANY_END):
        text = text[: -len(_ANY_END)] or "^"
    plain = text.replace("(?:", "")
    return None if any(looks_on in plain for looks_on in _LOOKS_ON) else text
