"""The valid ranges of numbers in the arguments of exchanges.

Numbers are checked on declare and import, but not at startup.  Numbers accepted by an older build
are kept, and used up to the limit.
"""

from __future__ import annotations

from typing import Final

from leveret.broker.attributes.arguments import Arguments, type_name
from leveret.errors import PreconditionFailed
from leveret.limits import HISTORY_MESSAGES_MAX, SUPER_STREAM_PARTITIONS_MAX

_PARTITIONS: Final = "x-super-stream-partitions"

#: The exchange type, the minimum and the maximum of each number.
EXCHANGE_NUMBERS: Final[dict[str, tuple[str, int, int]]] = {
    _PARTITIONS: ("x-super-stream", 1, SUPER_STREAM_PARTITIONS_MAX),
    "x-recent-history-length": ("x-recent-history", 1, HISTORY_MESSAGES_MAX),
}


def check_exchange_numbers(kind: str, arguments: Arguments, where: str) -> None:
    """Refuse numbers outside the range of an exchange of the type `kind`.

    The type `x-recent-history` checks its length itself, with RabbitMQ's text.

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
