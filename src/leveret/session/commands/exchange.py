"""The class exchange: declare, delete, bind, unbind."""

from __future__ import annotations

from leveret.errors import AccessRefused
from leveret.names import Name
from leveret.session.channel.channel import Channel
from leveret.session.publish.topic_access import check_binding_between, check_way
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
    """Do a method of class exchange; return whether it is one that a client sends."""
    if isinstance(method, ExchangeDeclare):
        _declare(channel, method)
    elif isinstance(method, ExchangeDelete):
        name = method.exchange
        if name and not name.startswith("amq."):
            # The vhost refuses to delete these in words of its own.
            channel.connection.access.configure("exchange", name)
        channel.vhost.exchanges.delete(method.exchange, method.if_unused)
        if not method.no_wait:
            channel.connection.reply(channel.number, ExchangeDeleteOk())
    elif isinstance(method, ExchangeBind):
        check_binding(channel, "exchange", method.destination, method.source, method.routing_key)
        source = channel.vhost.exchanges.by_name.get(method.source)
        if source is not None:
            check_binding_between(channel, source, method.destination, method.routing_key)
        channel.vhost.exchanges.bind(
            method.source, method.destination, False, method.routing_key, method.arguments, None
        )
        if not method.no_wait:
            channel.connection.reply(channel.number, ExchangeBindOk())
    elif isinstance(method, ExchangeUnbind):
        check_binding(channel, "exchange", method.destination, method.source, method.routing_key)
        channel.vhost.exchanges.unbind(
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
        channel.connection.access.see("exchange", method.exchange)
        channel.vhost.exchanges.existing(method.exchange)
    else:
        _check_declare(channel, method)
        channel.vhost.exchanges.declare(
            method.exchange,
            method.type,
            method.durable,
            method.auto_delete,
            method.internal,
            method.arguments,
        )
    if not method.no_wait:
        channel.connection.reply(channel.number, ExchangeDeclareOk())


def _check_declare(channel: Channel, method: ExchangeDeclare) -> None:
    """Check that the exchange may be declared, and a new one may have its alternate (behaviour 46).

    Raises: AccessRefused (403).
    """
    access = channel.connection.access
    name = method.exchange
    if not name:
        return
    access.configure("exchange", name)
    alternate = method.arguments.get("alternate-exchange")
    if isinstance(alternate, str) and name not in channel.vhost.exchanges.by_name:
        access.read("exchange", name)
        access.write("exchange", Name(alternate))
        check_way(channel, Name(alternate), None)


def check_binding(
    channel: Channel, kind: str, destination: Name, source: Name, routing_key: str
) -> None:
    """Check that a binding of `source` may be made or removed: write there, read here.

    Raises: AccessRefused (403).
    """
    access = channel.connection.access
    vhost = channel.vhost
    if destination or kind == "queue":
        access.write(kind, destination)
    if not source:
        # The vhost refuses the default exchange, in words of its own.
        return
    access.read("exchange", source)
    exchange = vhost.exchanges.by_name.get(source)
    if exchange is not None and exchange.has_patterns:
        access.read_topic(source, routing_key)
