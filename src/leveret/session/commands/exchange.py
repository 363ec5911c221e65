"""The class exchange: declare, delete, bind, unbind."""

from __future__ import annotations

from collections.abc import Iterator

from leveret.broker.scheduler.task import Task, after
from leveret.broker.users.access import Access
from leveret.broker.users.permissions import READ
from leveret.broker.vhost.vhost import Vhost
from leveret.errors import AccessRefused
from leveret.names import Name
from leveret.session.channel.channel import ServerChannel
from leveret.session.publish.topic_permissions import check_binding_between, check_way
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


def handle_exchange(channel: ServerChannel, method: Method) -> bool:
    """Handle a method of class exchange; return False for one that clients do not send."""
    access = channel.connection.access
    vhost = channel.vhost
    if isinstance(method, ExchangeDeclare):
        _declare(channel, method)
    elif isinstance(method, ExchangeDelete):
        name = method.exchange
        if name and not name.startswith("amq."):
            # The vhost refuses to delete the others with its own error.
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


def reply_when_over(channel: ServerChannel, task: Task | None, answer: Method | None) -> None:
    """Answer a method when a task has ended and its records are synced."""
    if task is not None and not task.over:
        channel.connection.start(_reply_after(channel, task, answer))
    elif answer is not None:
        channel.connection.reply(channel.number, answer)


def _reply_after(channel: ServerChannel, task: Task, answer: Method | None) -> Iterator[int]:
    yield from after(task)
    core = channel.connection.core
    core.syncs.reply_group = max(core.syncs.reply_group, task.group)
    if answer is not None and channel.awaits_reply():
        channel.connection.reply(channel.number, answer)


def reply_when_unbound(channel: ServerChannel, before: Task | None, answer: Method | None) -> None:
    """Answer a delete once the bindings, and exchanges auto-deleted with them, are removed.

    `before` is the last removal (`Exchanges.unbinding`) that began before the delete.
    """
    unbinding = channel.vhost.exchanges.unbinding
    reply_when_over(channel, None if unbinding is before else unbinding, answer)


def reply_when_indexed(channel: ServerChannel, source: Name, answer: Method | None) -> None:
    """Answer a bind or an unbind when it has taken full effect on the exchange `source`."""
    exchange = channel.vhost.exchanges.by_name.get(source)
    reply_when_over(channel, None if exchange is None else exchange.indexing, answer)


def _declare(channel: ServerChannel, method: ExchangeDeclare) -> None:
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
    """Check the permissions for declaring an exchange, and for the alternate of a new one.

    Raises: AccessRefused (403), as for a dead-letter exchange (behaviour 46: declare arguments).
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
    """Check the permissions for a binding: write on `destination`, read on `source`.

    Raises: AccessRefused (403).
    """
    if destination or kind == "queue":
        access.write(kind, destination)
    if not source:
        # The vhost refuses the default exchange with its own error.
        return
    access.read("exchange", source)
    exchange = vhost.exchanges.by_name.get(source)
    if exchange is not None and exchange.has_patterns:
        access.check_topic(READ, source, routing_key)
