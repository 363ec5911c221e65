"""The consumers of a HareMQ connection after a change of its user's permissions."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.queue.consumer import Consumer
from leveret.broker.values.permission import READ
from leveret.session.consumer_check import ConsumerCheck
from leveret.session.haremq.channel import HareChannel
from leveret.session.haremq.connection_base import HareConnectionBase


@final
class HareConsumerCheck(ConsumerCheck):
    """Ends consumers of queues that the user may no longer read (behaviour 74)."""

    def __init__(self, connection: HareConnectionBase) -> None:
        super().__init__(connection.turn)
        self._connection: Final = connection

    def consumers(self) -> list[Consumer]:
        """Return the consumers of all channels, of which each has one at most."""
        channels = self._connection.channels.values()
        return [channel.consumer for channel in channels if channel.consumer is not None]

    def check(self, consumer: Consumer, last: i64) -> bool:
        """End a consumer, which may be gone, if the user may not read its queue."""
        channel = consumer.channel
        assert isinstance(channel, HareChannel)
        if channel.consumer is consumer and not self._connection.access.allows(
            READ, consumer.queue.name
        ):
            channel.cancel()
        return False
