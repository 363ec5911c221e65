"""Requests of a blocking channel, and what a call waits for: a reply, or a confirm."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Concatenate, Generic, ParamSpec, TypeVar

from leveret.client.events import Token
from leveret.client.shell import requests
from leveret.client.shell.channel import ShellChannel

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.client.blocking.socket_connection import SocketConnection
    from leveret.client.events import Replied
    from leveret.client.shell.requests import Request
    from leveret.wire.method import Method

P = ParamSpec("P")
T = TypeVar("T")


class Waiting(Token):
    """Something that ends, well or with an error."""

    __slots__ = ("done", "error")

    def __init__(self) -> None:
        self.done = False
        self.error: Exception | None = None

    def replied(self, reply: Replied) -> None:
        """Take a reply."""
        self.done = True

    def end(self, error: Exception | None) -> None:
        """Take the outcome of a publish, or the error that ended the waiting."""
        self.done = True
        self.error = error

    def check(self) -> None:
        """Raise the error if there is one."""
        if self.error is not None:
            raise self.error


class Call(Waiting, Generic[T]):
    """A request; `take` reads its reply as it comes, before anything that follows it."""

    __slots__ = ("_value", "take")

    def __init__(self, take: Callable[[Replied], T]) -> None:
        super().__init__()
        self.take = take
        self._value: list[T] = []

    def replied(self, reply: Replied) -> None:
        """Take the reply."""
        self._value.append(self.take(reply))
        self.done = True

    def result(self) -> T:
        """Return what the reply means.  Raises: what ended the channel instead."""
        self.check()
        return self._value[0]


class CallingChannel(ShellChannel):
    """A channel whose calls wait for their reply; consumers know no more of it."""

    def __init__(self, connection: SocketConnection, opening: Token) -> None:
        super().__init__(connection.session, opening)
        self.connection = connection

    def call(self, request: Request[T]) -> T:
        """Send a request and return its result.

        Raises: the channel's error; ValueError when an argument cannot be written.
        """
        return self._call(request.method, Call(request.result))

    def _call(self, method: Method, call: Call[T]) -> T:
        """Send a method and wait for the end of its token."""
        with self.connection.one_thread:
            self.connection.wait_until_recovered()
            self.session.request(method, call)
            self.connection.run_until(lambda: call.done)
            return call.result()

    def turn(self, deadline: float | None) -> None:
        """Send and read once, waiting until `deadline` at most if nothing comes."""
        self.connection.turn(deadline)


def waited_for(
    make: Callable[P, Request[T]],
) -> Callable[Concatenate[CallingChannel, P], T]:
    """Return the method that sends the request which `make` makes and returns its result."""

    @functools.wraps(make)
    def method(self: CallingChannel, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.call(make(*args, **kwargs))

    method.__signature__ = requests.method_signature(make)  # type: ignore[attr-defined]  # what `help` shows
    return method
