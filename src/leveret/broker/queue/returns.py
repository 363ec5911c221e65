"""How often a message was returned to its queue, as deliveries and unacked messages carry it.

A crash hides whether a message was handed out.  Such a message is marked as redelivered, though no
return of it is known.  One number says both, because it goes with each message through the queue,
the delivery and the list of the unacked messages: a flag beside it would be one more argument and
one more attribute on that path.  Only the functions here tell them apart.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

#: The count of a message that may have been delivered, and of which no return is known.
MAYBE_DELIVERED: Final = -1


def is_redelivered(count: i64) -> bool:
    """Return whether a delivery has the `redelivered` bit."""
    return count != 0


def known_returns(count: i64) -> i64:
    """Return how often a message was returned, as far as is known."""
    return max(0, count)
