"""The publish of one message to thousands of queues, in parts.

Each part is an ordinary publish to some of the queues, with its own journal record: no exchange
promises that a message reaches all queues at the same time.  The connection resumes, and the
publish is confirmed, when the last queue has the message.

Invariant: the parts are so few that their records hold at most `FAN_OUT_RECORDED_BYTES` in addition
to one copy of the message.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.broker.queue.target import copies_at_once
from leveret.broker.vhost.vhost import KNOWN, RECORDED
from leveret.session.channel.channel import CONFIRM, ServerChannel
from leveret.session.publish.returns import ALREADY_TAKEN, return_message

if TYPE_CHECKING:
    from leveret.broker.ownership import Owner
    from leveret.broker.queue.target import Destinations, Target
    from leveret.broker.vhost.vhost import Vhost
    from leveret.message import Message


def parts_of(message: Message, targets: list[Target]) -> Iterator[list[Target]]:
    """Yield the targets of a message in parts, each for one publish."""
    size = int(copies_at_once(message, targets))
    for place in range(0, len(targets), size):
        yield targets[place : place + size]


def spread(
    vhost: Vhost, message: Message, targets: list[Target], by: Owner | None
) -> Generator[int, None, int]:
    """Publish a message to its targets; return the combined outcome, as `Vhost.publish`."""
    outcome: i64 = 0
    known: i64 = KNOWN
    for part in parts_of(message, targets):
        # Skip queues deleted between two parts, as if they had been deleted after the publish.
        told = vhost.publish(message, [target for target in part if not target.deleted], by)
        known &= told
        outcome |= told & ~KNOWN
        yield len(part)
    return int(outcome | known)


def fan_out(channel: ServerChannel, message: Message, found: Destinations, mandatory: bool) -> None:
    """Begin to publish a message to thousands of queues; the connection halts until the end."""
    connection = channel.connection
    if channel.mode == CONFIRM:
        channel.confirms.begin_parts()
    connection.start(_fan_out(channel, message, found, mandatory))
    connection.check_slice()


def _fan_out(
    channel: ServerChannel, message: Message, found: Destinations, mandatory: bool
) -> Iterator[int]:
    """Publish a message to its queues, and confirm or return it if the channel is still open."""
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
