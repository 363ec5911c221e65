"""The clients of the demo: a publisher with confirms, and one worker for each queue.

Each runs in a thread with its own connection, and reconnects when it loses the broker.  The
publisher sends unconfirmed messages again, so a queue may contain a message twice.  Message ids
show repeats, and every repeat must have been sent again or be marked as redelivered.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Final

from leveret.cli.demo.lines import DemoMessage
from leveret.cli.demo.node import SECONDS_MAX, DemoBroker
from leveret.cli.demo.topology import EXCHANGE, WorkQueue
from leveret.client.blocking import Channel, connect
from leveret.client.errors import ClientError
from leveret.client.message import Message
from leveret.errors import AmqpError
from leveret.wire.properties import BasicProperties

#: The number of publishes before the publisher waits for their confirms.
BATCH: Final = 500

#: The maximum number of unacked deliveries of a worker.
PREFETCH: Final = 500

#: A client gives up after this many lost connections; the planned crash is one of them.
_LOSSES_MAX: Final = 5

#: How long a worker waits for the next message before it checks whether it has all of them.
_IDLE_SECONDS: Final = 0.2

#: The exceptions of a lost connection.
_LOST: Final = (ClientError, AmqpError, OSError)


class Client(threading.Thread):
    """A client thread, which opens a new connection when the current one is lost."""

    def __init__(self, name: str, node: DemoBroker) -> None:
        super().__init__(name=name, daemon=True)
        self._node = node
        self._given_up = threading.Event()
        self.error: Exception | None = None

    @abstractmethod
    def work(self, channel: Channel) -> None:
        """Do the remaining work.  Raises: the exceptions of a lost connection."""

    def lost(self) -> None:
        """React to a lost connection; the outcome of the work in progress is unknown."""

    def give_up(self) -> None:
        """Make the client end soon."""
        self._given_up.set()

    def run(self) -> None:
        """Work until everything is done; on failure, set `error`."""
        losses = 0
        while not self._given_up.is_set():
            if not self._node.running.wait(SECONDS_MAX):
                self.error = TimeoutError("the broker did not come back")
                return
            try:
                with connect(
                    self._node.uri, connection_name=self.name, recover=False
                ) as connection:
                    self.work(connection.channel())
            except _LOST as error:
                self.lost()
                losses += 1
                if losses == _LOSSES_MAX:
                    self.error = error
                    return
                # `running` may still be set while the killed broker's port refuses connections.
                self._given_up.wait(_IDLE_SECONDS)
            else:
                return


class DemoPublisher(Client):
    """Publishes all lines in order, and sends unconfirmed ones again after a lost connection."""

    def __init__(self, node: DemoBroker, lines: tuple[DemoMessage, ...]) -> None:
        super().__init__("demo publisher", node)
        self.lines = lines
        self.confirmed = 0
        #: The number of lines passed to a connection at least once.
        self.sent = 0
        #: Lines that were sent more than once.
        self.sent_again: set[str] = set()
        self.finished = threading.Event()
        #: Set after the crash, for which the last batch waits, however few lines there are.
        self.crashed = threading.Event()

    def work(self, channel: Channel) -> None:
        """Publish in batches; a batch counts once all of its messages are confirmed."""
        channel.confirm_select()
        while self.confirmed < len(self.lines) and not self._given_up.is_set():
            for place, line in enumerate(self._batch(), self.confirmed + 1):
                properties = BasicProperties(
                    content_type="text/plain", delivery_mode=2, message_id=line.message_id
                )
                channel.publish_nowait(
                    line.body, EXCHANGE, line.routing_key, properties, mandatory=True
                )
                self.sent = max(self.sent, place)
            if self.confirmed + BATCH >= len(self.lines):
                self.crashed.wait(SECONDS_MAX)
            channel.wait_for_confirms()
            self.confirmed += len(self._batch())
        self.finished.set()

    def _batch(self) -> tuple[DemoMessage, ...]:
        return self.lines[self.confirmed : self.confirmed + BATCH]

    def lost(self) -> None:
        """Record that the current batch will be sent again."""
        self.sent_again |= {line.message_id for line in self._batch()}


class Worker(Client):
    """Receives the messages of one queue, checks each, and acks it."""

    def __init__(
        self,
        node: DemoBroker,
        queue: WorkQueue,
        expected: dict[str, DemoMessage],
        finished: threading.Event,
    ) -> None:
        super().__init__(f"demo worker {queue.name}", node)
        self.queue = queue
        self.expected = expected
        self._finished = finished
        #: How often each message was received.
        self.seen: dict[str, int] = {}
        self.deliveries = 0
        #: Messages that differ from the published ones, or that were not expected.
        self.wrong = 0
        #: Repeats that were neither marked as redelivered nor sent again by the publisher.
        self.repeats: list[str] = []

    @property
    def complete(self) -> bool:
        """Whether every message was received."""
        return len(self.seen) >= len(self.expected)

    def work(self, channel: Channel) -> None:
        """Receive messages until all were published and received."""
        channel.qos(PREFETCH)
        consumer = channel.consume(self.queue.name, inactivity_timeout=_IDLE_SECONDS)
        with consumer:
            while not self._given_up.is_set():
                for message in consumer:
                    self._take(message)
                    message.ack()
                if self._finished.is_set() and self.complete:
                    return

    def _take(self, message: Message) -> None:
        """Count a message and compare it with the published line."""
        self.deliveries += 1
        message_id = message.properties.message_id or ""
        line = self.expected.get(message_id)
        if (
            line is None
            or line.body != message.body
            or line.routing_key != message.routing_key
            or message.exchange != EXCHANGE
        ):
            self.wrong += 1
            return
        count = self.seen.get(message_id, 0)
        self.seen[message_id] = count + 1
        if count and not message.redelivered:
            self.repeats.append(message_id)


def wait_for(clients: list[Client], seconds: float, each: Callable[[], None]) -> None:
    """Call `each` repeatedly until all clients have ended; stop them after `seconds`."""
    deadline = time.monotonic() + seconds
    while any(client.is_alive() for client in clients) and time.monotonic() < deadline:
        each()
        for client in clients:
            client.join(0.02)
    for client in clients:
        client.give_up()
        client.join(SECONDS_MAX)
    each()
