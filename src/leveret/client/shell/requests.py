"""The requests of a channel: each function returns a method and a converter of its reply.

Both shells build their calls from these functions (`awaited`, `waited_for`), so that arguments,
contract and result are written only once.  A shell's call returns the result or raises the error.
The session has already matched the reply with its request (`Method.REPLIES`), so the reply's class
is known here.

Invariant: a name that cannot be sent raises `TypeError` or `ValueError` with the argument's name.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, cast

from leveret.client.names import checked
from leveret.wire.methods.basic import (
    BasicCancel,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicQos,
    BasicRecover,
)
from leveret.wire.methods.confirm import ConfirmSelect
from leveret.wire.methods.connection import ConnectionUpdateSecret
from leveret.wire.methods.exchange import (
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
)
from leveret.wire.methods.queue import (
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
)
from leveret.wire.methods.tx import TxCommit, TxRollback, TxSelect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leveret.client.events import Replied
    from leveret.client.message import Message
    from leveret.wire.method import Method

T = TypeVar("T")


class DeclareOk(NamedTuple):
    """The result of `queue_declare`; it unpacks as `queue, message_count, consumer_count`."""

    #: The queue's name, which the broker generates if none is given.
    queue: str
    #: The number of ready messages.
    message_count: int
    #: The number of consumers.
    consumer_count: int


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """A method to send, and a function that converts its reply into the caller's result."""

    method: Method
    result: Callable[[Replied], T]


def method_signature(make: Callable[..., object]) -> inspect.Signature:
    """Return the signature of the shell method that sends the request built by `make`.

    `make` is one of the functions below, whose annotations are strings.
    """
    signature = inspect.signature(make)
    shell = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    result = str(signature.return_annotation).removeprefix("Request[").removesuffix("]")
    return signature.replace(
        parameters=[shell, *signature.parameters.values()], return_annotation=result
    )


def _nothing(_: Replied) -> None:
    """Return None, because the reply has no content."""


def _table(arguments: Mapping[str, object] | None) -> dict[str, object]:
    """Return arguments as an AMQP table."""
    return dict(arguments or {})


# -- queue -----------------------------------------------------------------------------------------


def queue_declare(
    queue: str = "",
    *,
    passive: bool = False,
    durable: bool | None = None,
    exclusive: bool = False,
    auto_delete: bool = False,
    arguments: Mapping[str, object] | None = None,
) -> Request[DeclareOk]:
    """Create a queue, or with `passive` only check that it exists; return its name and counts.

    For an empty name, the broker generates one.  A queue that exists must have the same attributes
    and arguments.  A durable queue survives a restart of the broker; unless `durable` is given, a
    queue is durable if it is not exclusive.  An exclusive queue serves this connection only, and is
    deleted when the connection ends.  An `auto_delete` queue is deleted when its last consumer
    ends.  `arguments` are those of the broker, such as `x-max-length`.

    Raises: NotFound (404) if a passive declare finds no queue; ResourceLocked (405) if the queue is
    exclusive to another connection; PreconditionFailed (406) if it exists with other attributes or
    arguments, or an argument is invalid; AccessRefused (403).
    """
    method = QueueDeclare(
        queue=checked("queue", queue),
        passive=passive,
        durable=not exclusive if durable is None else durable,
        exclusive=exclusive,
        auto_delete=auto_delete,
        arguments=_table(arguments),
    )
    return Request(method, _declared)


def _declared(reply: Replied) -> DeclareOk:
    """Read queue.declare-ok."""
    method = cast(QueueDeclareOk, reply.method)
    return DeclareOk(method.queue, method.message_count, method.consumer_count)


def queue_bind(
    queue: str,
    exchange: str,
    binding_key: str = "",
    arguments: Mapping[str, object] | None = None,
) -> Request[None]:
    """Bind a queue to an exchange, so that it gets the messages that match.

    What matches depends on the type of the exchange: for `direct`, routing keys equal to
    `binding_key`; for `topic`, keys that match it as a pattern; for `fanout`, all messages; for
    `headers`, messages whose headers match `arguments`.

    Raises: NotFound (404) if the queue or the exchange does not exist; ResourceLocked (405) if the
    queue is exclusive to another connection; AccessRefused (403).
    """
    method = QueueBind(
        queue=checked("queue", queue),
        exchange=checked("exchange", exchange),
        routing_key=checked("binding_key", binding_key),
        arguments=_table(arguments),
    )
    return Request(method, _nothing)


def queue_unbind(
    queue: str,
    exchange: str,
    binding_key: str = "",
    arguments: Mapping[str, object] | None = None,
) -> Request[None]:
    """Remove the binding with this key and these arguments; do nothing if there is none.

    Raises: ResourceLocked (405) if the queue is exclusive to another connection; AccessRefused
    (403).
    """
    method = QueueUnbind(
        queue=checked("queue", queue),
        exchange=checked("exchange", exchange),
        routing_key=checked("binding_key", binding_key),
        arguments=_table(arguments),
    )
    return Request(method, _nothing)


def queue_purge(queue: str) -> Request[int]:
    """Drop the ready messages of a queue; return their number.  Unacked messages are kept.

    Raises: NotFound (404); ResourceLocked (405); AccessRefused (403); NotImplementedFault (540) for
    a stream, which ends the connection.
    """
    return Request(QueuePurge(queue=checked("queue", queue)), _purged)


def _purged(reply: Replied) -> int:
    """Read queue.purge-ok."""
    return cast(QueuePurgeOk, reply.method).message_count


def queue_delete(queue: str, *, if_unused: bool = False, if_empty: bool = False) -> Request[int]:
    """Delete a queue with its messages; return the number of ready ones, 0 if there is no queue.

    With `if_unused` only a queue without consumers is deleted, and with `if_empty` only one without
    ready messages.

    Raises: PreconditionFailed (406) if such a condition does not hold; ResourceLocked (405);
    AccessRefused (403).
    """
    method = QueueDelete(queue=checked("queue", queue), if_unused=if_unused, if_empty=if_empty)
    return Request(method, _deleted)


def _deleted(reply: Replied) -> int:
    """Read queue.delete-ok."""
    return cast(QueueDeleteOk, reply.method).message_count


# -- exchange --------------------------------------------------------------------------------------


def exchange_declare(
    exchange: str,
    exchange_type: str = "direct",
    *,
    passive: bool = False,
    durable: bool = True,
    auto_delete: bool = False,
    internal: bool = False,
    arguments: Mapping[str, object] | None = None,
) -> Request[None]:
    """Create an exchange, or with `passive` only check that it exists.

    `exchange_type` is `direct`, `fanout`, `topic`, `headers` or another type that the broker has.
    An exchange that exists must have the same type and attributes.  An `auto_delete` exchange is
    deleted with its last binding.  To an internal exchange, only other exchanges pass messages.

    Raises: NotFound (404) if a passive declare finds no exchange; PreconditionFailed (406) if it
    exists with another type or attributes, or the type is unknown; AccessRefused (403).
    """
    method = ExchangeDeclare(
        exchange=checked("exchange", exchange),
        type=checked("exchange_type", exchange_type),
        passive=passive,
        durable=durable,
        auto_delete=auto_delete,
        internal=internal,
        arguments=_table(arguments),
    )
    return Request(method, _nothing)


def exchange_delete(exchange: str, *, if_unused: bool = False) -> Request[None]:
    """Delete an exchange with its bindings; do nothing if it does not exist.

    With `if_unused` only an exchange without bindings is deleted.

    Raises: PreconditionFailed (406) if that does not hold; AccessRefused (403).
    """
    return Request(
        ExchangeDelete(exchange=checked("exchange", exchange), if_unused=if_unused), _nothing
    )


def exchange_bind(
    destination: str,
    source: str,
    binding_key: str = "",
    arguments: Mapping[str, object] | None = None,
) -> Request[None]:
    """Bind exchange `destination` to exchange `source`, as `queue_bind` binds a queue.

    Raises: NotFound (404) if one of them does not exist; AccessRefused (403).
    """
    method = ExchangeBind(
        destination=checked("destination", destination),
        source=checked("source", source),
        routing_key=checked("binding_key", binding_key),
        arguments=_table(arguments),
    )
    return Request(method, _nothing)


def exchange_unbind(
    destination: str,
    source: str,
    binding_key: str = "",
    arguments: Mapping[str, object] | None = None,
) -> Request[None]:
    """Remove a binding of one exchange to another; do nothing if there is none.

    Raises: AccessRefused (403).
    """
    method = ExchangeUnbind(
        destination=checked("destination", destination),
        source=checked("source", source),
        routing_key=checked("binding_key", binding_key),
        arguments=_table(arguments),
    )
    return Request(method, _nothing)


# -- basic -----------------------------------------------------------------------------------------


def consume(
    queue: str,
    consumer_tag: str,
    no_ack: bool,
    exclusive: bool,
    arguments: Mapping[str, object] | None,
) -> Request[str]:
    """Start a consumer; the result is its tag."""
    method = BasicConsume(
        queue=checked("queue", queue),
        consumer_tag=checked("consumer_tag", consumer_tag),
        no_ack=no_ack,
        exclusive=exclusive,
        arguments=_table(arguments),
    )
    return Request(method, _consumer_tag)


def _consumer_tag(reply: Replied) -> str:
    """Read basic.consume-ok."""
    return cast(BasicConsumeOk, reply.method).consumer_tag


def cancel(consumer_tag: str) -> Request[None]:
    """Cancel a consumer."""
    return Request(BasicCancel(consumer_tag=checked("consumer_tag", consumer_tag)), _nothing)


def get(queue: str, *, no_ack: bool = False) -> Request[Message | None]:
    """Return one message, or None if the queue is empty.

    The message must be acked unless `no_ack` is True.  To read many messages, use `consume`.

    Raises: NotFound (404); ResourceLocked (405), also if the queue has a single active consumer;
    AccessRefused (403); NotImplementedFault (540) for a stream, which ends the connection.
    """
    return Request(BasicGet(queue=checked("queue", queue), no_ack=no_ack), _got)


def _got(reply: Replied) -> Message | None:
    """Read basic.get-ok or basic.get-empty."""
    return reply.message


def qos(prefetch_count: int = 0, *, prefetch_size: int = 0, global_: bool = False) -> Request[None]:
    """Limit the number of unacked messages to `prefetch_count`; 0 means no limit.

    The limit applies to each consumer of the channel that is started later, or with `global_` to
    all consumers of the channel together.  It does not apply to consumers with `no_ack`.  Leveret
    and RabbitMQ support no other `prefetch_size` than 0.

    Raises: NotImplementedFault (540) for another `prefetch_size`, which ends the connection.
    """
    method = BasicQos(prefetch_size=prefetch_size, prefetch_count=prefetch_count, global_=global_)
    return Request(method, _nothing)


def recover(*, requeue: bool = True) -> Request[None]:
    """Requeue the unacked messages of this channel, so that they are delivered again.

    Raises: NotImplementedFault (540) from Leveret and RabbitMQ if `requeue` is False, which ends
    the connection.
    """
    return Request(BasicRecover(requeue=requeue), _nothing)


# -- confirm, tx, connection -----------------------------------------------------------------------


def confirm_select() -> Request[None]:
    """Put the channel into confirm mode: the broker confirms or nacks each later publish.

    A confirmed message is routed, and if it is persistent, on disk in its durable queues.

    Raises: PreconditionFailed (406) if the channel is transactional.
    """
    return Request(ConfirmSelect(), _nothing)


def tx_select() -> Request[None]:
    """Make the channel transactional: later publishes and acks take effect with `tx_commit`.

    Raises: PreconditionFailed (406) in confirm mode.
    """
    return Request(TxSelect(), _nothing)


def tx_commit() -> Request[None]:
    """Execute all publishes and acks since the last commit or rollback.

    Raises: PreconditionFailed (406) if the channel is not transactional, or a full queue refused a
    message, in which case the rest is executed; TransactionLost if the connection was lost during
    the transaction.
    """
    return Request(TxCommit(), _nothing)


def tx_rollback() -> Request[None]:
    """Discard all publishes and acks since the last commit or rollback.

    Messages whose ack is discarded stay unacked.

    Raises: PreconditionFailed (406) if the channel is not transactional.
    """
    return Request(TxRollback(), _nothing)


def update_secret(new_secret: str, reason: str) -> Request[None]:
    """Send the broker a new token."""
    return Request(ConnectionUpdateSecret(new_secret=new_secret.encode(), reason=reason), _nothing)
