"""The class exchange: declare, delete, bind, unbind."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.broker.node.access import Access
from leveret.broker.scheduler.task import Task
from leveret.broker.vhost.vhost import Vhost
from leveret.errors import AccessRefused
from leveret.names import Name
from leveret.session.channel.channel import Channel
from leveret.session.client_session import ClientWork
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
    access = channel.connection.access
    vhost = channel.vhost
    if isinstance(method, ExchangeDeclare):
        _declare(channel, method)
    elif isinstance(method, ExchangeDelete):
        name = method.exchange
        if name and not name.startswith("amq."):
            # The vhost refuses to delete these in words of its own.
            channel.connection.access.configure("exchange", name)
        before = channel.vhost.exchanges.unbinding
        channel.vhost.exchanges.delete(method.exchange, method.if_unused)
        reply_when_unbound(channel, before, None if method.no_wait else ExchangeDeleteOk())
    elif isinstance(method, ExchangeBind):
        check_binding(
            access, vhost, "exchange", method.destination, method.source, method.routing_key
        )
        source = channel.vhost.exchanges.by_name.get(method.source)
        if source is not None:
            check_binding_between(channel, source, method.destination, method.routing_key)
        channel.vhost.exchanges.bind(
            method.source,
            method.destination,
            False,
            method.routing_key,
            method.arguments,
            channel.connection,
        )
        bound = None if method.no_wait else ExchangeBindOk()
        reply_when_indexed(channel, method.source, bound)
    elif isinstance(method, ExchangeUnbind):
        check_binding(
            access, vhost, "exchange", method.destination, method.source, method.routing_key
        )
        channel.vhost.exchanges.unbind(
            method.source, method.destination, False, method.routing_key, method.arguments, None
        )
        unbound = None if method.no_wait else ExchangeUnbindOk()
        reply_when_indexed(channel, method.source, unbound)
    else:
        return False
    return True


@final
class _Unbound(ClientWork):
    """Waits until the bindings of what a client deleted are removed, and answers then."""

    def __init__(self, channel: Channel, unbinding: Task, answer: Method | None) -> None:
        super().__init__(channel.connection)
        self._channel = channel
        self._unbinding = unbinding
        self._answer = answer

    def advance(self, last: i64) -> bool:
        """Wait."""
        return not self._unbinding.over

    def reply(self) -> None:
        """Answer the client."""
        turn = self.session.turn
        turn.reply_group = max(turn.reply_group, self._unbinding.group)
        if self._answer is not None and self.session.awaits_reply() and not self._channel.closing:
            self._channel.connection.reply(self._channel.number, self._answer)


def reply_when_unbound(channel: Channel, before: Task | None, answer: Method | None) -> None:
    """Answer a delete when the bindings are removed, so that their ends are gone where they must.

    `before` is the last removal (`Exchanges.unbinding`) that began before the delete.
    """
    unbinding = channel.vhost.exchanges.unbinding
    if unbinding is not None and unbinding is not before and not unbinding.over:
        channel.connection.perform(_Unbound(channel, unbinding, answer))
    elif answer is not None:
        channel.connection.reply(channel.number, answer)


@final
class _Indexed(ClientWork):
    """Waits until what a client bound or unbound is all in the index, and answers then."""

    def __init__(self, channel: Channel, indexing: Task, answer: Method | None) -> None:
        super().__init__(channel.connection)
        self._channel = channel
        self._indexing = indexing
        self._answer = answer

    def advance(self, last: i64) -> bool:
        """Wait."""
        return not self._indexing.over

    def reply(self) -> None:
        """Answer the client."""
        if self._answer is not None and self.session.awaits_reply() and not self._channel.closing:
            self._channel.connection.reply(self._channel.number, self._answer)


def reply_when_indexed(channel: Channel, source: Name, answer: Method | None) -> None:
    """Answer a bind or an unbind when it has all its effect on the exchange `source`."""
    exchange = channel.vhost.exchanges.by_name.get(source)
    indexing = None if exchange is None else exchange.indexing
    if indexing is not None:
        channel.connection.perform(_Indexed(channel, indexing, answer))
    elif answer is not None:
        channel.connection.reply(channel.number, answer)


def _declare(channel: Channel, method: ExchangeDeclare) -> None:
    if method.passive:
        if not method.exchange:
            raise AccessRefused("operation not permitted on the default exchange")
        channel.connection.access.see("exchange", method.exchange)
        channel.vhost.exchanges.existing(method.exchange)
    else:
        connection = channel.connection
        check_declare_exchange(connection.access, channel.vhost, method.exchange, method.arguments)
        channel.vhost.exchanges.declare(
            method.exchange,
            method.type,
            method.durable,
            method.auto_delete,
            method.internal,
            method.arguments,
            connection.as_owner,
        )
    if not method.no_wait:
        channel.connection.reply(channel.number, ExchangeDeclareOk())


def check_declare_exchange(
    access: Access, vhost: Vhost, name: Name, arguments: dict[str, object]
) -> None:
    """Check that the exchange may be declared, and a new one may have its alternate (behaviour 46).

    Raises: AccessRefused (403).
    """
    if not name:
        return
    access.configure("exchange", name)
    alternate = arguments.get("alternate-exchange")
    if isinstance(alternate, str) and name not in vhost.exchanges.by_name:
        access.read("exchange", name)
        access.write("exchange", Name(alternate))
        check_way(access, vhost, Name(alternate), None)


def check_binding(
    access: Access, vhost: Vhost, kind: str, destination: Name, source: Name, routing_key: str
) -> None:
    """Check that a binding of `source` may be made or removed: write there, read here.

    Raises: AccessRefused (403).
    """
    if destination or kind == "queue":
        access.write(kind, destination)
    if not source:
        # The vhost refuses the default exchange, in words of its own.
        return
    access.read("exchange", source)
    exchange = vhost.exchanges.by_name.get(source)
    if exchange is not None and exchange.has_patterns:
        access.read_topic(source, routing_key)
