"""The publish of one message to thousands of queues, some of them at a time.

Each part is a publish to its queues as any other, with a record of its own in the journal: no
exchange promises that a message comes to all queues at once.  The connection goes on, and the
publisher has its confirm, when the last queue has the message.

Invariant: the parts are so few that their records hold no more than `FAN_OUT_RECORDED_BYTES` beside
one copy of the message.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.broker.queue.target import copies_at_once
from leveret.broker.vhost.vhost import KNOWN, RECORDED
from leveret.session.channel.channel import CONFIRM, Channel
from leveret.session.publish.route import ALREADY_TAKEN, return_message

if TYPE_CHECKING:
    from leveret.broker.core.ownership import Owner
    from leveret.broker.queue.target import Destinations, Target
    from leveret.broker.vhost.vhost import Vhost
    from leveret.message import Message


def parts_of(message: Message, targets: list[Target]) -> Iterator[list[Target]]:
    """Give the targets of a message in parts, to each of which it is published at once."""
    size = int(copies_at_once(message, targets))
    for place in range(0, len(targets), size):
        yield targets[place : place + size]


def spread(
    vhost: Vhost, message: Message, targets: list[Target], by: Owner | None
) -> Generator[int, None, int]:
    """Publish a message to its targets; return what `Vhost.publish` says of all parts together."""
    outcome: i64 = 0
    known: i64 = KNOWN
    for part in parts_of(message, targets):
        # Those that were deleted between two parts have it no more, as if it had come before.
        told = vhost.publish(message, [target for target in part if not target.deleted], by)
        known &= told
        outcome |= told & ~KNOWN
        yield len(part)
    return int(outcome | known)


def fan_out(channel: Channel, message: Message, found: Destinations, mandatory: bool) -> None:
    """Begin to publish a message to thousands of queues; its connection waits for the end."""
    connection = channel.connection
    if channel.mode == CONFIRM:
        channel.confirms.begin_parts()
    connection.start(_fan_out(channel, message, found, mandatory))
    connection.check_slice()


def _fan_out(
    channel: Channel, message: Message, found: Destinations, mandatory: bool
) -> Iterator[int]:
    """Publish a message to its queues, and confirm or return it, if anybody listens."""
    connection = channel.connection
    targets = found.targets
    outcome: i64 = yield from spread(channel.vhost, message, targets, connection.as_owner)
    core = connection.core
    if core.events is not None:
        core.events.published(channel.vhost.name, message, len(targets), targets)
    returned = mandatory and not found.reached()
    listens = channel.awaits_reply()
    if listens and returned:
        return_message(channel, message)
    elif listens and mandatory and outcome & KNOWN and connection.capabilities.already_taken:
        return_message(channel, message, ALREADY_TAKEN, "ALREADY_TAKEN")
    if channel.mode == CONFIRM:
        channel.confirms.end_parts(outcome, returned)
    if listens:
        connection.check_publisher(outcome & RECORDED != 0)
