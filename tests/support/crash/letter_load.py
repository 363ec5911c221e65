"""The clients of a crash test of dead letters: one fills `work`, the other consumes and rejects.

Like those of `kill_load` they are raw connections in one thread, so that a seed decides everything
but the behaviour of the broker and its clock.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from support.crash.kill_load import Pumped, address, on_channel
from support.crash.letter_book import (
    DEAD,
    DELIVERY_LIMIT,
    DURABLE,
    LENGTH_MAX,
    SENT,
    WORK,
    Found,
    Letter,
    LetterBook,
    digest_of,
    found_of,
)
from support.wire import raw
from support.wire.raw_codec import content, method, properties

#: The queue of marks: persistent messages with confirms that show that earlier acks are durable.
MARKS: Final = "marks"
MARK: Final = content(1, b"", properties(delivery_mode=2))


#: The stream that gets each dead letter too.
LOG: Final = "log"


def declare(uri: str, **arguments: object) -> None:
    """Declare the queues; `arguments` are those of `work` in addition to its limits."""
    limits = {"x-max-length": LENGTH_MAX, "x-delivery-limit": DELIVERY_LIMIT}
    letters = {"x-dead-letter-exchange": "dlx"}
    with raw.connect(uri) as connection:
        connection.open_channel(1)
        connection.declare(1, WORK, durable=True, arguments=limits | letters | arguments)
        connection.declare(1, MARKS, durable=True)
        connection.call(1, "exchange.declare", exchange="dlx", type="fanout", durable=True)
        for queue, type_ in ((DEAD, "classic"), (LOG, "stream")):
            connection.declare(1, queue, durable=True, arguments={"x-queue-type": type_})
            connection.call(1, "queue.bind", queue=queue, exchange="dlx")


class Filler(Pumped):
    """Publishes to `work` with confirms, several in flight; some messages expire soon."""

    def __init__(self, uri: str, book: LetterBook, seed: int) -> None:
        super().__init__(uri, seed, 1)
        self.book = book
        self.raw.call(1, "confirm.select")
        self.waiting: deque[Letter] = deque()
        self.confirmed = 0

    def pump(self) -> None:
        """When all are confirmed, publish a few messages, or enough to exceed the max length."""
        if not self.waiting and not self.dead:
            for _ in range(self.random.choice([3, 3, 3, 3, 60])):
                self.publish()

    def publish(self) -> None:
        """Publish one message."""
        number = len(self.book.sent) + 1
        body = self.random.randbytes(self.random.choice([0, 20, 100, 100, 1500, 6000]))
        values: dict[str, Any] = {
            "headers": {"n": number, "long": 1 << 40, "x-own": body[:9]},
            "delivery_mode": 2,
            "priority": self.random.randrange(5),
            "message_id": f"m{number}",
        }
        if self.random.randrange(4) == 0:
            values["expiration"] = self.random.choice(["1", "5", "20", "60"])
        raw_values = properties(**values)
        one = Letter(f"m{number}", number, raw.decode_properties(raw_values), digest_of(body))
        self.book.ledger.note("T", one.id, one.digest)
        self.book.sent[one.id] = one
        self.waiting.append(one)
        self.send(address(1, "", WORK), content(1, body, raw_values))

    def hear(self, got: raw.Method) -> None:
        """Handle a confirm."""
        assert got.name == "basic.ack", got
        ids = []
        while self.confirmed < got.delivery_tag:
            one = self.waiting.popleft()
            self.confirmed += 1
            self.book.events += 1
            one.kept = True
            ids.append(one.id)
        self.book.ledger.note("C", *ids)


class Worker(Pumped):
    """Consumes `work` too slowly, acks, rejects and requeues, and sends marks after it."""

    def __init__(self, uri: str, book: LetterBook, seed: int) -> None:
        super().__init__(uri, seed, 1, 2)
        self.book = book
        self.raw.call(1, "basic.qos", prefetch_count=10)
        self.raw.call(2, "confirm.select")
        self.send(method(1, "basic.consume", queue=WORK, consumer_tag="c"))
        self.raw.expect(1, "basic.consume-ok")
        self.held: list[tuple[int, Letter, int]] = []
        #: For each mark, the messages settled before it, with the outcome and the count.
        self.marks: deque[list[tuple[Letter, str, int]]] = deque()
        self.confirmed = 0

    def hear(self, got: raw.Method) -> None:
        """Handle a delivery, or the confirm of a mark."""
        self.book.events += 1
        if got.name == "basic.ack":
            while self.confirmed < got.delivery_tag:
                self.confirmed += 1
                self.durable(self.marks.popleft())
            return
        assert got.name == "basic.deliver", got
        found: Found = found_of(got)
        count = self.book.check_count(found)
        one = self.book.sent[found.id]
        if (count or one.delivered) and not found.redelivered:
            self.book.fail(f"a repeat that does not say so: {one}", one.id)
        one.delivered = True
        self.held.append((got.delivery_tag, one, count))

    def durable(self, settled: list[tuple[Letter, str, int]]) -> None:
        """Record settlements that are durable now."""
        self.book.ledger.note("D", *[f"{how} {one.id}" for one, how, _ in settled])
        for one, how, count in settled:
            if how == "ack":
                one.acked = DURABLE
                one.gone = True
            elif how == "reject":
                one.rejected = DURABLE
            elif count > DELIVERY_LIMIT:
                one.exceeded = DURABLE
            else:
                one.returns_durable = max(one.returns_durable, count)

    def pump(self) -> None:
        """Settle the unacked deliveries, now and then."""
        if not self.held or self.dead or self.random.randrange(2):
            return
        frames, settled = [], []
        for tag, one, count in self.held:
            how = self.choose(one)
            self.book.ledger.note("A", how, one.id, str(count))
            frames.append(self.settle(tag, one, count, how))
            settled.append((one, how, count + 1))
        self.held.clear()
        self.marks.append(settled)
        self.send(*frames, address(2, "", MARKS), on_channel(MARK, 2))

    def choose(self, one: Letter) -> str:
        """Choose the outcome of a message: some are always requeued, some always rejected."""
        if one.number % 7 == 0:
            return "return"
        if one.number % 5 == 0:
            return "reject"
        return self.random.choice(["ack", "ack", "ack", "return"])

    def settle(self, tag: int, one: Letter, count: int, how: str) -> bytes:
        """Record a settlement that is about to be sent; return its frame."""
        if how == "ack":
            one.acked = SENT
            return method(1, "basic.ack", delivery_tag=tag)
        if how == "reject":
            one.rejected = max(one.rejected, SENT)
            return method(1, "basic.reject", delivery_tag=tag, requeue=False)
        self.book.returned += 1
        if count == DELIVERY_LIMIT:
            one.exceeded = max(one.exceeded, SENT)
        else:
            one.returns_sent = max(one.returns_sent, count + 1)
        return method(1, "basic.reject", delivery_tag=tag, requeue=True)


# -- after a restart -------------------------------------------------------------------------------


def browsed(connection: raw.Connection, queue: str) -> list[Found]:
    """All ready messages of a queue, by browsing, which does not mark them as redelivered."""
    values = {"queue": queue, "consumer_tag": "b", "no_ack": True, "arguments": {"x-browse": True}}
    connection.call(1, "basic.consume", **values)
    found = []
    while (got := connection.next_method()).name == "basic.deliver":
        found.append(found_of(got))
    assert got.name == "basic.cancel", got
    return found


def logged(connection: raw.Connection) -> list[str]:
    """The ids of all messages in the stream."""
    count = connection.declare(1, LOG, passive=True).message_count
    connection.open_channel(2)
    connection.call(2, "basic.qos", prefetch_count=60_000)
    values = {"queue": LOG, "consumer_tag": "s", "arguments": {"x-stream-offset": "first"}}
    connection.call(2, "basic.consume", **values)
    ids = [found_of(connection.expect(2, "basic.deliver")).id for _ in range(count)]
    connection.send(method(2, "basic.cancel", consumer_tag="s"))
    while connection.next_method().name != "basic.cancel-ok":  # a new dead letter
        pass
    return ids


def judge(uri: str, book: LetterBook) -> None:
    """Read both queues and the stream, and check them."""
    with raw.connect(uri) as connection:
        connection.open_channel(1)
        waiting = browsed(connection, WORK)
        dead = browsed(connection, DEAD)
        letters = logged(connection)
        book.judge(waiting, dead, letters, browsed(connection, WORK))


def bury(uri: str, book: LetterBook, seed: int) -> None:
    """Ack about half of the dead letters, and wait until the acks are durable."""
    with raw.connect(uri) as connection:
        connection.open_channel(1)
        connection.open_channel(2)
        connection.call(2, "confirm.select")
        count = connection.declare(1, DEAD, durable=True).message_count
        connection.call(1, "basic.consume", queue=DEAD)
        acked = []
        for place in range(count):
            got = connection.expect(1, "basic.deliver")
            one = book.check_dead(found_of(got))
            if (place + seed) % 2:
                acked.append(one)
                connection.send(method(1, "basic.ack", delivery_tag=got.delivery_tag))
        connection.send(address(2, "", MARKS), on_channel(MARK, 2))
        while (got := connection.next_method()).name != "basic.ack":
            assert got.name == "basic.deliver", got
        book.ledger.note("D", *[one.id for one in acked])
        for one in acked:
            one.acked = DURABLE
            one.gone = True
