"""The arguments of a HareMQ declare, which a client can only send as texts.

A text is converted to a number or a boolean if the argument of that name is one; then the same
checks apply as for AMQP clients.  A text that cannot be converted is kept, so that they refuse it.
"""

from __future__ import annotations

from typing import Final

from leveret.broker.attributes.arguments import QUEUE_NUMBERS, Arguments
from leveret.broker.exchanges.numbers import EXCHANGE_NUMBERS
from leveret.broker.super_streams.super_stream import PARTITIONS
from leveret.errors import PreconditionFailed
from leveret.limits import FRAME_BYTES_MAX, SHORT_STRING_BYTES_MAX, TABLE_ENTRIES_MAX
from leveret.names import clean_argument

_NUMBERS: Final = frozenset(
    (
        *QUEUE_NUMBERS,
        *EXCHANGE_NUMBERS,
        "x-queue-version",
        "x-max-in-memory-length",
        "x-max-in-memory-bytes",
        "x-initial-cluster-size",
        "x-quorum-initial-group-size",
    )
)
_BOOLEANS: Final[dict[str, bool]] = {"true": True, "false": False}
_BOOLEAN_NAMES: Final = frozenset(("x-single-active-consumer",))

#: Arguments that name an exchange.
_NAMES: Final = ("x-dead-letter-exchange", "alternate-exchange")

#: The longest text of a number: a sign and 18 digits, which fit into 64 bits.
_NUMBER_CHARACTERS_MAX: Final = 19


def arguments_of(args: dict[str, str]) -> Arguments:
    """Return the arguments of a declare.

    Raises: PreconditionFailed (406) for more of them than an AMQP frame could hold, for a name that
    is too long, and for a super stream, which this protocol cannot declare.
    """
    if len(args) > TABLE_ENTRIES_MAX:
        raise PreconditionFailed(f"a declare can have at most {TABLE_ENTRIES_MAX} arguments")
    if PARTITIONS in args:
        raise PreconditionFailed(f"'{PARTITIONS}' declares a super stream: use AMQP for that")
    size = 0
    arguments: Arguments = {}
    for name, text in args.items():
        name_size = len(name.encode())
        if name_size > SHORT_STRING_BYTES_MAX:
            raise PreconditionFailed(
                f"the name of an argument can have at most {SHORT_STRING_BYTES_MAX} bytes"
            )
        size += name_size + len(text.encode())
        arguments[name] = _value(name, text)
    if size > FRAME_BYTES_MAX:
        raise PreconditionFailed(f"arguments of a declare can have at most {FRAME_BYTES_MAX} bytes")
    for name in _NAMES:
        clean_argument(arguments, name)
    return arguments


def _value(name: str, text: str) -> object:
    """Convert the text of one argument."""
    if name in _NUMBERS and len(text) <= _NUMBER_CHARACTERS_MAX:
        digits = text.removeprefix("-")
        if digits.isascii() and digits.isdigit() and len(digits) < _NUMBER_CHARACTERS_MAX:
            return int(text)
    if name in _BOOLEAN_NAMES and text in _BOOLEANS:
        return _BOOLEANS[text]
    return text
