"""One entry of a definitions file: its typed fields, and its position for error messages.

The forms of all versions of RabbitMQ's files are accepted: a list of pairs may represent an object,
a comma-separated string a list, and null an empty value.

Invariant: every error in a field is a PreconditionFailed (406).  The caller that applies the entry
adds the position if the error lacks it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, final

from leveret.broker.attributes.arguments import Arguments, is_int
from leveret.broker.parameters import as_table
from leveret.broker.policies.keys import utf8_size
from leveret.broker.vhost.metadata import tag_list
from leveret.errors import PreconditionFailed
from leveret.limits import SHORT_STRING_BYTES_MAX

#: The sections with names that also arrive over AMQP, where a declare strips line ends.
_AMQP_NAMES: Final = ("queues", "exchanges")


@final
class DefinitionsEntry:
    """An object in one of the lists of a definitions file."""

    def __init__(self, section: str, index: int, fields: Arguments, vhost: str | None) -> None:
        self.section: Final = section
        self._index: Final = index
        self.fields: Final = fields
        #: The vhost of all entries, which overrides theirs, or None if each entry names a vhost.
        self._vhost: Final = vhost

    @property
    def place(self) -> str:
        """The position of the entry in the file, and its name: `queues[3] 'orders'`."""
        for field in ("name", "source", "user"):
            value = self.fields.get(field)
            if isinstance(value, str):
                return f"{self.section}[{self._index}] '{value}'"
        return f"{self.section}[{self._index}]"

    def bad(self, why: str) -> PreconditionFailed:
        """Return the error of this entry."""
        return PreconditionFailed(f"{self.place}: {why}")

    def text(self, field: str) -> str:
        """Return a required string."""
        value = self.fields.get(field)
        if not isinstance(value, str):
            raise self.bad(f"{field} should be a string")
        utf8_size(value)
        return value

    def optional_text(self, field: str) -> str:
        """Return a string, or "" if the field is absent."""
        return self.text(field) if self.fields.get(field) is not None else ""

    def name(self, field: str) -> str:
        """Return a string that is a valid name of an entity."""
        name = self.text(field)
        if not 0 < utf8_size(name) <= SHORT_STRING_BYTES_MAX:
            raise self.bad(f"{field} has 1 to {SHORT_STRING_BYTES_MAX} bytes")
        if self.section in _AMQP_NAMES and ("\r" in name or "\n" in name):
            raise self.bad(f"{field} must not contain a line end")
        return name

    def vhost(self) -> str:
        """Return the name of the vhost that the entry belongs to."""
        return self._vhost if self._vhost is not None else self.text("vhost")

    def switch(self, field: str, otherwise: bool) -> bool:
        """Return a Boolean, or `otherwise` if the field is absent."""
        value = self.fields.get(field, otherwise)
        if not isinstance(value, bool):
            raise self.bad(f"{field} should be true or false")
        return value

    def table(self, field: str) -> Arguments:
        """Return an object, empty if the field is absent."""
        value = self.fields.get(field)
        return {} if value is None else as_table(value, field)

    def numbers(self, field: str) -> dict[str, int]:
        """Return an object of integers, empty if the field is absent."""
        found: dict[str, int] = {}
        for name, value in self.table(field).items():
            if not is_int(value) or not isinstance(value, int) or abs(value) >= 2**53:
                raise self.bad(f"{name} in {field} should be a number")
            found[name] = value
        return found

    def tags(self, field: str) -> list[str]:
        """Return a list of strings, empty if the field is absent."""
        value = self.fields.get(field)
        if value is None:
            return []
        tags = tag_list(value)
        for tag in tags:
            utf8_size(tag)
        return tags


def entries(
    definitions: Mapping[str, object], section: str, vhost: str | None
) -> Iterator[DefinitionsEntry]:
    """Yield the entries of a section, if the section is present.

    Raises: PreconditionFailed (406) for a section that is not a list of objects.
    """
    rows = definitions.get(section)
    if rows is None:
        return
    if not isinstance(rows, list):
        raise PreconditionFailed(f"{section} should be a list")
    for index, row in enumerate(rows):
        if not isinstance(row, dict):
            raise PreconditionFailed(f"{section}[{index}] should be an object")
        fields: Arguments = {}
        for key, value in row.items():
            fields[str(key)] = value
        yield DefinitionsEntry(section, index, fields, vhost)
