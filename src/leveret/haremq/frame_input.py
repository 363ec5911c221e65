"""Dispatches the frames of a HareMQ connection to the handlers of their requests.

Each request is answered once.  Publishes and acks with fields in protobuf's usual order are read
directly from the input; the codec decodes all other requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from leveret.broker.scheduler.costs import DEFINING_METHOD, METHOD
from leveret.errors import AmqpError, FrameError
from leveret.haremq.channel import HareConsumer, queue_prefix
from leveret.haremq.commands import HareCommands
from leveret.haremq.fields import AckFields, PublishFields, is_text
from leveret.haremq.frames import (
    ACK,
    LONG_PUBLISH,
    OPEN_CHANNEL,
    PUBLISH,
    REQUESTS,
    UNKNOWN,
    HareFrameReader,
)
from leveret.haremq.long_publish import NO_TEXT, TWO_BODIES, LongPublish
from leveret.haremq.publisher import HarePublisher
from leveret.haremq.requests import Ack, Consume, HareRequest, Publish
from leveret.limits import HAREMQ_ID_BYTES_MAX, OUTPUT_BYTES_MAX, TABLE_BYTES_PER_COST
from leveret.names import cleaned_bytes
from leveret.session.states import HALT_OUTPUT

if TYPE_CHECKING:
    from leveret.haremq.connection import HareConnection


@final
class HareInput:
    """Handles the input of one connection."""

    def __init__(
        self, connection: HareConnection, publisher: HarePublisher, commands: HareCommands
    ) -> None:
        self._connection = connection
        self._core = connection.core
        self._publisher = publisher
        self._commands = commands
        self._codec = connection.shared.codec
        self._deliveries = connection.shared.deliveries
        self.reader = HareFrameReader()
        self._publish_fields = PublishFields()
        self._ack_fields = AckFields()
        #: True once a frame was read.
        self.asked = False

    def take_frames(self) -> None:
        """Handle all complete frames.  Raises: FrameError (501) for a malformed frame."""
        reader = self.reader
        connection = self._connection
        output = connection.output
        while connection.halted == 0 and not connection.finished:
            connection.current.begin(connection.published)
            if not reader.next():
                return
            if not self.asked:
                self.asked = True
                connection.take_package(reader.package)
            kind = reader.kind
            data = reader.data
            if kind == PUBLISH and self._publish_fields.find(data, reader.start, reader.end):
                self._take_publish(data)
            elif kind == ACK and self._ack_fields.find(data, reader.start, reader.end):
                self._take_ack(data)
            elif kind == LONG_PUBLISH:
                self._take_long_publish(reader.take_long())
            elif kind == UNKNOWN:
                self._refuse_unknown(data[reader.start : reader.end])
            else:
                message = data[reader.start : reader.end]
                self._take(self._codec.decode(int(kind), message))
                connection.spend(DEFINING_METHOD + len(message) // TABLE_BYTES_PER_COST)
            connection.spend(METHOD)
            if len(output.writer) + output.parts_bytes > OUTPUT_BYTES_MAX:
                connection.halt(HALT_OUTPUT)
                connection.wake()

    def _take_publish(self, data: bytes) -> None:
        """Handle the publish in `_publish_fields`.  Raises: FrameError (501) for invalid UTF-8."""
        fields = self._publish_fields
        body = data[fields.body : fields.body_end]
        if not is_text(body):
            raise FrameError(NO_TEXT)
        self._publish(data, self.reader.start, body)

    def _take_long_publish(self, long: LongPublish) -> None:
        """Handle a long publish.

        Raises: FrameError (501) for a string that is not UTF-8, and for malformed fields.
        """
        data = long.fields
        fields = self._publish_fields
        if fields.find(data, 0, len(data)):
            if fields.body_end > fields.body:
                raise FrameError(TWO_BODIES)
            self._publish(data, 0, long.body())
            return
        request = self._codec.decode(int(PUBLISH), data)
        assert isinstance(request, Publish)
        if request.body:
            raise FrameError(TWO_BODIES)
        request.body = long.body()
        self._take(request)
        self._connection.spend(DEFINING_METHOD + len(data) // TABLE_BYTES_PER_COST)

    def _publish(self, data: bytes, start: i64, body: bytes) -> None:
        """Publish the message in `_publish_fields`, whose fields begin at `start`."""
        fields = self._publish_fields
        rid = data[fields.rid : fields.rid_end]
        cid = data[fields.cid : fields.cid_end]
        message_id = data[fields.id : fields.id_end]
        _check_ids(rid, cid)
        if not (is_text(rid) and is_text(cid) and is_text(message_id)):
            raise FrameError(NO_TEXT)
        self._publisher.take(
            data[start : fields.cid_end],
            cid,
            data[fields.exchange : fields.exchange_end],
            data[fields.routing_key : fields.routing_key_end],
            body,
            message_id,
            fields.delivery_mode,
        )

    def _take_ack(self, data: bytes) -> None:
        """Handle the ack in `_ack_fields`.  Raises: FrameError (501) for invalid UTF-8."""
        fields = self._ack_fields
        rid = data[fields.rid : fields.rid_end]
        cid = data[fields.cid : fields.cid_end]
        queue = data[fields.queue : fields.queue_end]
        message_id = data[fields.id : fields.id_end]
        _check_ids(rid, cid)
        if not (is_text(rid) and is_text(cid) and is_text(queue) and is_text(message_id)):
            raise FrameError("a string of a basicAckRequest is not UTF-8")
        self._ack(data[self.reader.start : fields.cid_end], cid, queue, message_id)

    def _refuse_unknown(self, message: bytes) -> None:
        """Refuse an unknown request, because without an answer the client would wait for ever.

        Raises: FrameError (501) for malformed fields, or ids that are too long.
        """
        # Every request begins with the fields of openChannelRequest.
        request = self._codec.decode(OPEN_CHANNEL, message)
        _check_ids(request.rid, request.cid)
        name = self.reader.name.decode("ascii", "replace")
        package = self.reader.package.prefix.decode("ascii", "replace").removesuffix(".")
        self._connection.refuse(
            request.identity,
            name,
            f"the package '{package}' has no such request, or is not supported",
        )
        self._connection.spend(DEFINING_METHOD + len(message) // TABLE_BYTES_PER_COST)

    def _take(self, request: HareRequest) -> None:
        """Handle a decoded request.  Raises: FrameError (501) for ids that are too long."""
        _check_ids(request.rid, request.cid)
        if isinstance(request, Publish):
            self._publisher.take(
                request.identity,
                request.cid,
                request.exchange_name,
                request.routing_key,
                request.body,
                request.message_id,
                request.delivery_mode,
            )
        elif isinstance(request, Ack):
            self._ack(request.identity, request.cid, request.queue_name, request.message_id)
        else:
            self._command(request)

    def _ack(self, identity: bytes, cid: bytes, queue: bytes, message_id: bytes) -> None:
        """Ack a delivery of any connection; an unknown delivery is not an error."""
        connection = self._connection
        channel = connection.channels.get(cid)
        if channel is None:
            connection.refuse(identity, REQUESTS[ACK], "there is no such channel")
            return
        by_key = self._deliveries
        delivery = by_key.get(queue_prefix(queue) + message_id)
        if delivery is None:
            delivery = by_key.get(queue_prefix(cleaned_bytes(queue)) + message_id)
        if delivery is not None and channel.hears(delivery):
            self._core.scheduler.changes += 1
            delivery.channel.ack(delivery)
        connection.answers.answer(identity, True, 0)

    def _command(self, request: HareRequest) -> None:
        """Execute and answer a request other than publish and ack."""
        connection = self._connection
        answers = connection.answers
        core = self._core
        core.syncs.reply_group = 0
        if core.scheduler.letters.any():
            # Route the dead letters of earlier requests first, so that this request finds them.
            core.scheduler.dead_letter(connection.slice_end - core.scheduler.spent)
        commands = self._commands
        kind = self.reader.kind
        try:
            if commands.begin(request):
                return
            consumer: HareConsumer | None = None
            if isinstance(request, Consume):
                consumer = commands.consume(request)
            else:
                commands.do(request)
            group = core.syncs.reply_group
            answers.answer(request.identity, True, group if core.syncs.must_wait(group) else 0)
            if consumer is not None:
                connection.starting.append((answers.given, consumer))
        except AmqpError as error:
            connection.refuse(request.identity, REQUESTS[int(kind)], error.text)


def _check_ids(rid: bytes, cid: bytes) -> None:
    """Check the lengths of ids, because the answers repeat them.  Raises: FrameError (501)."""
    if len(rid) > HAREMQ_ID_BYTES_MAX or len(cid) > HAREMQ_ID_BYTES_MAX:
        raise FrameError(f"an id can have at most {HAREMQ_ID_BYTES_MAX} bytes")
