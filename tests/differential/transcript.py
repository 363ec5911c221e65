"""What a script heard, as lines that two brokers can be compared by.

A line is a method with all its fields, and with properties, headers and body where it has content.
What every run makes anew has a name of its own: generated names are numbered in the order in which
they came, times of now are `<now>`, and the prefix of the script's own names is left out.

Invariants: field tables keep their type tags, which raw_codec.py loses; tables are in the order of
their keys, because the order of a table means nothing; arrays keep theirs.
"""

from __future__ import annotations

import difflib
import re
import time
from dataclasses import dataclass
from typing import Any, Final

from support.wire.raw_codec import PROPERTIES, Reader, Typed

#: A timestamp this near to the clock is one that the broker made.
NOW_SECONDS: Final = 600

#: Headers that Leveret adds to every dead letter and every message of a stream.  They are left out,
#: so that each is one difference and not a hundred: where a script asks for `extras`.
EXTRA: Final = re.compile("x-last-death-|x-stream-timestamp")

#: What RabbitMQ says of a vhost that is being deleted, now this and now that.
GONE: Final = re.compile(r"(vhost '[^']*') is (?:deleted|down)")

#: Names that a broker makes up.
GENERATED: Final = re.compile(r"amq\.rabbitmq\.reply-to\.[\w.=+/-]+|amq\.(?:gen|ctag)-[\w=+/-]*")


class TaggedReader(Reader):
    """Reads field tables with the tags of their values."""

    def table(self) -> dict[str, Any]:
        """A field table of Typed values."""
        inner = TaggedReader(self.take(self.fixed(">I")))
        values: dict[str, Any] = {}
        while inner.at < len(inner.data):
            name = inner.value("s")
            values[name] = inner.table_value()
        return values

    def table_value(self) -> Any:
        """A value with its tag."""
        tag = self.data[self.at : self.at + 1].decode("latin-1")
        if tag == "A":
            self.take(1)
            inner = TaggedReader(self.take(self.fixed(">I")))
            items = []
            while inner.at < len(inner.data):
                items.append(inner.table_value())
            return Typed("A", items)
        return Typed(tag, super().table_value())


def read_properties(raw: bytes) -> dict[str, Any]:
    """Decode property flags and values into what is set, with the tags of headers."""
    reader = TaggedReader(raw)
    flags = reader.fixed(">H")
    set_ = [(n, k) for bit, (n, k) in enumerate(PROPERTIES.items()) if flags >> (15 - bit) & 1]
    return {name: Typed(kind, reader.value(kind)) for name, kind in set_}


def show(value: Any) -> str:
    """Show a value; strings, integers and booleans of methods without a tag."""
    if isinstance(value, Typed):
        return show_typed(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}={show(value[k])}" for k in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(show, value)) + "]"
    if isinstance(value, bytes) and len(value) > 100:
        return f"{value[:20]!r}…{len(value)}"
    return repr(value)


def show_typed(value: Typed) -> str:
    """Show a tagged value; text, tables, arrays and truth without their tags."""
    tag, inner = value.tag, value.value
    if isinstance(inner, (str, dict, list, bool)):
        return show(inner)
    if tag in "tT" and abs(time.time() - inner) < NOW_SECONDS:
        return "T:<now>"
    if tag == "l" and abs(time.time() - inner / 1000) < NOW_SECONDS:
        return "l:<now>"
    return f"{tag.upper() if tag == 't' else tag}:{inner!r}"


def without_extras(properties: dict[str, Any]) -> dict[str, Any]:
    """Return properties without the headers that are Leveret's own."""
    headers = properties.get("headers")
    if headers is None:
        return properties
    kept = {k: v for k, v in headers.value.items() if not EXTRA.match(k)}
    return properties | {"headers": Typed("F", kept)}


def show_fields(fields: dict[str, Any]) -> str:
    """Show the fields of a method; reserved ones are left out."""
    return " ".join(
        f"{name}={show(value)}"
        for name, value in fields.items()
        if name != "_" and not name.startswith("reserved")
    )


@dataclass
class Transcript:
    """The lines of one script on one broker; `prefix` begins all names of the script."""

    prefix: str

    def __post_init__(self) -> None:
        self.lines: list[str] = []
        self._generated: dict[str, str] = {}

    def add(self, line: str) -> None:
        """Add a line, normalised."""
        line = GONE.sub(r"\1 is deleted or down", line.replace(self.prefix, ""))
        self.lines.append(GENERATED.sub(self._name, line))

    def _name(self, found: re.Match[str]) -> str:
        name = found[0]
        if name not in self._generated:
            kind = "reply-to" if "reply-to" in name else name.partition("-")[0]
            self._generated[name] = f"<{kind} {len(self._generated) + 1}>"
        return self._generated[name]


#: What differs at one place: what RabbitMQ answered and what Leveret did.
Hunk = tuple[tuple[str, ...], tuple[str, ...]]


def differences(rabbitmq: list[str], leveret: list[str]) -> list[Hunk]:
    """Return the places where two transcripts differ."""
    matcher = difflib.SequenceMatcher(None, rabbitmq, leveret, autojunk=False)
    return [
        (tuple(rabbitmq[a:b]), tuple(leveret[c:d]))
        for tag, a, b, c, d in matcher.get_opcodes()
        if tag != "equal"
    ]


def show_hunk(hunk: Hunk) -> str:
    """Show a difference as the files in `expected/` have it."""
    return "\n".join([*(f"- {line}" for line in hunk[0]), *(f"+ {line}" for line in hunk[1])])
