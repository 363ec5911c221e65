"""What a connection does when its user's permissions change while it is open (behaviour 74)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.broker.values.permission import READ
from leveret.broker.vhost.replies import is_reply_name
from leveret.session.states import OPEN

if TYPE_CHECKING:
    from leveret.session.connection.connection import Connection


def changed(connection: Connection) -> None:
    """Ask anew what the user may do, and end consumers of what he may not read any more.

    What they hold unacked stays unacked, as after a cancel by the client.  What a transaction holds
    is judged once more when it is committed.
    """
    access = connection.access
    vhost = connection.vhost
    if vhost is None or connection.state != OPEN:
        return
    access.forget()
    for channel in connection.channels.values():
        channel.tx_judged = not channel.tx_publishes
        for consumer in list(channel.consumers.values()):
            for name in consumer.queue.names():
                if not is_reply_name(name) and not access.allows(READ, name):
                    channel.cancelled(consumer)
                    vhost.unsubscribe(consumer)
                    break
