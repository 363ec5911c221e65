"""A queue on a real broker, for tests that read it with Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pytest

from leveret.client import BasicProperties
from leveret.client.blocking import connect
from support.brokers.brokers import Broker
from support.http.http_api import Api
from support.spark.live_stream import WINDOW, Sent


@dataclass(frozen=True)
class LiveQueue:
    """A durable queue and its broker."""

    uri: str
    name: str

    @property
    def options(self) -> dict[str, str]:
        """The data source options for a batch read."""
        return {"uri": self.uri, "queue": self.name}

    def declare(self, arguments: Mapping[str, object] | None = None) -> None:
        """Declare the queue."""
        with connect(self.uri) as connection, connection.channel() as channel:
            channel.queue_declare(self.name, durable=True, arguments=dict(arguments or {}))

    def delete(self) -> int:
        """Delete the queue; return the number of deleted messages."""
        with connect(self.uri) as connection, connection.channel() as channel:
            return channel.queue_delete(self.name)

    def ready(self) -> int:
        """Return the number of ready messages."""
        with connect(self.uri) as connection, connection.channel() as channel:
            return channel.queue_declare(self.name, passive=True).message_count

    def publish(self, messages: Iterable[Sent]) -> None:
        """Publish persistent messages and wait until all are confirmed."""
        with connect(self.uri) as connection, connection.channel() as channel:
            channel.confirm_select()
            for count, sent in enumerate(messages, 1):
                properties = sent.properties or BasicProperties(delivery_mode=2)
                channel.publish_nowait(sent.body, "", self.name, properties)
                if count % WINDOW == 0:
                    channel.wait_for_confirms()
            channel.wait_for_confirms()

    def publish_numbers(self, start: int, end: int) -> list[bytes]:
        """Publish numbers as text and return their bodies."""
        bodies = [str(number).encode() for number in range(start, end)]
        self.publish(Sent(body) for body in bodies)
        return bodies


def unacked(broker: Broker, queue: LiveQueue) -> int:
    """Return the number of unacked messages."""
    if broker.process is None:
        pytest.skip("asks our own broker over its socket")
    api = Api(broker.process.data_dir / "management.sock")
    status, answer, _ = api.answer(f"/api/queues/%2F/{queue.name}")
    api.close()
    assert status == 200
    assert isinstance(answer, dict)
    found = answer["messages_unacknowledged"]
    assert isinstance(found, int)
    return found
