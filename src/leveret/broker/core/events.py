"""Who notes what happens to messages, as queues and connections see it.

Invariant: nothing is looked at per message while events are off, but one mask (`Core.event_mask`).
"""

from __future__ import annotations

from collections.abc import Sequence

from mypy_extensions import i64, mypyc_attr

from leveret.message import Message


@mypyc_attr(allow_interpreted_subclasses=True)
class MessageEvents:
    """Takes note of events; this one of none."""

    def __init__(self, mask: i64) -> None:
        #: Sequences with these bits all zero are followed.
        self.mask: i64 = mask
        #: True while publishers are blocked: nothing is noted.
        self.paused = False
        #: Events that were dropped: too many in a turn, or there is no stream.
        self.dropped: i64 = 0

    def queue_event(
        self,
        event: str,
        vhost: str,
        queue: str,
        sequence: i64,
        message: Message | None,
        reason: str = "",
        count: i64 = 0,
    ) -> None:
        """Record what happened in a queue; `count` is how often the message was requeued."""

    def published(
        self, vhost: str, message: Message, queues: i64, targets: Sequence[object]
    ) -> None:
        """Record a publish, of a client or from staging, and how many `queues` it reached."""

    def forget_vhost(self, vhost: str) -> None:
        """Drop what was noted in a virtual host, because it is deleted."""

    def flush(self) -> None:
        """Write what was noted; outside of any other record of the journal."""
