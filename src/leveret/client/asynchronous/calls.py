"""Requests of an asyncio task, and what it waits for: a reply, or a confirm.

A task may be cancelled while it waits; the reply still comes, in its place, and what it brought is
given back to the broker: a message is requeued, a consumer cancelled.
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
    """The token of a request; `future` is what the task awaits."""

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
        """Take the reply: a consumer is known from here on, before its first message."""
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
        """Requeue a message that was got for a task that is gone, unless it counts as acked."""
        method = self.request.method
        if isinstance(method, BasicGet) and not method.no_ack:
            message.reject(requeue=True)

    def end(self, error: Exception | None) -> None:
        """Take the error that came instead of the reply."""
        if error is not None and not self.future.done():
            self.future.set_exception(error)


class Waiting(Token):
    """The token of a publish that is to be confirmed, or of a channel that is being opened."""

    __slots__ = ("future",)

    def __init__(self, future: asyncio.Future[None]) -> None:
        self.future = future

    def replied(self, reply: Replied) -> None:
        """Take channel.open-ok."""
        self.end(None)

    def end(self, error: Exception | None) -> None:
        """Take the end of the waiting, well or by an error."""
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)


def awaited(
    make: Callable[P, Request[T]],
) -> Callable[Concatenate[Channel, P], Coroutine[object, object, T]]:
    """Return the coroutine method that sends the request which `make` makes of its arguments."""

    @functools.wraps(make)
    async def method(self: Channel, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.call(make(*args, **kwargs))

    method.__signature__ = requests.method_signature(make)  # type: ignore[attr-defined]  # what `help` shows
    return method
