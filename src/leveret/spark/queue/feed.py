"""The feed: the driver's only consumer, which writes a queue's messages to the spool and acks them.

With `ackMode=afterBatch` a message is acked when its batch is in Spark's commit log; with
`ackMode=spool`, once the spool is synced and a task has read it.  Until then a message in the spool
is `lent`.  If the connection ends, the broker delivers lent messages again, so those in no planned
batch are cut off the spool.  The broker sends up to `prefetch` unacked messages, all of which are
written to disk.  This limits how far the feed is ahead of Spark.

Between two batches a thread sends heartbeats and takes arriving messages, so that neither long
batches nor full sockets end the connection.  The thread never connects and sends no requests.

`queue.stream` implements Spark's interface, and `spool` manages the files.

Invariants: every delivery of a channel is spooled in order, so a delivery tag is the message's
number less `_base`.  No message is acked before it is synced.  At most one segment is in memory.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from leveret.client import InputFull, Message
from leveret.client.blocking import Channel, Connection, Consumer
from leveret.errors import NotFound
from leveret.limits import SPARK_BATCH_BYTES, SPARK_BATCH_RECORDS
from leveret.spark.columns.messages import STREAM_OFFSET
from leveret.spark.connection.connecting import (
    INTERRUPTIONS,
    address_of,
    interrupted,
    missing,
    open_connection,
)
from leveret.spark.options.read import OptionError, Options
from leveret.spark.queue.ready import ready_count
from leveret.spark.queue.rows import to_spool
from leveret.spark.queue.spool import Spool
from leveret.spark.transport import Interrupted

#: Bytes in the spool beyond Spark's requests above which `ackMode=spool` acks no more messages, so
#: that large messages stay in the broker.
_SPOOL_AHEAD_BYTES: Final = 256 * 1024 * 1024


#: A queue is quiet if no message arrives for this long.
QUIET_SECONDS: Final = 0.05

#: A call without a goal gathers arriving messages for at most this long.
GATHER_SECONDS_MAX: Final = 2.0

#: If no message arrives for this long, the broker is asked for the queue's message count.
DOUBT_SECONDS: Final = 0.25

#: How often the thread serves the connection, and how many messages it takes at once.  Few, so that
#: the reader waits only milliseconds for the lock.
KEEP_SECONDS: Final = 0.1
KEEP_RECORDS: Final = 2000

#: The default of `prefetch`.  With `afterBatch`, no batch is larger than the prefetch.
PREFETCH: Final = 50_000

log = logging.getLogger("leveret.spark")


def check_kind(queue: str, message: Message) -> None:
    """Refuse messages of a stream, which cannot be consumed destructively.  Raises: OptionError."""
    if STREAM_OFFSET in message.headers:
        raise is_a_stream(queue)


def is_a_stream(queue: str) -> OptionError:
    """Return the error for a stream given as the option `queue`."""
    return OptionError(f"option 'queue': {queue!r} is a stream, which option 'stream' reads")


class QueueFeed:
    """Consumes a queue's messages into a spool; only one thread may call its methods."""

    def __init__(self, options: Options, spool: Spool) -> None:
        assert options.queue is not None
        self._options = options
        self._queue = options.queue
        self.spool = spool
        self._prefetch = options.prefetch if "prefetch" in options.given else PREFETCH
        #: The end of the last batch returned to Spark.
        self.handed = 0
        #: The number at which the query ends, if it does (Trigger.AvailableNow).
        self.goal: int | None = None
        self._awaited = 0
        self._seen = False
        self._finished = False
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._keeper: threading.Thread | None = None
        self._failure: Exception | None = None
        self._connection: Connection | None = None
        self._channel: Channel | None = None
        self._consumer: Consumer | None = None
        #: The number of the channel's first delivery, and the last acked tag.
        self._base = 0
        self._acked = 0
        self._messages: list[Message] = []
        self._bytes = 0

    # -- requests of the reader --------------------------------------------------------------------

    def ready(self) -> int:
        """Return the queue's number of ready messages.  Raises: Interrupted; NotFound."""
        with self._lock, self._interruptible():
            return self._count()

    def begin(self, number: int, ready: int | None) -> None:
        """Consume after the batch that ends at `number`; with `ready`, only that many messages."""
        with self._lock:
            self.handed = number
            self.spool.cut(number)
            self.goal = None if ready is None else self.spool.end + ready

    def wait_for(self, ready: int) -> None:
        """Make `reach` wait for `ready` more messages, even without a goal."""
        with self._lock:
            self._awaited = self.spool.end + ready

    def committed(self, number: int) -> None:
        """Commit the messages below a number, and ack them.  Raises: Interrupted; OSError."""
        with self._lock, self._interruptible():
            self.spool.commit(number)
            self._ack(number)
            if self._takes and not self._is_ahead:
                self._ack_all()

    def seen(self) -> None:
        """Record that a task has read the spool, so that spooled messages may be acked."""
        with self._lock:
            self._seen = True

    def reach(self, number: int) -> None:
        """Consume into the spool, and sync it, until it ends at `number` or the queue is empty.

        Without a goal, return as soon as no more messages arrive.  With a goal, return only at the
        goal or when the broker reports an empty queue.

        Raises: Interrupted; NotFound (404); OptionError if the queue is a stream.
        """
        with self._lock:
            self._raise_failure()
            with self._interruptible():
                if self._channel is None or not self._channel.is_open:
                    self._begin_again()
                if self.goal is None:
                    self._reach_awaited(number)
                    self._reach_what_comes(number)
                else:
                    self._reach_goal(min(number, self.goal))
                self._flush()
            self._start_keeper()

    def close(self) -> None:
        """Close the connection and the spool, which returns unacked messages to the queue."""
        self._over.set()
        with self._lock:
            self._disconnect()
            self.spool.close()
        if self._keeper is not None:
            self._keeper.join()

    # -- taking ------------------------------------------------------------------------------------

    def _reach_what_comes(self, number: int) -> None:
        deadline = time.monotonic() + GATHER_SECONDS_MAX
        while self._next < number and time.monotonic() < deadline:
            if not self._take(number - self._next, QUIET_SECONDS):
                return

    def _reach_awaited(self, number: int) -> None:
        """Wait for the messages of `wait_for`, or fewer if another consumer takes some."""
        empty = True
        with suppress(Interrupted):
            empty = self._empties(min(number, self._awaited))
        if empty:
            self._awaited = 0

    def _reach_goal(self, number: int) -> None:
        """Consume until a number is reached, or the queue is empty."""
        if self._empties(number):
            self.goal = self._next
        if self._next == self.goal:
            self._finish()

    def _empties(self, number: int) -> bool:
        """Consume until a number is reached, and return whether the queue was empty before that."""
        heard = time.monotonic()
        while self._next < number and not self._is_full:
            if self._take(number - self._next, QUIET_SECONDS):
                heard = time.monotonic()
                continue
            silence = time.monotonic() - heard
            if silence > DOUBT_SECONDS and self._is_empty(silence):
                return True
        return False

    def _begin_again(self) -> None:
        """Continue on a new channel, to which the broker delivers lent messages again."""
        self.spool.cut(self.handed)
        self._finished = False
        if self.goal is not None and self.spool.end < self.goal:
            # The count includes the messages of batches that were not acked.
            self.goal = max(self.goal, self.spool.end + self._count())

    def _is_empty(self, silence: float) -> bool:
        """Return whether the queue is empty.

        Raises: Interrupted if it has messages but has sent none within `pollTimeoutMs`.
        """
        count = self._count()
        if count and silence > self._options.poll_timeout_ms / 1000:
            raise Interrupted(
                f"the broker counts {count} messages but sent none in {silence:.1f} s"
            )
        return count == 0

    def _finish(self) -> None:
        """End the consumer; unacked messages beyond the goal return to the queue."""
        self._flush()
        self._finished = True
        consumer = self._consumer
        if consumer is not None:
            # Spool all messages in transit first, because the reply to the cancel follows them.
            while self._take(KEEP_RECORDS, QUIET_SECONDS):
                continue
            consumer.cancel()
            for message in consumer:
                self._add(message)
            self._consumer = None

    def _take(self, most: int, seconds: float) -> int:
        """Take arriving messages and return their number; wait at most `seconds` for the first."""
        consumer = self._consuming()
        consumer.inactivity_timeout = seconds
        count = 0
        while count < most and not self._is_full:
            message = next(consumer, None)
            if message is None:
                break
            if self._next == self._base:
                check_kind(self._queue, message)
            self._add(message)
            consumer.inactivity_timeout = 0.0
            count += 1
        return count

    def _add(self, message: Message) -> None:
        """Add a message to the segment in memory, which is written to the spool when it is full."""
        size = len(message.body)
        if self._messages and self._bytes + size > self._segment_bytes:
            self._flush()
        self._messages.append(message)
        self._bytes += size
        if len(self._messages) >= self._segment_records:
            self._flush()

    @property
    def _segment_bytes(self) -> int:
        """The maximum size of a segment, because batches are limited in whole segments."""
        limit = self._options.max_bytes_per_trigger
        return SPARK_BATCH_BYTES if limit is None else min(limit, SPARK_BATCH_BYTES)

    @property
    def _segment_records(self) -> int:
        """The maximum number of messages in a segment, so that acks are frequent enough."""
        return max(1, min(SPARK_BATCH_RECORDS, self._prefetch // 2))

    @property
    def _next(self) -> int:
        """The number of the next message."""
        return self.spool.end + len(self._messages)

    @property
    def _is_full(self) -> bool:
        """Whether the prefetch is exhausted, so that the broker sends no more before an ack."""
        return self._consumer is not None and (
            self._next - self._base - self._acked >= self._prefetch
        )

    # -- spool and acks ----------------------------------------------------------------------------

    @property
    def _takes(self) -> bool:
        """Whether spooled messages are acked before their batch is committed, up to a limit."""
        return self._options.ack_mode == "spool" and self._seen and not self._finished

    @property
    def _is_ahead(self) -> bool:
        """Whether the spool is so far ahead of Spark that no more messages are acked."""
        waiting = self.spool.between(self.handed, self.spool.end)
        records = max(SPARK_BATCH_RECORDS, self._options.max_offsets_per_trigger or self._prefetch)
        return (
            self.spool.end - self.handed >= records
            or sum(segment.size for segment in waiting) >= _SPOOL_AHEAD_BYTES
        )

    def _flush(self) -> None:
        """Write the messages in memory to the spool, and ack them if `_takes`."""
        if self._messages:
            takes = self._takes and not self._is_ahead
            self.spool.append(to_spool(self._messages), self._bytes, lent=not takes)
            self._messages = []
            self._bytes = 0
            if takes:
                self._ack_all()

    def _ack_all(self) -> None:
        """Mark all spooled messages as taken, and ack them."""
        self.spool.take()
        self._ack(self.spool.end)

    def _ack(self, number: int) -> None:
        """Ack the messages below a number that arrived on this channel."""
        tag = number - self._base
        if self._channel is None or tag <= self._acked:
            return
        self._channel.ack(tag, multiple=True)
        self._acked = tag
        if self._consumer is None:
            # The query and its process may end next.  A reply shows that the ack has arrived.
            self._channel.qos(self._prefetch)

    # -- the connection ----------------------------------------------------------------------------

    def _count(self) -> int:
        """Return the broker's count of ready messages."""
        seconds = self._options.poll_timeout_ms / 1000
        return ready_count(self._opened(), self._queue, seconds)

    def _consuming(self) -> Consumer:
        """Return the consumer, or start one after the last planned batch."""
        if self._consumer is None:
            channel = self._opened()
            self.spool.cut(self.handed)
            self._base = self.spool.end
            self._acked = 0
            channel.qos(self._prefetch)
            self._consumer = channel.consume(self._queue, inactivity_timeout=QUIET_SECONDS)
        return self._consumer

    def _opened(self) -> Channel:
        """Return the channel, or open one if it is closed."""
        if self._channel is None or not self._channel.is_open:
            self._disconnect()
            name = f"leveret spark queue {self._queue}"
            self._connection = open_connection(self._options.parameters(), name)
            self._channel = self._connection.channel()
            # No message has arrived on this channel, so none of its delivery tags can be acked.
            self._base = self.spool.end
            self._acked = 0
        return self._channel

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Drop the connection if it ends or fails.  Raises: Interrupted; NotFound (404)."""
        try:
            yield
        except NotFound:
            where = self._options.parameters()
            raise missing("queue", self._queue, where.vhost, address_of(where)) from None
        except INTERRUPTIONS as error:
            self._disconnect()
            raise interrupted(error) from error
        except (InputFull, Interrupted):
            self._disconnect()
            raise

    def _disconnect(self) -> None:
        """Close the connection, and drop messages that are not spooled yet."""
        connection, self._connection = self._connection, None
        self._channel = self._consumer = None
        self._messages = []
        self._bytes = 0
        if connection is not None:
            try:
                connection.close()
            except INTERRUPTIONS as error:
                log.debug("queue %r: %s", self._queue, error)

    # -- between batches ---------------------------------------------------------------------------

    def _start_keeper(self) -> None:
        if self._keeper is None:
            self._keeper = threading.Thread(
                target=self._keep, name=f"leveret queue {self._queue}", daemon=True
            )
            self._keeper.start()

    def _keep(self) -> None:
        """Serve the connection until the reader closes."""
        pause = KEEP_SECONDS
        while not self._over.wait(pause):
            with self._lock:
                try:
                    with self._interruptible():
                        pause = 0.0 if self._keep_once() else KEEP_SECONDS
                except Interrupted as error:
                    # The next batch connects again, with the retries of the options.
                    log.warning("queue %r: %s", self._queue, error)
                except Exception as error:  # noqa: BLE001  raised by the next call
                    self._failure = error
                    return

    def _keep_once(self) -> bool:
        """Take arriving messages; return whether more may be available at once."""
        if self._connection is None or self._over.is_set():
            return False
        most = KEEP_RECORDS if self.goal is None else min(KEEP_RECORDS, self.goal - self._next)
        if self._consumer is None or self._is_full or most <= 0:
            self._connection.process(0.0)
            return False
        return self._take(most, 0.0) == KEEP_RECORDS

    def _raise_failure(self) -> None:
        """Raise the exception that ended the thread, if any."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            self._keeper = None
            raise failure
