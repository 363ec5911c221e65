"""The outcomes that a handler returns, and the errors of clusters."""

from __future__ import annotations

import enum

from leveret.client.errors import ClientError


class Outcome(enum.Enum):
    """The result of a handler; `None` means `ACK`, and an exception means `RETRY`."""

    ACK = "ack"
    """The message is handled and leaves the cluster's queue."""
    RETRY = "retry"
    """The message is handled again after a delay, at most `max_attempts` times in all."""
    DEAD_LETTER = "dead_letter"
    """The message goes to the cluster's queue of dead letters."""


class ClusterMismatch(ClientError):
    """The topic or the cluster exists with other arguments: partitions or retry delays."""


class ClusterDeleted(ClientError):
    """The cluster was deleted while this member was in it."""


class MemberInUse(ClientError):
    """Another connection has that member's number, or all numbers are taken."""


class HandlerStopped(ClientError):
    """A handler raised an exception that is no `Exception`, such as SystemExit; see `__cause__`.

    The message was not settled: the broker redelivers it.
    """
