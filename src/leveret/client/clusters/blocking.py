"""`BlockingProducer` and `BlockingConsumer` for programs without asyncio.

Each runs its asyncio counterpart in a thread with its own event loop.  Heartbeats and acks are
therefore sent while the program is busy, and any thread may call the methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, Unpack

from leveret.client.clusters import consumer, producer
from leveret.client.clusters.threads import LoopThread
from leveret.client.options import MessageArguments, shows_options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leveret.client.clusters.handler import OnBatch, OnMessage
    from leveret.client.clusters.producer import Acknowledgement, Outgoing
    from leveret.client.shell.channel import Body
    from leveret.wire.properties import BasicProperties


class BlockingProducer:
    """A producer for topic `topic`, with the arguments of `leveret.Producer`.

    Any thread may call it.  Its connection is in a thread of its own.  `with` starts and closes it.
    """

    def __init__(self, topic: str, **settings: Any) -> None:
        self._producer = producer.Producer(topic, **settings)
        self._thread = LoopThread("leveret-producer")

    @property
    def topic(self) -> str:
        """The topic."""
        return self._producer.topic

    def start(self) -> Self:
        """Connect and declare the topic.  Raises: as `leveret.Producer.start`."""
        self._thread.call(self._producer.start)
        return self

    @shows_options(MessageArguments)
    def deliver(
        self,
        body: Body,
        key: str = "",
        *,
        properties: BasicProperties | None = None,
        **options: Unpack[MessageArguments],
    ) -> Acknowledgement:
        """Deliver a message; wait for its outcome and return it, as `leveret.Producer.deliver`.

        Raises: as `leveret.Producer.deliver`.
        """
        return self._thread.call(
            lambda: self._producer.deliver(body, key, properties=properties, **options)
        )

    def deliver_many(
        self, messages: Iterable[Body | Outgoing | tuple[Any, ...]]
    ) -> list[Acknowledgement]:
        """Deliver messages in order; return an acknowledgement for each, in the same order.

        A message is a body, or an `Outgoing` or a tuple of its fields.  Up to `window` of them are
        on their way at once, which is faster than one `deliver` after the other.

        Raises: as `deliver`; messages before the invalid one may have been delivered.
        """
        return self._thread.call(lambda: self._producer.deliver_many(messages))

    def close(self) -> None:
        """Wait for pending acknowledgements, as `leveret.Producer.close`, and end the thread."""
        if self._thread.is_open:
            self._thread.call(self._producer.close)
            self._thread.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *exc: object) -> None:
        self.close()


class BlockingConsumer:
    """A member of a cluster, with the arguments of `leveret.Consumer`.

    Any thread may call it.  Its connection is in a thread of its own.  A plain function as
    `on_message` is called in other threads, and a coroutine function in that of the connection.
    `with` subscribes and unsubscribes.
    """

    def __init__(
        self, topic: str, *, cluster: str, on_message: OnMessage | OnBatch, **settings: Any
    ) -> None:
        self._consumer = consumer.ClusterConsumer(
            topic, cluster=cluster, on_message=on_message, **settings
        )
        self._thread: LoopThread | None = None

    @property
    def member(self) -> int | None:
        """This member's number, or None if it has no number."""
        return self._consumer.member

    @property
    def is_subscribed(self) -> bool:
        """Whether this member is in its cluster or about to rejoin."""
        return self._consumer.is_subscribed

    def subscribe(self) -> Self:
        """Join the cluster.  Raises: as `leveret.Consumer.subscribe`."""
        if self._thread is None:
            self._thread = LoopThread("leveret-consumer")
        try:
            self._thread.call(self._consumer.subscribe)
        except BaseException:
            self._end_thread()
            raise
        return self

    def unsubscribe(self) -> None:
        """Leave the cluster, as `leveret.Consumer.unsubscribe`."""
        if self._thread is not None:
            self._thread.call(self._consumer.unsubscribe)
            self._end_thread()

    def wait(self) -> None:
        """Wait until this member has left.  Raises: as `leveret.Consumer.wait`."""
        if self._thread is not None:
            self._thread.call(self._consumer.wait)

    def run(self) -> None:
        """Subscribe and wait; unsubscribe when the thread is interrupted.  Raises: as both."""
        with self:
            self.wait()

    def delete_cluster(self, *, dead_letters: bool = False) -> int:
        """Leave and delete the cluster, as `leveret.Consumer.delete_cluster`."""
        if self._thread is None:
            self._thread = LoopThread("leveret-consumer")
        try:
            return self._thread.call(
                lambda: self._consumer.delete_cluster(dead_letters=dead_letters)
            )
        finally:
            self._end_thread()

    def _end_thread(self) -> None:
        """End the event loop and its thread."""
        if self._thread is not None:
            self._thread.close()
            self._thread = None

    def __enter__(self) -> Self:
        return self.subscribe()

    def __exit__(self, *exc: object) -> None:
        self.unsubscribe()
