"""What can go wrong on the client's side of a connection.

What a broker answers with a reply code is raised as that code's class of `leveret.errors`; the
classes here are for what has no reply code, or happened before one could be sent.
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
    """Any error of this library that is not a broker's reply."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By default, unpickling would pass the text to a constructor that takes something else.
        return __newobj__, (type(self),), {"args": self.args, **self.__dict__}


class ConnectionLost(ClientError, ConnectionError):
    """The connection ended without a close: the socket, the peer or its heartbeats."""


class Unreachable(ClientError, ConnectionError):
    """None of several addresses answered; `failures` are their URIs with what went wrong."""

    def __init__(self, failures: Sequence[tuple[Parameters, Exception]]) -> None:
        shown = "; ".join(f"{where}: {told(error)}" for where, error in failures)
        super().__init__(f"none of {len(failures)} addresses answered: {shown}")
        self.failures = tuple((str(where), error) for where, error in failures)


class DeliveryLost(ConnectionLost):
    """A message was acknowledged that came over a connection which is lost.

    The broker has taken the message back and delivers it again; what was done for it is done twice
    unless the application recognizes it.
    """

    def __init__(self, delivery_tag: int) -> None:
        what = (
            f"delivery tag {delivery_tag} came" if delivery_tag else "some of all deliveries came"
        )
        super().__init__(
            f"{what} over a connection that was lost: nothing was acknowledged, and the broker "
            "delivers what was not acknowledged before again"
        )
        self.delivery_tag = delivery_tag


class TransactionLost(ConnectionLost):
    """A transaction went with its connection; after a lost commit it may have been done or not."""

    def __init__(self) -> None:
        super().__init__(
            "the connection was lost during a transaction: what was published and acknowledged in "
            "it is gone, unless its commit was on the way; do all of it again"
        )


class Closed(ClientError):
    """The channel or connection was closed by this side before the call."""


class ConnectionInUse(ClientError, RuntimeError):
    """A blocking connection was used by a second thread while a call of the first one ran.

    The call has done nothing.
    """


class PoolExhausted(ClientError, TimeoutError):
    """A pool lends all its connections to an address, and none came back in time."""


class NoFreeChannel(ClientError):
    """As many channels are open as were negotiated."""


class OutputFull(ClientError):
    """More bytes wait to be sent than the client holds: the broker does not read."""


class InputFull(ClientError):
    """More messages wait for a consumer than the client holds, and nobody reads them."""


class PublishFailed(ClientError):
    """A published message was not taken by the broker."""


class Nacked(PublishFailed):
    """The broker refused messages by basic.nack; `sequences` are their numbers on the channel."""

    def __init__(self, sequences: Sequence[int]) -> None:
        super().__init__(
            f"the broker refused {counted(len(sequences), 'message')}: {_some(sequences)}"
        )
        self.sequences = tuple(sequences)


class Returned(PublishFailed):
    """Mandatory messages that no queue took; `message` is the first of `messages`."""

    def __init__(self, messages: Sequence[ReturnedMessage]) -> None:
        first = messages[0]
        count = "the message was returned"
        if len(messages) > 1:
            count = f"{len(messages)} messages were returned, of which this is the first"
        super().__init__(f"{_why_returned(first)}; {count}")
        self.message = first
        self.messages = tuple(messages)


class ConsumerCancelled(ClientError):
    """The broker cancelled a consumer, as it does when the queue is deleted."""

    def __init__(self, consumer_tag: str) -> None:
        super().__init__(f"the broker cancelled consumer {consumer_tag!r}")
        self.consumer_tag = consumer_tag


def told(error: Exception) -> str:
    """Return what an error says, at least its name: a `TimeoutError` often says nothing."""
    return str(error) or type(error).__name__


def _why_returned(message: ReturnedMessage) -> str:
    """Return why a message was returned: in words if no queue is bound for it."""
    if message.reply_code != NoRoute.code:
        return f"{message.reply_code} {message.reply_text}"
    if not message.exchange:
        return f"there is no queue {message.routing_key!r}"
    return f"no queue is bound to exchange {message.exchange!r} for the key {message.routing_key!r}"


def _some(sequences: Sequence[int]) -> str:
    """Return the first numbers as text."""
    shown = ", ".join(map(str, sequences[:5]))
    return f"{shown}, …" if len(sequences) > 5 else shown
