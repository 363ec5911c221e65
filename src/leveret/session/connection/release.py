"""The release of what a connection held, whatever ended it: it may be long.

Its channels end one after the other, then its exclusive queues are deleted (behaviour 13).

Invariants: it begins once, and after an operation of the client's that is under way; nothing is
delivered to the connection meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator

from leveret.broker.scheduler.task import after
from leveret.session.channel.channel import Channel
from leveret.session.channel.release import release_channel
from leveret.session.connection_base import ConnectionBase


def release_connection(
    connection: ConnectionBase, channels: list[Channel], answers: bool
) -> Iterator[int]:
    """Release what a connection held; `channels` are those that have not ended.

    `answers` is True if the client waits for a connection.close-ok.
    """
    before = connection.work
    if before is not None:
        # If it waits for a sync, it need not: there is nobody to reply to.
        connection.scheduler.wake(before)
    yield from after(before)
    for channel in channels:
        yield from release_channel(channel)
        yield 1
    yield from connection.drop_exclusive()
    if answers:
        connection.answer_close()
    connection.holds_nothing()
