"""The consumers of a connection's channels after a change of their user's permissions."""

from __future__ import annotations

from typing import Final, final

from leveret.broker.queue.consumer import Consumer
from leveret.broker.values.permission import READ
from leveret.broker.vhost.replies import is_reply_name
from leveret.session.channel.channel import Channel
from leveret.session.channel.channels import Channels
from leveret.session.connection_base import ConnectionBase
from leveret.session.consumer_check import ConsumerCheck

#: Channels that are asked for their consumers in one step.
_CHANNELS_PER_STEP: Final = 8


@final
class ChannelConsumerCheck(ConsumerCheck):
    """Ends consumers of queues that the user may no longer read (behaviour 74)."""

    def __init__(self, connection: ConnectionBase, channels: Channels) -> None:
        super().__init__(connection.turn)
        self._connection: Final = connection
        self._channels: Final = channels

    def consumers(self) -> list[Consumer]:
        """Return the consumers of all channels."""
        found: list[Consumer] = []
        for channel in self._channels.by_number.values():
            found += channel.consumers.values()
        self._turn.steps += len(self._channels.by_number) // _CHANNELS_PER_STEP
        return found

    def check(self, consumer: Consumer) -> None:
        """End a consumer, which may be gone, if the user may not read its queue."""
        channel = consumer.channel
        assert isinstance(channel, Channel)
        if channel.closing or channel.consumers.get(consumer.tag) is not consumer:
            return
        access = self._connection.access
        names = consumer.queue.names()
        self._turn.steps += len(names)
        for name in names:
            if not is_reply_name(name) and not access.allows(READ, name):
                channel.cancelled(consumer)
                channel.vhost.queues.unsubscribe(consumer)
                return
