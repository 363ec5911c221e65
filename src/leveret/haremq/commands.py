"""Executes HareMQ's requests other than publish and ack.

They require the same permissions and pass the same checks as the corresponding AMQP methods.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from leveret.broker.attributes.arguments import QUEUE_NUMBERS, Arguments
from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.exchanges.binding import Binding
from leveret.broker.exchanges.numbers import EXCHANGE_NUMBERS
from leveret.broker.scheduler.costs import BINDING_REMOVED
from leveret.broker.super_streams.super_stream import PARTITIONS
from leveret.broker.vhost.replies import is_reply_name
from leveret.broker.vhost.vhost import Vhost
from leveret.errors import AccessRefused, AmqpError, NotAllowed, NotFound, PreconditionFailed
from leveret.haremq.channel import HareChannel, HareConsumer
from leveret.haremq.frames import REQUESTS, UNBIND
from leveret.haremq.listing import answer_query
from leveret.haremq.requests import (
    Bind,
    Cancel,
    CloseChannel,
    Consume,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    HareRequest,
    OpenChannel,
    Query,
    Unbind,
)
from leveret.limits import FRAME_BYTES_MAX, SHORT_STRING_BYTES_MAX, TABLE_ENTRIES_MAX
from leveret.names import Name, clean_argument, cleaned
from leveret.session.commands.exchange import check_binding, check_declare_exchange
from leveret.session.commands.queue import check_declare_queue

if TYPE_CHECKING:
    from leveret.haremq.connection import HareConnection

#: The exchange types by their numbers in protobuf; 0 means that the field is absent.
EXCHANGE_TYPES: Final = {1: "direct", 2: "fanout", 3: "topic"}

#: The arguments with numeric values, and the arguments with boolean values.
_NUMBERS: Final = frozenset(
    (
        *QUEUE_NUMBERS,
        *EXCHANGE_NUMBERS,
        "x-queue-version",
        "x-max-in-memory-length",
        "x-max-in-memory-bytes",
        "x-initial-cluster-size",
        "x-quorum-initial-group-size",
    )
)
_BOOLEANS: Final[dict[str, bool]] = {"true": True, "false": False}
_BOOLEAN_NAMES: Final = frozenset(("x-single-active-consumer",))

#: Arguments that name an exchange.
_NAMES: Final = ("x-dead-letter-exchange", "alternate-exchange")

#: The longest text of a number: a sign and 18 digits, which always fit into 64 bits.
_NUMBER_CHARACTERS_MAX: Final = 19


@final
class HareCommands:
    """Executes the requests of one connection; raises AmqpError to refuse a request."""

    def __init__(self, connection: HareConnection) -> None:
        self._connection = connection

    def begin(self, request: HareRequest) -> bool:
        """Start a request that runs in slices and answers by itself; return False for any other."""
        if isinstance(request, Query):
            self._channel(request)
            self._connection.start(answer_query(self._connection, self._vhost(), request.identity))
        elif isinstance(request, Unbind):
            self._channel(request)
            self._unbind(request)
        else:
            return False
        return True

    def do(self, request: HareRequest) -> None:
        """Execute a request that neither `begin` nor `consume` handles."""
        if isinstance(request, OpenChannel):
            self._open(request)
            return
        channel = self._channel(request)
        if isinstance(request, CloseChannel):
            self._connection.forget_channel(channel)
            self._connection.scheduler.start(channel.end(True))
        elif isinstance(request, DeclareExchange):
            self._declare_exchange(request)
        elif isinstance(request, DeleteExchange):
            self._delete_exchange(request)
        elif isinstance(request, DeclareQueue):
            self._declare_queue(request)
        elif isinstance(request, DeleteQueue):
            self._delete_queue(request)
        elif isinstance(request, Bind):
            self._bind(request)
        else:
            assert isinstance(request, Cancel)
            _cancel(channel, request)

    def _channel(self, request: HareRequest) -> HareChannel:
        channel = self._connection.channels.get(request.cid)
        if channel is None:
            raise NotFound("there is no such channel")
        return channel

    def _vhost(self) -> Vhost:
        vhost = self._connection.vhost
        assert vhost is not None
        return vhost

    # -- channels ----------------------------------------------------------------------------------

    def _open(self, request: OpenChannel) -> None:
        """Open a channel; accept an open one, because a refusal would stop the client."""
        connection = self._connection
        if not request.cid:
            raise PreconditionFailed("a channel needs an id")
        if request.cid in connection.channels:
            return
        most = connection.settings.channels_max
        if len(connection.channels) >= most:
            raise NotAllowed(f"number of channels opened has reached channels_max ({most})")
        connection.broker.check_channel(connection)
        connection.add_channel(request.cid)

    # -- exchanges and queues ----------------------------------------------------------------------

    def _declare_exchange(self, request: DeclareExchange) -> None:
        name = _name(request.exchange_name)
        kind = EXCHANGE_TYPES.get(request.exchange_type)
        if kind is None:
            raise PreconditionFailed(f"there is no exchange type {request.exchange_type}")
        arguments = _arguments_of(request.args)
        vhost = self._vhost()
        check_declare_exchange(self._connection.access, vhost, name, arguments)
        vhost.exchanges.declare(
            name,
            kind,
            request.durable,
            request.auto_delete,
            False,
            arguments,
            self._connection.as_owner,
        )

    def _delete_exchange(self, request: DeleteExchange) -> None:
        name = _name(request.exchange_name)
        if name and not name.startswith("amq."):
            # The vhost refuses to delete any other exchange, with its own error.
            self._connection.access.configure("exchange", name)
        self._vhost().exchanges.delete(name, False)

    def _declare_queue(self, request: DeclareQueue) -> None:
        name = _name(request.queue_name)
        if not name:
            raise PreconditionFailed("a queue needs a name: no answer can return a generated name")
        if is_reply_name(name):
            raise AccessRefused(f"'{name}' is for requests and replies over AMQP")
        arguments = _arguments_of(request.args)
        connection = self._connection
        vhost = self._vhost()
        check_declare_queue(self._connection.access, vhost, name, True, arguments)
        attributes = QueueAttributes(
            # An exclusive queue is deleted with its connection, so it is never durable, as in AMQP.
            request.durable and not request.exclusive,
            request.exclusive,
            request.auto_delete,
            arguments,
        )
        queue = vhost.queues.declare(connection, name, attributes)
        if queue.exclusive:
            connection.keep_exclusive(queue)

    def _delete_queue(self, request: DeleteQueue) -> None:
        name = _name(request.queue_name)
        self._connection.access.configure("queue", name)
        self._vhost().queues.delete(self._connection, name, False, False)

    # -- bindings ----------------------------------------------------------------------------------

    def _bind(self, request: Bind) -> None:
        exchange = _name(request.exchange_name)
        queue = _name(request.queue_name)
        vhost = self._vhost()
        check_binding(self._connection.access, vhost, "queue", queue, exchange, request.binding_key)
        vhost.exchanges.bind(exchange, queue, True, request.binding_key, {}, self._connection)

    def _unbind(self, request: Unbind) -> None:
        """Start to remove all bindings of a queue to an exchange, since the request has no key."""
        exchange = _name(request.exchange_name)
        name = _name(request.queue_name)
        vhost = self._vhost()
        check_binding(self._connection.access, vhost, "queue", name, exchange, "")
        self._connection.start(self._unbind_pair(exchange, name, request.identity))

    def _unbind_pair(self, exchange: Name, queue: Name, identity: bytes) -> Iterator[int]:
        """Remove all bindings of a queue to an exchange; answer if the connection is still open.

        If the user lacks the permission to remove one of them, none is removed.  Bindings that
        other clients add meanwhile are not removed.
        """
        connection = self._connection
        access = connection.access
        vhost = self._vhost()
        core = connection.core
        found = vhost.queues.by_name.get(queue)
        left = [] if found is None else vhost.exchanges.copied_bindings_to(found)
        pair: list[Binding] = []
        while left:
            binding = left.pop()
            if binding.source.name == exchange and not binding.has_ended():
                try:
                    check_binding(access, vhost, "queue", queue, exchange, binding.binding_key)
                    if not pair:
                        vhost.queues.existing(queue, connection)
                except AmqpError as error:
                    if connection.awaits_reply():
                        connection.refuse(identity, REQUESTS[UNBIND], error.text)
                    return
                pair.append(binding)
            yield 1
        while pair:
            binding = pair.pop()
            # Skip bindings removed meanwhile, also with their queue or exchange.
            if binding.is_there() and not binding.has_ended():
                vhost.exchanges.remove(binding, True)
                vhost.exchanges.forget_destination(binding)
            yield BINDING_REMOVED
        if connection.awaits_reply():
            # The journal group of a binding that others have just removed may not be known yet.
            vhost.wait_for_removal()
            group = core.syncs.reply_group
            connection.answers.answer(identity, True, group if core.syncs.must_wait(group) else 0)

    # -- consuming ---------------------------------------------------------------------------------

    def consume(self, request: Consume) -> HareConsumer:
        """Subscribe the channel to a queue; return the consumer, which gets no messages yet."""
        channel = self._channel(request)
        name = _name(request.queue_name)
        if len(request.consumer_tag.encode()) > SHORT_STRING_BYTES_MAX:
            raise PreconditionFailed(
                f"a consumer tag can have at most {SHORT_STRING_BYTES_MAX} bytes"
            )
        if channel.consumer is not None:
            raise NotAllowed("a channel can have only one consumer")
        self._connection.access.read("queue", name)
        vhost = self._vhost()
        queue = vhost.queues.existing(name, self._connection)
        consumer = HareConsumer(channel, queue, request.consumer_tag, request.auto_ack)
        channel.consume(consumer, vhost.queue_label(name))
        return consumer


def _name(text: str) -> Name:
    """Return the name of an exchange or a queue.  Raises: PreconditionFailed (406)."""
    if len(text.encode()) > SHORT_STRING_BYTES_MAX:
        raise PreconditionFailed(f"a name can have at most {SHORT_STRING_BYTES_MAX} bytes")
    return cleaned(text)


def _arguments_of(args: dict[str, str]) -> Arguments:
    """Return the arguments of a declare, which a client can only send as text.

    A string is converted to a number or a boolean if the argument has this type.  The checks for
    AMQP clients refuse a string that could not be converted.

    Raises: PreconditionFailed (406) for more arguments than fit in an AMQP frame, for a name that
    is too long, and for a super stream, which this protocol cannot declare.
    """
    if len(args) > TABLE_ENTRIES_MAX:
        raise PreconditionFailed(f"a declare can have at most {TABLE_ENTRIES_MAX} arguments")
    if PARTITIONS in args:
        raise PreconditionFailed(f"'{PARTITIONS}' declares a super stream: use AMQP for that")
    size = 0
    arguments: Arguments = {}
    for name, text in args.items():
        name_size = len(name.encode())
        if name_size > SHORT_STRING_BYTES_MAX:
            raise PreconditionFailed(
                f"the name of an argument can have at most {SHORT_STRING_BYTES_MAX} bytes"
            )
        size += name_size + len(text.encode())
        arguments[name] = _value(name, text)
    if size > FRAME_BYTES_MAX:
        raise PreconditionFailed(f"arguments of a declare can have at most {FRAME_BYTES_MAX} bytes")
    for name in _NAMES:
        clean_argument(arguments, name)
    return arguments


def _value(name: str, text: str) -> object:
    """Convert the text of one argument, or return it unchanged."""
    if name in _NUMBERS and len(text) <= _NUMBER_CHARACTERS_MAX:
        digits = text.removeprefix("-")
        if digits.isascii() and digits.isdigit() and len(digits) < _NUMBER_CHARACTERS_MAX:
            return int(text)
    if name in _BOOLEAN_NAMES and text in _BOOLEANS:
        return _BOOLEANS[text]
    return text


def _cancel(channel: HareChannel, request: Cancel) -> None:
    """Cancel the consumer of a channel.  Raises: NotFound (404) if its tag or queue differs."""
    consumer = channel.consumer
    if consumer is None or consumer.tag != request.consumer_tag:
        raise NotFound("the channel has no such consumer")
    if consumer.queue.name != cleaned(request.queue_name):
        raise NotFound("the consumer belongs to another queue")
    channel.cancel()
