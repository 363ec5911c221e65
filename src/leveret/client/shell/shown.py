"""The internal names of the shells, which `dir` and therefore completion omit.

These names are not public.  They have no underscore, because other modules of the client use them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

INTERNAL_OF_CONNECTION: Final = frozenset(
    {
        *(
            "acked",
            "acks_wait",
            "check_output",
            "dial",
            "drained",
            "drop_link",
            "failures",
            "has_room",
            "hold",
        ),
        *(
            "hold_output",
            "is_calm",
            "is_held",
            "is_reading",
            "made",
            "one_loop",
            "one_thread",
            "open",
        ),
        *(
            "read_what_came",
            "ready",
            "received",
            "recovered",
            "recoverer",
            "run_until",
            "send_old_acks",
        ),
        *(
            "session",
            "stop_recovering",
            "traces",
            "transport_lost",
            "turn",
            "wait_for",
            "wait_until_recovered",
            "wake",
            "writable",
        ),
        "wrote",
    }
)

INTERNAL_OF_CHANNEL: Final = frozenset(
    {
        *("add_consumer", "call", "came_back", "close_session", "consume_columns"),
        *(
            "consumer_cancelled",
            "consumer_refused",
            "delivered",
            "ended",
            "flow_changed",
        ),
        *("processing", "queue_of", "ready", "remove_consumer", "resumed", "session", "settled"),
        "suspended",
    }
)

INTERNAL_OF_CONSUMER: Final = frozenset(
    {"abandon", "callback", "cancelled", "ended", "push", "started", "suspended"}
)


def shown(names: Iterable[str], internal: frozenset[str]) -> list[str]:
    """Return the names without the internal ones."""
    return [name for name in names if name not in internal]
