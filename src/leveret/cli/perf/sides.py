"""The two sides of a load: a producer that repeats one message, and a consumer that acks.

Each has a non-blocking socket.  A message is encoded once, and each publish sends the same bytes,
so the load generator costs little compared to the broker.

Invariants: a producer never has more unconfirmed publishes than its window, and never exceeds its
rate.  A consumer acks each delivery once, and at its end the remaining deliveries.
"""

from __future__ import annotations

import ssl
import time
from typing import Final

from leveret.cli import exits
from leveret.cli.perf.link import (
    CHANNEL,
    READ_BYTES,
    REPLY_SECONDS_MAX,
    PerfConnection,
    error_in,
    frames_of,
)
from leveret.cli.perf.plan import STAMP_BYTES, LoadPlan
from leveret.errors import AmqpError
from leveret.wire.buffer import BytesWriter
from leveret.wire.content.scan import Latencies, Scanner, write_acks
from leveret.wire.frames import FRAME_HEAD_BYTES, write_body, write_header, write_method
from leveret.wire.methods.basic import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicPublish,
    BasicQos,
    BasicQosOk,
)
from leveret.wire.methods.confirm import ConfirmSelect, ConfirmSelectOk
from leveret.wire.methods.connection import ConnectionClose, ConnectionCloseOk
from leveret.wire.methods.decode import decode_method
from leveret.wire.properties import BasicProperties

#: The size of a batch of copies of the message, which one call sends.
_BATCH_BYTES: Final = 131_072

#: Reads or writes of one socket before the next socket is served.
_CALLS_PER_TURN: Final = 4

#: The same for reads with TLS, each of which returns one record of at most 16 KiB.
_RECORDS_PER_TURN: Final = 64

#: The errors of a call that would block.  With TLS, a read may need to write, and a write to read,
#: when the broker changes the keys.  The next read or write continues.
_LATER: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Side:
    """A connection with a scanner for its input."""

    def __init__(self, link: PerfConnection, latencies: Latencies | None) -> None:
        self.link = link
        self.sock = link.sock
        self.scanner = Scanner(link.frame_max, latencies)
        self.unsent = memoryview(b"")
        self.closed = False
        self._started = 0.0
        tls = isinstance(self.sock, ssl.SSLSocket)
        self._reads_max = _RECORDS_PER_TURN if tls else _CALLS_PER_TURN
        # A shorter read has emptied the socket.  With TLS, only a read that would block shows this.
        self._short_bytes = 0 if tls else READ_BYTES // 4

    def start(self, started: float) -> None:
        """Set the start time, and make the socket non-blocking.  Raises: Failure."""
        self._started = started
        self.sock.setblocking(False)

    @property
    def wants_to_read(self) -> bool:
        """Whether the side can read more input now."""
        return True

    @property
    def wants_to_write(self) -> bool:
        """Whether the side has output to send now."""
        return bool(self.unsent)

    @property
    def waits_for_its_rate(self) -> bool:
        """Whether a rate limits the side."""
        return False

    def write(self) -> None:
        """Send as much as possible now.  Raises: Failure."""
        self.flush()

    def read(self) -> None:
        """Read and count input.  Raises: Failure if the broker closed or cancelled.

        A read is longer than a TLS record, so that no decrypted data, which the selector does not
        report, remains in the TLS buffer.
        """
        for _ in range(self._reads_max):
            try:
                piece = self.sock.recv(READ_BYTES)
            except _LATER:
                return
            except OSError as error:
                raise exits.Failure(f"the connection failed: {error}", exits.UNAVAILABLE) from None
            self.take(piece)
            if len(piece) < self._short_bytes:
                return

    def take(self, piece: bytes) -> None:
        """Count a piece of input.  Raises: Failure."""
        if not piece:
            raise exits.Failure("the broker closed the socket", exits.UNAVAILABLE)
        try:
            self.scanner.scan(piece, time.monotonic_ns())
        except AmqpError as error:
            raise exits.refused(error) from None
        if self.scanner.others:
            self._take_others()

    def _take_others(self) -> None:
        """Handle methods other than deliveries, returns and confirms."""
        others = self.scanner.others
        self.scanner.others = []
        for _, payload in others:
            method = decode_method(payload, 0, len(payload))
            error = error_in(method)
            if error is not None:
                raise exits.refused(error)
            if isinstance(method, BasicCancel):
                raise exits.Failure("the broker cancelled a consumer", exits.REFUSED)
            self.closed = self.closed or isinstance(method, ConnectionCloseOk)

    def flush(self) -> bool:
        """Send pending output; return whether all of it was sent.  Raises: Failure."""
        while self.unsent:
            try:
                sent = self.sock.send(self.unsent)
            except _LATER:
                return False
            except OSError as error:
                raise exits.Failure(f"the connection failed: {error}", exits.UNAVAILABLE) from None
            self.unsent = self.unsent[sent:]
        return True

    def finish(self, last: bytes = b"") -> None:
        """Send pending output and `last`, close the connection, and wait for the reply."""
        closing = frames_of(ConnectionClose(reply_code=200, reply_text="bye"), channel=0)
        self.sock.settimeout(REPLY_SECONDS_MAX)
        try:
            self.sock.sendall(bytes(self.unsent) + last + closing)
            while not self.closed:
                self.take(self.sock.recv(READ_BYTES))
        except OSError as error:
            raise exits.Failure(f"the connection failed: {error}", exits.UNAVAILABLE) from None
        finally:
            self.sock.close()


class PublishingSide(Side):
    """Publishes as fast as its window, its rate and the socket allow."""

    def __init__(self, link: PerfConnection, plan: LoadPlan) -> None:
        super().__init__(link, None)
        self._plan = plan
        self._head, self._tail = _message(plan, link.frame_max)
        message = self._head + bytes(STAMP_BYTES if plan.latency else 0) + self._tail
        self._size = len(message)
        self._batch_max = max(1, _BATCH_BYTES // self._size)
        self._batch = memoryview(message * self._batch_max)
        self.published = 0
        if plan.window:
            link.call(ConfirmSelect(), ConfirmSelectOk)

    @property
    def wants_to_write(self) -> bool:
        """Whether the producer has output to send now."""
        return bool(self.unsent) or self._room() > 0

    @property
    def waits_for_its_rate(self) -> bool:
        """Whether a rate limits the producer."""
        return self._plan.rate > 0

    @property
    def done(self) -> bool:
        """Whether all its messages are sent, and confirmed if it uses confirms."""
        most = self._plan.producer_messages
        if not most or self.published < most or self.unsent:
            return False
        return not self._plan.window or self.scanner.settled >= self.published

    def _room(self) -> int:
        """Return the number of messages that can be sent now."""
        plan = self._plan
        room = self._batch_max
        if plan.window:
            room = min(room, plan.window - (self.published - self.scanner.settled))
        if plan.producer_messages:
            room = min(room, plan.producer_messages - self.published)
        if plan.rate:
            allowed = int((time.monotonic() - self._started) * plan.rate)
            room = min(room, allowed - self.published)
        return room

    def write(self) -> None:
        """Send as much as possible now.  Raises: Failure."""
        for _ in range(_CALLS_PER_TURN):
            if not self.unsent:
                room = self._room()
                if room <= 0:
                    return
                self.unsent = self._copies(room)
                self.published += room
            if not self.flush():
                return

    def _copies(self, count: int) -> memoryview:
        """Return the bytes of `count` messages."""
        if not self._plan.latency:
            return self._batch[: count * self._size]
        stamp = time.monotonic_ns().to_bytes(STAMP_BYTES, "big")
        return memoryview((self._head + stamp + self._tail) * count)


def _message(plan: LoadPlan, frame_max: int) -> tuple[bytes, bytes]:
    """Return the frames of one publish, split into the bytes before and after the publish time."""
    properties = BasicProperties(delivery_mode=2 if plan.persistent else None).encode()
    body = b"x" * plan.body_bytes
    head = BytesWriter()
    publish = BasicPublish(routing_key=plan.queue, mandatory=plan.mandatory)
    write_method(head, CHANNEL, publish)
    write_header(head, CHANNEL, BasicPublish.CLASS_ID, len(body), properties)
    before = len(head)
    write_body(head, CHANNEL, body, frame_max)
    whole = head.getvalue()
    if not plan.latency:
        return whole, b""
    stamp_at = before + FRAME_HEAD_BYTES
    return whole[:stamp_at], whole[stamp_at + STAMP_BYTES :]


class ConsumingSide(Side):
    """Receives deliveries and acks them."""

    def __init__(self, link: PerfConnection, plan: LoadPlan, latencies: Latencies | None) -> None:
        super().__init__(link, latencies)
        self._plan = plan
        self._acked = 0
        if plan.prefetch:
            link.call(BasicQos(prefetch_count=plan.prefetch), BasicQosOk)

    def start(self, started: float) -> None:
        """Start consuming."""
        consume = BasicConsume(queue=self._plan.queue, no_ack=not self._plan.ack_every)
        self.link.send(frames_of(consume))
        super().start(started)

    @property
    def delivered(self) -> int:
        """The number of received messages."""
        return int(self.scanner.delivered)

    @property
    def done(self) -> bool:
        """Whether all its messages were received."""
        most = self._plan.consumer_messages
        return bool(most) and self.delivered >= most

    @property
    def wants_to_read(self) -> bool:
        """Whether the consumer can read more input now."""
        if self.done:
            return False
        rate = self._plan.consumer_rate
        return not rate or self.delivered < (time.monotonic() - self._started) * rate

    @property
    def waits_for_its_rate(self) -> bool:
        """Whether a rate limits the consumer."""
        return self._plan.consumer_rate > 0

    def take(self, piece: bytes) -> None:
        """Count a piece of input and ack its deliveries.  Raises: Failure."""
        super().take(piece)
        every = self._plan.ack_every
        tag = int(self.scanner.delivery_tag)
        if every and tag // every > self._acked // every:
            acks = write_acks(CHANNEL, self._acked + 1, tag, every)
            self._acked = tag // every * every
            self.unsent = memoryview(bytes(self.unsent) + acks)
            if self.sock.gettimeout() == 0.0:
                self.flush()

    def finish(self, last: bytes = b"") -> None:
        """Ack the remaining deliveries, then close."""
        tag = int(self.scanner.delivery_tag)
        if self._plan.ack_every and tag > self._acked:
            last += frames_of(BasicAck(delivery_tag=tag, multiple=True))
            self._acked = tag
        super().finish(last)
