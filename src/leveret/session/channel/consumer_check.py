"""The consumers of a connection's channels after a change of their user's permissions."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.queue.consumer import Consumer
from leveret.broker.values.permission import READ
from leveret.broker.vhost.replies import is_reply_name
from leveret.names import Name
from leveret.session.channel.channel import Channel
from leveret.session.channel.channels import Channels
from leveret.session.connection_base import ConnectionBase
from leveret.session.consumer_check import ConsumerCheck

#: Channels that are asked for their consumers in one step.
_CHANNELS_PER_STEP: Final = 8

#: Names of what one consumer reads that are listed in one step.
_NAMES_PER_STEP: Final = 16


@final
class ChannelConsumerCheck(ConsumerCheck):
    """Ends consumers of queues that the user may no longer read (behaviour 74)."""

    def __init__(self, connection: ConnectionBase, channels: Channels) -> None:
        super().__init__(connection.turn)
        self._connection: Final = connection
        self._channels: Final = channels
        #: The names of the consumer that is looked at, and how many of them are checked.
        self._names: list[Name] = []
        self._checked: i64 = 0

    def consumers(self) -> list[Consumer]:
        """Return the consumers of all channels."""
        found: list[Consumer] = []
        for channel in self._channels.by_number.values():
            found += channel.consumers.values()
        self._turn.steps += len(self._channels.by_number) // _CHANNELS_PER_STEP
        return found

    def begin_checks(self) -> None:
        """Begin with the first name of the next consumer."""
        self._names = []
        self._checked = 0

    def check(self, consumer: Consumer, last: i64) -> bool:
        """End a consumer, which may be gone, if the user may not read its queue.

        One of a super stream has a thousand names.  Returns whether some are left.
        """
        channel = consumer.channel
        assert isinstance(channel, Channel)
        if channel.closing or channel.consumers.get(consumer.tag) is not consumer:
            self.begin_checks()
            return False
        turn = self._turn
        if not self._names:
            self._names = consumer.queue.names()
            turn.steps += len(self._names) // _NAMES_PER_STEP
        access = self._connection.access
        while self._checked < len(self._names):
            name = self._names[self._checked]
            self._checked += 1
            if not is_reply_name(name) and not access.allows(READ, name):
                channel.cancelled(consumer)
                channel.vhost.queues.unsubscribe(consumer)
                break
            turn.steps += 1
            if turn.steps >= last and self._checked < len(self._names):
                return True
        self.begin_checks()
        return False
