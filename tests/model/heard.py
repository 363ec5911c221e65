"""What the peers of a step heard, each method of which the reference broker must claim once.

The reference says what must come; it cannot say in which order two queues hand out to one channel,
or to which of several ready consumers a message goes.  So it claims: it looks for the method that
it expects among those that came.  What nobody claims, and what is missing, is a difference.

Invariant: replies of a channel are claimed in the order in which they came, and so are the
deliveries to one consumer; confirms are judged by the reference when the step ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from support.wire.raw import Method
from support.wire.raw_codec import decode_properties

#: A channel: the number of its connection, and its own.
At = tuple[int, int]

DELIVERY = "basic.deliver"
CONFIRMS = ("basic.ack", "basic.nack")
NOTICE = "basic.cancel"


class Difference(AssertionError):
    """The broker and the reference differ."""


@dataclass
class Event:
    """A method that came; `place` counts those of its channel."""

    method: Method
    place: int
    claimed: bool = False

    def claim(self) -> Method:
        """Take it."""
        self.claimed = True
        return self.method


class Heard:
    """The methods of one step, by channel."""

    def __init__(self) -> None:
        self.streams: dict[At, list[Event]] = {}
        self._places = 0

    def add(self, connection: int, methods: Iterable[Method]) -> None:
        """Note what a connection heard."""
        for method in methods:
            self._places += 1
            stream = self.streams.setdefault((connection, method.channel), [])
            stream.append(Event(method, self._places))

    def open_ones(self, at: At) -> list[Event]:
        """What came on a channel and is not claimed."""
        return [event for event in self.streams.get(at, []) if not event.claimed]

    def delivery(self, at: At, consumer_tag: str) -> Event | None:
        """The next delivery to a consumer."""
        for event in self.open_ones(at):
            method = event.method
            if method.name == DELIVERY and method.consumer_tag == consumer_tag:
                return event
        return None

    def reply(self, at: At) -> Event | None:
        """The next method that is neither delivery nor confirm nor notice."""
        for event in self.open_ones(at):
            if event.method.name not in (DELIVERY, NOTICE, *CONFIRMS):
                return event
        return None

    def notice(self, at: At, consumer_tag: str) -> Event | None:
        """The broker's word that a consumer ended."""
        for event in self.open_ones(at):
            if event.method.name == NOTICE and event.method.consumer_tag == consumer_tag:
                return event
        return None

    def confirms(self, at: At) -> list[Event]:
        """The confirms of a channel."""
        return [event for event in self.open_ones(at) if event.method.name in CONFIRMS]

    def left(self) -> list[str]:
        """What nobody claimed, in words."""
        return [
            f"{at}: {in_words(event.method)}"
            for at, stream in self.streams.items()
            for event in stream
            if not event.claimed
        ]


def plain(properties: dict[str, Any]) -> dict[str, Any]:
    """Properties to be compared: an empty table of headers is none."""
    return {name: value for name, value in properties.items() if name != "headers" or value}


def decoded(method: Method) -> dict[str, Any]:
    """The properties of a method with content."""
    return plain(decode_properties(method.properties))


def in_words(method: Method) -> str:
    """A method to be read: no body at length."""
    text = f"{method.name} {method.fields} {method.body[:12]!r}"
    return f"{text} {decoded(method)}" if method.properties else text
