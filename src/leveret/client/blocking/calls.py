"""Tokens for the requests and publishes of a blocking channel."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Concatenate, Generic, ParamSpec, TypeVar

from leveret.client.events import Token
from leveret.client.shell import requests

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.client.blocking.channel import Channel
    from leveret.client.events import Replied
    from leveret.client.shell.requests import Request

P = ParamSpec("P")
T = TypeVar("T")


class Waiting(Token):
    """The token of a publish that awaits its confirm; also the base class of `Call`."""

    __slots__ = ("done", "error")

    def __init__(self) -> None:
        self.done = False
        self.error: Exception | None = None

    def replied(self, reply: Replied) -> None:
        """Handle a reply."""
        self.done = True

    def end(self, error: Exception | None) -> None:
        """End the wait, with an error or None."""
        self.done = True
        self.error = error

    def check(self) -> None:
        """Raise the error, if any."""
        if self.error is not None:
            raise self.error


class Call(Waiting, Generic[T]):
    """The token of a request; `take` reads the reply on arrival, before any later frame."""

    __slots__ = ("_value", "take")

    def __init__(self, take: Callable[[Replied], T]) -> None:
        super().__init__()
        self.take = take
        self._value: list[T] = []

    def replied(self, reply: Replied) -> None:
        """Handle the reply."""
        self._value.append(self.take(reply))
        self.done = True

    def result(self) -> T:
        """Return the result of the reply.  Raises: the error that ended the request."""
        self.check()
        return self._value[0]


def waited_for(
    make: Callable[P, Request[T]],
) -> Callable[Concatenate[Channel, P], T]:
    """Return a method that sends the request built by `make` and returns its result."""

    @functools.wraps(make)
    def method(self: Channel, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.call(make(*args, **kwargs))

    method.__signature__ = requests.method_signature(make)  # type: ignore[attr-defined]  # what `help` shows
    return method
