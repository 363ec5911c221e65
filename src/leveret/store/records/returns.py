"""How often a message was returned to its queue, as deliveries, records and chunks carry it.

Two numbers are kept of each message: how often it was returned because its delivery failed (it was
rejected, or its channel ended), and how often for another reason (basic.nack, basic.recover, or an
ack that came too late).  Only the failures count for a delivery limit.  Both are in one number,
because it goes with each message through the queue, the delivery, the list of the unacked messages,
the journal and the chunks: the failures lie above the low 16 bits.  An earlier release counted all
returns alike, which are the low bits here, and so no failures.

A crash hides whether a message was handed out.  Such a message is marked as redelivered, though no
return of it is known.  Only the functions here tell all this apart.

Source: RabbitMQ 4.3's quorum queues, for what counts as a failure.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.limits import FAILURES_COUNTED_MAX, RETURNS_COUNTED_MAX

#: The count of a message that may have been delivered, and of which no return is known.
MAYBE_DELIVERED: Final = -1

#: One failure, and where they begin in the number.
_FAILURE: Final[i64] = 1 << 16
_FAILURE_BITS: Final[i64] = 16


def is_redelivered(count: i64) -> bool:
    """Return whether a delivery has the `redelivered` bit."""
    return count != 0


def known_returns(count: i64) -> i64:
    """Return the count without MAYBE_DELIVERED, as records and chunks hold it."""
    return max(0, count)


def once_more(count: i64, failed: bool) -> i64:
    """Return the count of a message that is returned once more; each number has a greatest."""
    count = known_returns(count)
    if failed:
        return count + _FAILURE if failures(count) < FAILURES_COUNTED_MAX else count
    return count + 1 if count & RETURNS_COUNTED_MAX < RETURNS_COUNTED_MAX else count


def failures(count: i64) -> i64:
    """Return how often a delivery of the message failed."""
    return known_returns(count) >> _FAILURE_BITS


def acquisitions(count: i64) -> i64:
    """Return how often the message was returned, for whatever reason."""
    return failures(count) + (known_returns(count) & RETURNS_COUNTED_MAX)
