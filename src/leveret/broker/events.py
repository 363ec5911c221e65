"""The event stream, which publishes events of messages as messages of a stream.

Every n-th message of each queue (by its sequence) is followed in that queue, from its arrival until
it is acked or removed; with n = 1 these are all messages.  The events of a vhost are published to
its stream `amq.leveret.events`, which is created with the first event.  An event is a message with
the event's name as routing key and a JSON body.

Events do not contain the bodies of messages.  Classic and quorum queues record events; streams do
not, because they have offsets and keep their messages.  Hidden queues record none; a staged message
appears as a publish when it is released.

Invariants: while events are off, one mask is the only check per message; an event never causes
another event; events wait for the end of the batch, so that no journal record is written inside
another; while an alarm blocks publishers no event is recorded, so that events never fill a disk or
memory that is nearly full.  Events that are not written are counted in `dropped`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.attributes.message_events import (
    ACKED,
    DEAD_LETTERED,
    DELETED,
    DELIVERED,
    DROPPED,
    EVENT_STREAM,
    EXPIRED,
    LETTERS_DROPPED,
    PUBLISHED,
    PURGED,
    REQUEUED,
    ROUTED,
    UNROUTABLE,
    MessageEvents,
)
from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.stream.stream import Stream, StreamTarget
from leveret.errors import AmqpError
from leveret.limits import EVENT_STREAM_BYTES, ROUTES_CACHED_MAX
from leveret.message import Address, Message
from leveret.wire.properties import property_message_id

if TYPE_CHECKING:
    from leveret.broker.core import Core
    from leveret.broker.queue.queue import Queue
    from leveret.broker.vhost.vhost import Vhost

#: The maximum number of events that wait to be written.  Further ones are dropped, so that much
#: work at once, such as the expiry of a million messages, does not fill the memory with events.
EVENTS_PER_TURN_MAX: Final = 16_384


#: `content_type` is `application/json`, `delivery_mode` 2.
_PROPERTIES: Final = b"\x90\x00\x10application/json\x02"

_ADDRESSES: Final = {
    name: Address(b"", name.encode())
    for name in (
        PUBLISHED, ROUTED, DELIVERED, ACKED, REQUEUED, DEAD_LETTERED, EXPIRED, DROPPED,
        UNROUTABLE, LETTERS_DROPPED, PURGED, DELETED,
    )
}  # fmt: skip


@final
class Events(MessageEvents):
    """Collects the events of a batch, and publishes them to the streams."""

    def __init__(self, core: Core, vhosts: dict[str, Vhost], every: i64) -> None:
        # `every` is a power of 2.
        super().__init__(every - 1)
        self.core = core
        #: The broker's virtual hosts by their names.
        self.vhosts = vhosts
        self._publishes: i64 = 0
        # Pending events, each with its virtual host's name.
        self._noted: list[tuple[str, Message]] = []
        # Names and addresses as JSON, shared by most events.
        self._texts: dict[str, str] = {}
        self._places: dict[tuple[bytes, bytes], str] = {}

    def queue_event(
        self,
        event: str,
        vhost: str,
        queue: str,
        sequence: i64,
        message: Message | None,
        reason: str = "",
        count: i64 = 0,
    ) -> None:
        """Record an event of a queue; `count` is how often the message was requeued."""
        what = f'"queue":{self._quoted(queue)},"sequence":{sequence}'
        if reason:
            what += f',"reason":{self._quoted(reason)}'
        if count > 0:
            what += f',"count":{count}'
        self._note(vhost, event, message, what)

    def published(
        self, vhost: str, message: Message, queues: i64, targets: Sequence[object]
    ) -> None:
        """Record every n-th publish, by a client or from staging, as published or unroutable."""
        self._publishes += 1
        if self._publishes & self.mask != 0:
            return
        what = f'"queues":{queues}'
        streams: i64 = 0
        for target in targets:
            if isinstance(target, StreamTarget):
                streams += 1
        if streams > 0:
            what += f',"streams":{streams}'
        self._note(vhost, PUBLISHED if queues > 0 else UNROUTABLE, message, what)

    def _note(self, vhost: str, event: str, message: Message | None, what: str) -> None:
        """Record an event; `what` has the fields between the common ones and the message's."""
        if self.paused or len(self._noted) >= EVENTS_PER_TURN_MAX:
            self.dropped += 1
            return
        now_ms = self.core.now_ms
        # Concatenate strings, because a JSON encoder took two thirds of the cost of an event.
        text = f'{{"event":"{event}","at_ms":{now_ms},"vhost":{self._quoted(vhost)},{what}'
        if message is not None:
            place = self._place(message.address)
            text += f',{place},"taken_ms":{message.timestamp_ms},"bytes":{len(message.body)}'
            message_id = property_message_id(message.properties)
            if message_id is not None:
                text += f',"message_id":{json.dumps(message_id)}'
        body = (text + "}").encode()
        self._noted.append((vhost, Message(_ADDRESSES[event], _PROPERTIES, body, now_ms, True)))

    def _quoted(self, text: str) -> str:
        """Return a name as JSON."""
        known = self._texts.get(text)
        if known is None:
            known = json.dumps(text)
            if len(self._texts) >= ROUTES_CACHED_MAX:
                self._texts.clear()
            self._texts[text] = known
        return known

    def _place(self, address: Address) -> str:
        """Return a message's exchange and routing key as JSON fields."""
        names = (address.exchange, address.routing_key)
        known = self._places.get(names)
        if known is None:
            exchange = json.dumps(address.exchange.decode("utf-8", "replace"))
            routing_key = json.dumps(address.routing_key.decode("utf-8", "replace"))
            known = f'"exchange":{exchange},"routing_key":{routing_key}'
            if len(self._places) >= ROUTES_CACHED_MAX:
                self._places.clear()
            self._places[names] = known
        return known

    def forget_vhost(self, vhost: str) -> None:
        """Drop the pending events of a virtual host that is deleted."""
        left = [entry for entry in self._noted if entry[0] != vhost]
        self.dropped += len(self._noted) - len(left)
        self._noted = left

    def flush(self) -> None:
        """Write the pending events, outside of any other journal record."""
        if not self._noted:
            return
        noted = self._noted
        self._noted = []
        streams: dict[str, Queue | None] = {}
        for name, message in noted:
            vhost = self.vhosts.get(name)
            if name not in streams:
                streams[name] = None if vhost is None else self._stream(vhost)
            stream = streams[name]
            if vhost is None or stream is None:
                self.dropped += 1
            else:
                vhost.publish(message, [stream.target], None)

    def _stream(self, vhost: Vhost) -> Queue | None:
        """Return the vhost's stream, and create it if it is missing, or return None on failure."""
        stream = vhost.queues.by_name.get(EVENT_STREAM)
        if stream is not None:
            return stream if isinstance(stream, Stream) else None
        reply_group = self.core.syncs.reply_group
        arguments: dict[str, object] = {
            "x-queue-type": "stream",
            "x-max-length-bytes": EVENT_STREAM_BYTES,
        }
        try:
            return vhost.queues.create(EVENT_STREAM, QueueAttributes(True, arguments=arguments))
        except AmqpError:
            # The vhost is full; its users' queues have priority.
            return None
        finally:
            # No client's method waits for this record.
            self.core.syncs.reply_group = reply_group
