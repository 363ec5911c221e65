"""Permissions: what a user may do in a vhost, as patterns of the names that he may do it with.

A pattern is searched for in the name, as RabbitMQ does: `log` lets `catalogue` through, `^log$`
does not.  An empty one stands for `^$`, which no exchange and no queue has for a name.

Invariants: patterns are compiled when they are set, so that a check cannot fail for one.
"""

from __future__ import annotations

import sys
from typing import Final, final

from mypy_extensions import i64

from leveret.broker.values.patterns import Pattern, compile_pattern
from leveret.errors import PreconditionFailed

#: What can be allowed; they are added up.
CONFIGURE: Final = 1
WRITE: Final = 2
READ: Final = 4

#: Patterns that most permissions have, and that are compiled once for all.
_SHARED: Final = ("", ".*")

#: The characters that mean something in a pattern.
_META: Final = "\\.^$*+?{}[]()|-#&~ \t\n\r\v\f"

#: The end of a pattern that says nothing of what comes, and what in one looks at what comes, or
#: makes plain text of such an end.
_ANY_END: Final = ".*$"
_LOOKS_ON: Final = ("$", "(?", "\\b", "\\B", "\\z", "\\Z", "\\G", "\\Q")


def _pattern(text: str) -> Pattern:
    """Return the pattern of a permission.  Raises: PreconditionFailed (406)."""
    return compile_pattern(text or "^$")


def escape(text: str) -> str:
    """Return a pattern that stands for `text` itself."""
    return "".join("\\" + letter if letter in _META else letter for letter in text)


def expand(pattern: str, variables: dict[str, str]) -> str:
    """Return `pattern` with each `{name}` of `variables` replaced by its value, escaped.

    The value cannot add anything to the pattern but itself, whatever a user, a vhost or a client is
    called.  A `{name}` that is no variable stays as it is.
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
    """What a user may configure (declare, delete), write (publish) and read (consume)."""

    def __init__(self, configure: str, write: str, read: str) -> None:
        self.configure: Final = configure
        self.write: Final = write
        self.read: Final = read
        self._configure: Final = _pattern(configure)
        self._write: Final = _pattern(write)
        self._read: Final = _pattern(read)

    def pattern(self, what: int) -> Pattern:
        """Return the pattern of the names with which `CONFIGURE`, `WRITE` or `READ` is allowed."""
        if what == CONFIGURE:
            return self._configure
        return self._write if what == WRITE else self._read

    def memory(self) -> i64:
        """Return the bytes of memory that its texts and their patterns take."""
        size: i64 = 0
        texts = (self.configure, self.write, self.read)
        for text, pattern in zip(texts, (self._configure, self._write, self._read), strict=True):
            if text not in _SHARED:
                size += pattern.memory() + i64(sys.getsizeof(text))
        return size

    def definition(self, user: str, vhost: str) -> dict[str, object]:
        """Return the permission as its journal record holds it."""
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

    `{username}` and `{vhost}` in a pattern stand for those of the connection, which are the ones
    that the permission is for; `{client_id}`, which AMQP 0-9-1 does not know, stays as it is.

    Raises: PreconditionFailed (406) for a pattern that is none.
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
        #: What must be found in the beginning of routing keys that all may be written to, whatever
        #: follows it; None where that cannot be told.
        self.every_write: Final = None if start is None else _expanded_pattern(start)

    def pattern(self, what: int) -> Pattern | None:
        """Return the pattern of the routing keys with which `WRITE` or `READ` is allowed.

        None, which allows nothing, stands for a pattern that became too large by a name.
        """
        return self._write if what == WRITE else self._read

    def memory(self) -> i64:
        """Return the bytes of memory that its texts and their patterns take."""
        size = i64(sys.getsizeof(self.write) + sys.getsizeof(self.read))
        every_write = None if self.every_write is self._write else self.every_write
        for pattern in (self._write, self._read, every_write):
            if pattern is not None and pattern.text not in _SHARED:
                size += pattern.memory()
        return size

    def definition(self, user: str, vhost: str, exchange: str) -> dict[str, object]:
        """Return the permission as its journal record holds it."""
        return {
            "user": user,
            "vhost": vhost,
            "exchange": exchange,
            "write": self.write,
            "read": self.read,
        }


def _expanded_pattern(text: str) -> Pattern | None:
    """Return the pattern of a permission, or None for one that is refused."""
    try:
        return _pattern(text)
    except PreconditionFailed:
        return None


def _start_of(text: str) -> str | None:
    """Return what of a pattern has to be found in the beginning of a key, whatever follows it.

    None where the pattern looks at what follows, and where it is found in no key.
    """
    if not text:
        return None
    if text.endswith(_ANY_END) and not text.endswith("\\" + _ANY_END):
        text = text[: -len(_ANY_END)] or "^"
    plain = text.replace("(?:", "")
    return None if any(looks_on in plain for looks_on in _LOOKS_ON) else text
