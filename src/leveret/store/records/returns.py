"""The count of a message's returns to its queue, as stored in deliveries, records and chunks.

Each message has two counts: how often it was returned because a delivery failed (it was rejected,
or its channel ended), and how often for another reason (basic.nack, basic.recover, or an ack
timeout).  Only failures count towards a delivery limit.  Both counts are in one number, so that
queues, deliveries, the journal and chunks need one field.  Failures are above the low 16 bits.
Earlier releases counted all returns in the low bits; these count as other returns.

After a crash it is unknown whether a message was delivered.  It is then marked as redelivered,
although no return is known.  Only this module depends on the layout of the number.

Source: RabbitMQ 4.3's quorum queues, for what counts as a failure.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

#: The maximum counts of other returns and of failures.  Records and chunks store both in 31 bits,
#: whose greatest value is reserved.  A greater delivery limit has no effect.
RETURNS_COUNTED_MAX: Final = 0xFFFF
FAILURES_COUNTED_MAX: Final = 0x7FFE


#: The count of a message that may have been delivered, but has no known return.
MAYBE_DELIVERED: Final = -1

#: The increment of the number for one failure, and the position of the failures' lowest bit.
_FAILURE: Final[i64] = 1 << 16
_FAILURE_BITS: Final[i64] = 16


def is_redelivered(count: i64) -> bool:
    """Return whether a delivery has the `redelivered` bit."""
    return count != 0


def known_returns(count: i64) -> i64:
    """Return the count without MAYBE_DELIVERED, as stored in records and chunks."""
    return max(0, count)


def once_more(count: i64, failed: bool) -> i64:
    """Return the count after one more return; each count stops at its maximum."""
    count = known_returns(count)
    if failed:
        return count + _FAILURE if failures(count) < FAILURES_COUNTED_MAX else count
    return count + 1 if count & RETURNS_COUNTED_MAX < RETURNS_COUNTED_MAX else count


def failures(count: i64) -> i64:
    """Return how often a delivery of the message failed."""
    return known_returns(count) >> _FAILURE_BITS


def acquisitions(count: i64) -> i64:
    """Return how often the message was returned, for any reason."""
    return failures(count) + (known_returns(count) & RETURNS_COUNTED_MAX)
