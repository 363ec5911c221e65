"""One consumer that reads all partitions of a super stream.

To its channel it is one consumer, with one tag.  To each partition it is a consumer like others, a
`PartitionConsumer`, with its own prefetch.  With a name (`x-stream-consumer`) it competes in each
partition with the other consumers of that name, so that each of n consumers is active in about one
of n partitions.

Invariant: the parts start and end together; all end when a partition is deleted or the channel
cancels the consumer.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.attributes.arguments import Arguments
from leveret.broker.attributes.settings import QueueSettings
from leveret.broker.consumers.consumer import QueueConsumer, Source
from leveret.broker.core import Core
from leveret.broker.scheduler.accounts import CONSUMER_BYTES
from leveret.broker.scheduler.costs import VISITED_PER_COST
from leveret.broker.stream.group import READER_NAME, StreamGroup, group_of
from leveret.broker.stream.stream import STREAM_ID, Stream
from leveret.errors import AmqpError
from leveret.names import Name

#: The cost of adding a part, with its reader in the partition, and of ending it.
_PART_ADDED: Final = 8
_PART_ENDED: Final = 4


#: Arguments that each partition checks itself.
_OF_EACH: Final = ("x-stream-offset", STREAM_ID, READER_NAME)


@final
class PartitionConsumer(QueueConsumer):
    """The consumer of one partition."""

    def __init__(
        self, reading: SuperReading, whole: QueueConsumer, queue: Source, arguments: Arguments
    ) -> None:
        super().__init__(
            whole.channel,
            queue,
            whole.tag,
            whole.no_ack,
            whole.exclusive,
            whole.prefetch_count,
            arguments,
        )
        self.priority = whole.priority
        self.prefix = whole.prefix
        self.reading: Final = reading

    def cancel(self) -> None:
        """Cancel the whole consumer, because the partition was deleted."""
        self.reading.partition_gone()


@final
class SuperReading(Source):
    """The source of one consumer that reads all partitions of a super stream."""

    def __init__(self, core: Core, name: str, streams: list[Stream]) -> None:
        super().__init__(core, name, QueueSettings({}))
        self.streams: Final = streams
        self.parts: list[PartitionConsumer] = []

    def names(self) -> list[Name]:
        """Return the names that need the permission to read."""
        return [self.name, *[stream.name for stream in self.streams]]

    def subscribe(self, consumer: QueueConsumer, where: str) -> None:
        """Add the consumer to every partition, or to none.

        Raises: as the streams do.
        """
        arguments = consumer.arguments
        self.core.scheduler.spent += _PART_ADDED * len(self.streams)
        try:
            for stream in self.streams:
                queue: Source = stream
                if READER_NAME in arguments:
                    queue = group_of(stream, arguments[READER_NAME], where)
                # The first partition checks all arguments; its filter serves all partitions.
                own: Arguments = {name: arguments[name] for name in _OF_EACH if name in arguments}
                part = PartitionConsumer(self, consumer, queue, own if self.parts else arguments)
                queue.subscribe(part, where)
                self.parts.append(part)
                _share_filter(self.parts[0], part)
                part.arguments = arguments
        except AmqpError:
            self._end()
            raise
        # The filter and the arguments are booked for the whole consumer.
        consumer.bytes += CONSUMER_BYTES * len(self.parts)
        self.consumers.append(consumer)

    def unsubscribe(self, consumer: QueueConsumer) -> None:
        """Remove the consumer from every partition."""
        self.consumers.clear()
        self._end()

    def _end(self) -> None:
        parts = self.parts
        self.parts = []
        self.core.scheduler.spent += _PART_ENDED * len(parts)
        for part in parts:
            if not part.queue.deleted:
                part.queue.unsubscribe(part)

    def partition_gone(self) -> None:
        """Notify the client, once, that its consumer was cancelled."""
        consumers = list(self.consumers)
        self.consumers.clear()
        self.deleted = True
        self._end()
        for consumer in consumers:
            consumer.channel.cancelled(consumer)

    def dispatch(self, limit: i64) -> bool:
        """Schedule every partition, after the current work.

        This is not done in `schedule`, which is called for thousands of consumers in a row.
        """
        self.core.scheduler.spent += len(self.parts) // VISITED_PER_COST
        for part in self.parts:
            part.queue.schedule()
        return False


def _share_filter(first: PartitionConsumer, part: PartitionConsumer) -> None:
    """Share the first part's filter with a part, because many copies would take much memory."""
    if part is first:
        return
    queue, other = part.queue, first.queue
    if isinstance(queue, Stream) and isinstance(other, Stream):
        reader = queue.readers[part]
        reader.select(other.readers[first].wanted, reader.from_ms)
    elif isinstance(queue, StreamGroup) and isinstance(other, StreamGroup):
        queue.filters[part] = other.filters[first]
