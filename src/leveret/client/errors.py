"""Client errors without a reply code.

An error that the broker reports with a reply code is raised as that code's class in
`leveret.errors`.
"""

from __future__ import annotations

from copyreg import __newobj__  # type: ignore[attr-defined]  # typeshed does not know it
from typing import TYPE_CHECKING, Any

from leveret.errors import NoRoute
from leveret.sizes import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leveret.client.message import ReturnedMessage
    from leveret.client.uri import Parameters


class ClientError(Exception):
    """The base class of all client errors that are not a broker's reply."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By default, unpickling would pass the text to constructors that take other parameters.
        return __newobj__, (type(self),), {"args": self.args, **self.__dict__}


class ConnectionLost(ClientError, ConnectionError):
    """The connection ended without a close: the socket, the peer or its heartbeats failed."""


class Unreachable(ClientError, ConnectionError):
    """None of several addresses answered."""

    def __init__(self, failures: Sequence[tuple[Parameters, Exception]]) -> None:
        shown = "; ".join(f"{where}: {told(error)}" for where, error in failures)
        super().__init__(f"none of {len(failures)} addresses answered: {shown}")
        #: The URI of each address, without the password, and its error.
        self.failures: tuple[tuple[str, Exception], ...] = tuple(
            (str(where), error) for where, error in failures
        )


class DeliveryLost(ConnectionLost):
    """A message from a lost connection was acknowledged.

    The broker has requeued the message and will redeliver it, so its work is done twice unless the
    application recognizes the repeat.
    """

    def __init__(self, delivery_tag: int) -> None:
        what = f"delivery tag {delivery_tag} is" if delivery_tag else "some of the deliveries are"
        super().__init__(
            f"{what} from a lost connection: nothing was acknowledged, and the broker "
            "redelivers everything that was not acknowledged before"
        )
        #: The delivery tag of the ack; 0 if it was for all deliveries.
        self.delivery_tag = delivery_tag


class TransactionLost(ConnectionLost):
    """A transaction was lost with its connection; a pending commit may have succeeded or not."""

    def __init__(self) -> None:
        super().__init__(
            "the connection was lost during a transaction: its publishes and acks are lost, "
            "unless its commit was already being sent; repeat the whole transaction"
        )


class Closed(ClientError):
    """This side closed the channel or connection before the call."""


class ConnectionInUse(ClientError, RuntimeError):
    """A second thread called a connection during a call, or the caller is outside its event loop.

    The refused call has had no effect.
    """


class PoolExhausted(ClientError, TimeoutError):
    """All connections of a pool to an address are lent, and none was returned in time."""


class NoFreeChannel(ClientError):
    """The connection has as many open channels as was agreed with the broker (`channel_max`)."""


class OutputFull(ClientError):
    """The output buffer is full because the broker does not read; nothing was published."""


class InputFull(ClientError):
    """The input buffer is full because the application does not take a consumer's messages.

    It ends the connection.  Limit the unacked messages by `Channel.qos`.
    """


class PublishFailed(ClientError):
    """The broker did not accept a published message."""


class Nacked(PublishFailed):
    """The broker nacked messages, for example because a queue is full."""

    def __init__(self, sequences: Sequence[int]) -> None:
        super().__init__(
            f"the broker nacked {counted(len(sequences), 'message')}: {_some(sequences)}"
        )
        #: The sequence numbers of the messages on their channel, as `publish_nowait` returns them.
        self.sequences: tuple[int, ...] = tuple(sequences)


class Returned(PublishFailed):
    """Mandatory messages were returned, because no queue took them."""

    def __init__(self, messages: Sequence[ReturnedMessage]) -> None:
        first = messages[0]
        count = "the message was returned"
        if len(messages) > 1:
            count = f"{len(messages)} messages were returned; this is the first"
        super().__init__(f"{_why_returned(first)}; {count}")
        #: The first of the messages.
        self.message: ReturnedMessage = first
        #: All of the messages.
        self.messages: tuple[ReturnedMessage, ...] = tuple(messages)


class ConsumerCancelled(ClientError):
    """The broker cancelled a consumer, for example because the queue was deleted."""

    def __init__(self, consumer_tag: str) -> None:
        super().__init__(f"the broker cancelled consumer {consumer_tag!r}")
        #: The tag of the consumer.
        self.consumer_tag = consumer_tag


def told(error: Exception) -> str:
    """Return an error's text, or its class name if the text is empty."""
    return str(error) or type(error).__name__


def _why_returned(message: ReturnedMessage) -> str:
    """Return why a message was returned: the broker's reply, or a sentence if it was unroutable."""
    if message.reply_code != NoRoute.code:
        return f"{message.reply_code} {message.reply_text}"
    if not message.exchange:
        return f"there is no queue {message.routing_key!r}"
    return f"no queue is bound to exchange {message.exchange!r} for the key {message.routing_key!r}"


def _some(sequences: Sequence[int]) -> str:
    """Format the first five sequence numbers."""
    shown = ", ".join(map(str, sequences[:5]))
    return f"{shown}, …" if len(sequences) > 5 else shown
