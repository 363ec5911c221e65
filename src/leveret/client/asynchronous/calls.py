"""Tokens for the requests and publishes of an asyncio task.

A task may be cancelled while it waits.  Its reply still arrives in order, and the shell undoes
the effect at the broker: it requeues the message or cancels the consumer.
"""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Concatenate, Generic, ParamSpec, TypeVar

from leveret.client.events import Token
from leveret.client.shell import requests
from leveret.wire.methods.basic import BasicGet

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from leveret.client.asynchronous.channel import Channel
    from leveret.client.asynchronous.consumer import Consumer
    from leveret.client.events import Replied
    from leveret.client.message import Message
    from leveret.client.shell.requests import Request

P = ParamSpec("P")
T = TypeVar("T")


class Call(Token, Generic[T]):
    """The token of a request; the task awaits `future`."""

    __slots__ = ("consumer", "future", "request")

    def __init__(
        self,
        request: Request[T],
        future: asyncio.Future[T],
        consumer: Consumer | None = None,
    ) -> None:
        self.request = request
        self.future = future
        self.consumer = consumer

    def replied(self, reply: Replied) -> None:
        """Handle the reply; a consumer is registered here, before its first message."""
        result = self.request.result(reply)
        if self.consumer is not None:
            self.consumer.started(str(result))
        if not self.future.done():
            self.future.set_result(result)
        elif self.consumer is not None:
            self.consumer.abandon()
        elif reply.message is not None:
            self._give_back(reply.message)

    def _give_back(self, message: Message) -> None:
        """Requeue a message whose task was cancelled, unless it was got with `no_ack`."""
        method = self.request.method
        if isinstance(method, BasicGet) and not method.no_ack:
            message.reject(requeue=True)

    def end(self, error: Exception | None) -> None:
        """Fail the future with the error that ended the request."""
        if error is not None and not self.future.done():
            self.future.set_exception(error)


class Waiting(Token):
    """The token of a publish that awaits its confirm, or of a channel that is being opened."""

    __slots__ = ("future",)

    def __init__(self, future: asyncio.Future[None]) -> None:
        self.future = future

    def replied(self, reply: Replied) -> None:
        """Handle channel.open-ok."""
        self.end(None)

    def end(self, error: Exception | None) -> None:
        """Resolve the future, or fail it with `error`."""
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)


def awaited(
    make: Callable[P, Request[T]],
) -> Callable[Concatenate[Channel, P], Coroutine[object, object, T]]:
    """Return a coroutine method that sends the request built by `make` from its arguments."""

    @functools.wraps(make)
    async def method(self: Channel, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.call(make(*args, **kwargs))

    method.__signature__ = requests.method_signature(make)  # type: ignore[attr-defined]  # what `help` shows
    return method
