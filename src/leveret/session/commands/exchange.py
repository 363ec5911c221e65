"""The class exchange: declare, delete, bind, unbind."""

from __future__ import annotations

from leveret.errors import AccessRefused
from leveret.session.channel import Channel
from leveret.wire.method import Method
from leveret.wire.methods import (
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
)


def handle_exchange(channel: Channel, method: Method) -> bool:
    """Do a method of class exchange; tell whether it is one that a client sends."""
    if isinstance(method, ExchangeDeclare):
        _declare(channel, method)
    elif isinstance(method, ExchangeDelete):
        channel.vhost.delete_exchange(method.exchange, method.if_unused)
        if not method.no_wait:
            channel.connection.reply(channel.number, ExchangeDeleteOk())
    elif isinstance(method, ExchangeBind):
        channel.vhost.bind(
            method.source, method.destination, False, method.routing_key, method.arguments, None
        )
        if not method.no_wait:
            channel.connection.reply(channel.number, ExchangeBindOk())
    elif isinstance(method, ExchangeUnbind):
        channel.vhost.unbind(
            method.source, method.destination, False, method.routing_key, method.arguments, None
        )
        if not method.no_wait:
            channel.connection.reply(channel.number, ExchangeUnbindOk())
    else:
        return False
    return True


def _declare(channel: Channel, method: ExchangeDeclare) -> None:
    if method.passive:
        if not method.exchange:
            raise AccessRefused("operation not permitted on the default exchange")
        channel.vhost.exchange(method.exchange)
    else:
        channel.vhost.declare_exchange(
            method.exchange,
            method.type,
            method.durable,
            method.auto_delete,
            method.internal,
            method.arguments,
        )
    if not method.no_wait:
        channel.connection.reply(channel.number, ExchangeDeclareOk())
