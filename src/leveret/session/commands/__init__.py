"""What a client's methods do, a file per AMQP class.

Each handler takes the channel and the decoded method, calls the broker and replies.  Errors are
raised; the connection turns them into closes.
"""

from __future__ import annotations

from leveret.errors import CommandInvalid
from leveret.session.channel.channel import Channel
from leveret.session.commands.basic import handle_basic
from leveret.session.commands.channel import handle_access, handle_channel, open_channel
from leveret.session.commands.confirm import handle_confirm
from leveret.session.commands.exchange import handle_exchange
from leveret.session.commands.queue import handle_queue
from leveret.session.commands.tx import handle_tx
from leveret.wire.method import Method

__all__ = ["handle", "open_channel"]


def handle(channel: Channel, method: Method) -> None:
    """Do what `method` asks for on an open channel.

    Raises: CommandInvalid (503) for a method that a client does not send there.
    """
    class_id = method.CLASS_ID
    done = False
    if class_id == 60:
        done = handle_basic(channel, method)
    elif class_id == 50:
        done = handle_queue(channel, method)
    elif class_id == 40:
        done = handle_exchange(channel, method)
    elif class_id == 85:
        done = handle_confirm(channel, method)
    elif class_id == 90:
        done = handle_tx(channel, method)
    elif class_id == 20:
        done = handle_channel(channel, method)
    elif class_id == 30:
        done = handle_access(channel, method)
    if not done:
        raise CommandInvalid(f"{method.NAME} is not a client's method on an open channel")
