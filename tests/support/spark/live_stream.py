"""A stream on a real broker, for tests that read it with Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from leveret.client import BasicProperties
from leveret.client.blocking import Channel, connect

#: The maximum number of unconfirmed publishes.
WINDOW = 500


@dataclass(frozen=True)
class Sent:
    """A message to publish."""

    body: bytes = b""
    routing_key: str = ""
    properties: BasicProperties | None = None


@dataclass(frozen=True)
class LiveStream:
    """A stream and its broker."""

    uri: str
    name: str
    exchange: str

    @property
    def options(self) -> dict[str, str]:
        """The options that the data source needs."""
        return {"uri": self.uri, "stream": self.name}

    def at(self, offset: int) -> str:
        """Return an offset in the format of options."""
        return f'{{"{self.name}": {offset}}}'

    @contextmanager
    def channel(self) -> Iterator[Channel]:
        """Open a channel in confirm mode."""
        with connect(self.uri) as connection, connection.channel() as channel:
            channel.confirm_select()
            yield channel

    def publish(self, messages: Iterable[Sent]) -> None:
        """Publish to the exchange and wait until all are confirmed."""
        with self.channel() as channel:
            for count, sent in enumerate(messages, 1):
                channel.publish_nowait(sent.body, self.exchange, sent.routing_key, sent.properties)
                if count % WINDOW == 0:
                    channel.wait_for_confirms()
            channel.wait_for_confirms()

    def publish_bodies(self, *bodies: bytes) -> None:
        """Publish messages that have only bodies."""
        self.publish(Sent(body) for body in bodies)

    def publish_numbers(self, start: int, end: int) -> list[bytes]:
        """Publish numbers as text and return their bodies."""
        bodies = [str(number).encode() for number in range(start, end)]
        self.publish_bodies(*bodies)
        return bodies

    def declare(self, arguments: Mapping[str, object] | None = None) -> None:
        """Declare the stream, its exchange and a binding for every key."""
        with self.channel() as channel:
            channel.exchange_declare(self.exchange, "topic", durable=True)
            channel.queue_declare(
                self.name, durable=True, arguments={"x-queue-type": "stream", **(arguments or {})}
            )
            channel.queue_bind(self.name, self.exchange, "#")

    def delete(self) -> None:
        """Delete the stream and its exchange."""
        with self.channel() as channel:
            channel.queue_delete(self.name)
            channel.exchange_delete(self.exchange)
