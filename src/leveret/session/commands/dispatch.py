"""Dispatch of channel methods to their handlers, by class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from leveret.broker.scheduler.costs import DEFINING_METHOD
from leveret.errors import CommandInvalid
from leveret.session.channel.channel import ServerChannel
from leveret.session.commands.basic import handle_basic
from leveret.session.commands.channel import handle_access, handle_channel
from leveret.session.commands.confirm import handle_confirm
from leveret.session.commands.exchange import handle_exchange
from leveret.session.commands.queue import handle_queue
from leveret.session.commands.tx import handle_tx
from leveret.wire.method import Method
from leveret.wire.methods.ids import ACCESS, BASIC, CHANNEL, CONFIRM, EXCHANGE, QUEUE, TX

#: The handlers of all classes but basic.
_HANDLERS: Final[dict[int, Callable[[ServerChannel, Method], bool]]] = {
    QUEUE: handle_queue,
    EXCHANGE: handle_exchange,
    CONFIRM: handle_confirm,
    TX: handle_tx,
    CHANNEL: handle_channel,
    ACCESS: handle_access,
}


def handle(channel: ServerChannel, class_id: i64, method: Method) -> None:
    """Handle a method on an open channel; `class_id` is its class.

    Raises: CommandInvalid (503) for a method that clients do not send on an open channel.
    """
    if class_id == BASIC:
        done = handle_basic(channel, method)
    else:
        if class_id in (QUEUE, EXCHANGE, CHANNEL):
            channel.connection.scheduler.spent += DEFINING_METHOD
        handler = _HANDLERS.get(int(class_id))
        done = handler is not None and handler(channel, method)
    if not done:
        raise CommandInvalid(f"{method.NAME} is not a client's method on an open channel")
