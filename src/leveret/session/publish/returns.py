"""Returned messages (basic.return): mandatory and immediate publishes that no queue accepted."""

from __future__ import annotations

from typing import Final

from leveret.message import Message
from leveret.session.channel.channel import CONFIRM, ServerChannel
from leveret.wire.content.output import content_cost
from leveret.wire.methods import BasicReturn

#: The reply code of an unroutable mandatory message (behaviour 24: returned before the ack).
NO_ROUTE: Final = 312

#: The reply code of a mandatory message that is a duplicate for all its queues, by publisher
#: deduplication.  It is sent to clients with the capability `leveret.already_taken`; the message is
#: confirmed all the same.
ALREADY_TAKEN: Final = 208


def return_message(
    channel: ServerChannel, message: Message, code: int = NO_ROUTE, text: str = "NO_ROUTE"
) -> None:
    """Write a basic.return with its content, before the publish is confirmed."""
    connection = channel.connection
    if code == NO_ROUTE:
        connection.core.counts.unroutable_returned += 1
    if channel.mode == CONFIRM:
        channel.confirms.return_next()
    address = message.address
    connection.send(
        channel.number,
        BasicReturn(
            code, text, address.exchange.decode("utf-8"), address.routing_key.decode("utf-8")
        ),
    )
    connection.scheduler.spent += content_cost(message.properties, message.body)
    connection.output.write_content(channel.number, message.properties, message.body)
