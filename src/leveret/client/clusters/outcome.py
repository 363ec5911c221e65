"""The outcomes that a handler returns, and the errors of clusters."""

from __future__ import annotations

import enum

from leveret.client.errors import ClientError


class Outcome(enum.Enum):
    """The result of a handler; `None` means `ACK`, and an exception means `RETRY`."""

    ACK = "ack"
    """The message is acked."""
    RETRY = "retry"
    """The message is retried after a delay; `max_attempts` limits the attempts."""
    DEAD_LETTER = "dead_letter"
    """The message is dead-lettered to the cluster's dead-letter queue."""


class ClusterMismatch(ClientError):
    """The topic or cluster exists with other arguments, such as partitions or retry delays."""


class ClusterDeleted(ClientError):
    """The cluster was deleted while this member was in it."""


class MemberInUse(ClientError):
    """Another connection has that member's number, or all numbers are taken."""


class HandlerStopped(ClientError):
    """A handler raised an exception that is not an `Exception`, such as SystemExit.

    `__cause__` is that exception.  The message was not settled, so the broker redelivers it.
    """
