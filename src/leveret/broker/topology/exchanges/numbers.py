"""The numbers that exchanges are declared with: what each may be.

It is asked at a declare and at an import, and not at a start: what an older build took is kept, and
who uses it knows no more than the limit.
"""

from __future__ import annotations

from typing import Final

from leveret.broker.values.arguments import Arguments, type_name
from leveret.errors import PreconditionFailed
from leveret.limits import HISTORY_MESSAGES_MAX, SUPER_STREAM_PARTITIONS_MAX

_PARTITIONS: Final = "x-super-stream-partitions"

#: The type that has each number, its least and its most.
EXCHANGE_NUMBERS: Final[dict[str, tuple[str, int, int]]] = {
    _PARTITIONS: ("x-super-stream", 1, SUPER_STREAM_PARTITIONS_MAX),
    "x-recent-history-length": ("x-recent-history", 1, HISTORY_MESSAGES_MAX),
}


def check_exchange_numbers(kind: str, arguments: Arguments, where: str) -> None:
    """Refuse numbers that an exchange of the type `kind` could not honour.

    The length of a history is judged by its type, with RabbitMQ's text.

    Raises: PreconditionFailed (406).
    """
    if kind != "x-super-stream" or _PARTITIONS not in arguments:
        return
    value = arguments[_PARTITIONS]
    if not isinstance(value, int) or isinstance(value, bool):
        why = f"expected integer, got {type_name(value)}"
    elif not 1 <= value <= SUPER_STREAM_PARTITIONS_MAX:
        why = f"expected 1 to {SUPER_STREAM_PARTITIONS_MAX}, got {value}"
    else:
        return
    raise PreconditionFailed(f"invalid arg '{_PARTITIONS}' for {where}: \"{why}\"")
