"""Requests of a blocking channel, and what a call waits for: a reply, or a confirm."""

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


def waited_for(
    make: Callable[P, Request[T]],
) -> Callable[Concatenate[Channel, P], T]:
    """Return the method that sends the request which `make` makes and returns its result."""

    @functools.wraps(make)
    def method(self: Channel, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.call(make(*args, **kwargs))

    method.__signature__ = requests.method_signature(make)  # type: ignore[attr-defined]  # what `help` shows
    return method
