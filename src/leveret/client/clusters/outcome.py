"""What a handler says of a message, and what goes wrong in a cluster apart from messages."""

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
    """The topic or the cluster exists with other arguments: partitions, or delays of retries."""


class ClusterDeleted(ClientError):
    """The cluster was deleted while this member was in it."""


class MemberInUse(ClientError):
    """Another connection is the member of that number, or all numbers are taken."""


class HandlerStopped(ClientError):
    """A handler raised what is no `Exception`, such as SystemExit; it is the `__cause__`.

    The message was not settled: the broker delivers it again.
    """
