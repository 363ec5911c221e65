"""Filling a data directory with what is to be kept, by the client of the build that runs this.

All that is asked of a broker here is in its documents, so that any build can make such a directory.
What was sent and must be found is returned, so that the manifest does not rest on one reading of
the directory alone.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any, Final
from urllib.parse import quote

from kept.declared import LONG_MS, ODD, PASSWORDS, VHOSTS, definitions
from leveret.client import BasicProperties
from leveret.client.blocking import Channel, connect
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api

#: Of these a broker pages a few hundred messages, and takes several checkpoints.
SETTINGS: Final = {
    "journal_bytes_max": "65536",
    "journal_file_bytes": "65536",
    "queue_window_bytes": "16384",
    "ballast_bytes": "0",
}

#: After so long the messages of `expiring` are dead, and the first of `later` are due.
SOON_MS: Final = 60_000

#: What comes to which queue then.
DUE: Final = {"due": 4, "expired letters": 5}

COMMIT_KEY: Final = "amq.leveret.commit"

#: Bodies by vhost and queue, in the order in which they must be found; those of priorities apart.
Sent = dict[tuple[str, str], list[bytes]]


def body(queue: str, number: int) -> bytes:
    """Return the body of a message."""
    return f"<{queue}.{number}>".encode() * 12


def uri_of(broker: BrokerProcess, vhost: str, user: str = "guest") -> str:
    """Return the URI of a vhost for a user."""
    password = PASSWORDS.get(user, user)
    login = f"{quote(user, safe='')}:{quote(password, safe='')}"
    return f"amqp://{login}@{broker.host}:{broker.port}/{quote(vhost, safe='')}"


class Publisher:
    """A confirming channel that keeps book of what it sends."""

    def __init__(self, channel: Channel, vhost: str, sent: Sent) -> None:
        self.channel = channel
        self._vhost = vhost
        self._sent = sent
        channel.confirm_select()

    def send(
        self,
        queue: str,
        numbers: Iterable[int],
        exchange: str = "",
        key: str | None = None,
        headers: Mapping[str, object] | None = None,
        **properties: Any,
    ) -> None:
        """Publish persistent messages that come to a queue, and wait for their confirms."""
        for number in numbers:
            text = body(queue, number)
            self._sent[self._vhost, queue].append(text)
            of_number = {name: _filled(value, number) for name, value in (headers or {}).items()}
            made = BasicProperties(delivery_mode=2, headers=of_number or None, **properties)
            self.channel.publish_nowait(text, exchange, queue if key is None else key, made)
        self.channel.wait_for_confirms()

    def take(self, queue: str, count: int) -> None:
        """Get and ack the first messages of a queue."""
        for expected in self._sent[self._vhost, queue][:count]:
            message = self.channel.get(queue)
            assert message is not None
            assert message.body == expected
            message.ack()
        del self._sent[self._vhost, queue][:count]


def _filled(value: object, number: int) -> object:
    """Return a header's value, where `{}` stands for the message's number."""
    return number if value == "{}" else value


def fill(broker: BrokerProcess) -> Sent:
    """Declare all there is to declare and publish what is there long before the end."""
    sent: Sent = defaultdict(list)
    with closing(Api(broker.data_dir / "management.sock")) as api:
        status, answer = api.ask("POST", "/api/definitions", definitions())
        assert status < 300, answer
        wish = {"password": PASSWORDS["bob"], "tags": ["management"]}
        assert api.change("PUT", "/api/users/bob", wish) < 300
        bob = {"configure": "", "write": "", "read": "^bills$"}
        assert api.change("PUT", "/api/permissions/shop/bob", bob) < 300
    for vhost in VHOSTS:
        with connect(uri_of(broker, vhost)) as connection:
            publisher = Publisher(connection.channel(), vhost, sent)
            for step in _STEPS[vhost]:
                step(publisher)
    return sent


# -- queues of `/` ---------------------------------------------------------------------------------


def _deep(publisher: Publisher) -> None:
    """Queues far beyond their windows, whose first messages are gone again."""
    for first in range(0, 900, 100):
        publisher.send("deep", range(first, first + 100))
        for priority in (0, 3, 1, 9):
            numbers = range(first * 10 + priority, first * 10 + priority + 20)
            publisher.send("deep priorities", numbers, priority=priority)
    publisher.take("deep", 130)


def _by_headers(publisher: Publisher) -> None:
    """Messages with every property, of which one cannot be matched."""
    publisher.send(
        "bounded.tasks",
        range(20),
        exchange="marks",
        key="anything",
        headers={"colour": "red", "n": "{}", "odd\x01": [1, "two", {"three": 3.5}]},
        content_type="text/plain",
        content_encoding="utf-8",
        correlation_id="c-1",
        reply_to="answers",
        expiration=str(LONG_MS),
        message_id="m\t1",
        type="task",
        app_id="kept",
    )
    publisher.channel.publish(b"nobody's", "marks", "anything")


def _letters(publisher: Publisher) -> None:
    """Messages that a length limit and a reader have made dead letters."""
    publisher.send("mortal", range(10))
    reader = publisher.channel.connection.channel()
    refused = reader.get("mortal")
    assert refused is not None
    refused.reject(requeue=False)
    reader.close()


def _returned(publisher: Publisher) -> None:
    """Messages that came back three times, twice and once, and some that never left."""
    publisher.send("returning", range(8))
    reader = publisher.channel.connection.channel()
    for count in (3, 2, 1):
        taken = [reader.get("returning") for _ in range(count)]
        for message in reversed(taken):
            assert message is not None
            message.nack(requeue=True)
        reader.qos()  # its answer comes when the requeues are done
    reader.close()


def _known(publisher: Publisher) -> None:
    """Messages that must be known again: by number, by a header's value, and retained ones."""
    for name in ("first", "second"):
        headers = {"x-publisher": name, "x-publishing-id": "{}"}
        publisher.send("numbered", range(10, 40), headers=headers)
        publisher.send("log", range(10, 30), "amq.topic", f"log.{name}", headers=headers)
    publisher.take("numbered", 5)
    publisher.send("unique", range(60), headers={"order-id": "{}"})
    publisher.take("unique", 20)
    publisher.send("retained", range(12))
    publisher.take("retained", 6)


def _exchanged(publisher: Publisher) -> None:
    """What a hash, a history and a delay do with messages."""
    for number in range(40):
        made = BasicProperties(delivery_mode=2)
        publisher.channel.publish_nowait(b"%d" % number, "spread", f"customer-{number}", made)
    publisher.send("history", range(7), "recent", "any")
    # A new binding is given the last four.
    publisher.channel.queue_bind("late history", "recent")
    publisher.send("late history", ())
    wait: dict[str, object] = {"x-delay": LONG_MS}
    for number in range(6):
        made = BasicProperties(delivery_mode=2, headers=wait)
        publisher.channel.publish_nowait(b"later %d" % number, "later", "due", made)
    publisher.channel.wait_for_confirms()


# -- streams ---------------------------------------------------------------------------------------


def _stream(publisher: Publisher) -> None:
    """A stream with filter values, read by names as far as here and there."""
    for number in range(200):
        country = ("at", "de", "ch")[number % 3]
        headers = {"x-stream-filter-value": country} if number % 10 else None
        publisher.send("log", [100 + number], "amq.topic", f"log.{country}", headers)
    _read_by_name(publisher.channel, "log", "billing", 57)
    _read_by_name(publisher.channel, "log", "audit\t", 25, {"x-stream-filter": "at"})


def _read_by_name(
    channel: Channel, queue: str, name: str, count: int, more: Mapping[str, object] | None = None
) -> None:
    """Read and ack so many messages under a name."""
    reader = channel.connection.channel()
    reader.qos(prefetch_count=10)
    wish: dict[str, object] = {"x-stream-consumer": name, "x-stream-offset": "first"}
    with reader.consume(queue, arguments=wish | dict(more or {}), inactivity_timeout=60) as found:
        for place, message in enumerate(found, 1):
            message.ack()
            if place == count:
                break
    reader.close()


def _super_stream(publisher: Publisher) -> None:
    """A super stream, still empty."""
    arguments = {"x-queue-type": "stream", "x-super-stream-partitions": 3}
    publisher.channel.queue_declare("sales", durable=True, arguments=arguments)


# -- staged batches --------------------------------------------------------------------------------


def stage(
    channel: Channel, queue: str, sink: str, batch: int, to: str, bodies: list[bytes]
) -> None:
    """Stage a batch of a sink."""
    arguments: dict[str, object] = {
        "x-staging-sink": sink,
        "x-staging-batch": batch,
        "x-expires": LONG_MS,
    }
    channel.queue_declare(queue, durable=True, arguments=arguments)
    headers: dict[str, object] = {"x-staged-exchange": "", "x-staged-routing-key": to}
    for each in bodies:
        made = BasicProperties(delivery_mode=2, headers=headers)
        channel.publish_nowait(each, "", queue, made)
    channel.wait_for_confirms()


def commit(channel: Channel, sink: str, batch: int, queues: list[str]) -> None:
    """Commit a batch, and return when that is decided."""
    wish = {"sink": sink, "batch": batch, "queues": queues, "unroutable": "fail"}
    channel.publish(json.dumps(wish).encode(), "", COMMIT_KEY, mandatory=True)


def _staged(publisher: Publisher) -> None:
    """Batches that are released, one that waits for room, and one that is not committed."""
    channel = publisher.channel
    for batch in (1, 2):
        bodies = [body(f"totals {batch}", number) for number in range(10)]
        stage(channel, f"totals.{batch}", "totals", batch, "results", bodies)
        commit(channel, "totals", batch, [f"totals.{batch}"])
        reader = channel.connection.channel()
        with reader.consume("results", inactivity_timeout=120) as found:
            for expected in bodies:
                message = next(found)
                assert message.body == expected
                message.ack()
        reader.close()
    # Five find room; the others are promised, and wait for it.
    bodies = [body("slow", number) for number in range(15)]
    stage(channel, "slow.7", "slow", 7, "narrow", bodies)
    commit(channel, "slow", 7, ["slow.7"])
    in_flight = [body("totals 3", number) for number in range(25)]
    stage(channel, "totals.3", "totals", 3, "results", in_flight)


# -- other vhosts ----------------------------------------------------------------------------------


def _shop(publisher: Publisher) -> None:
    publisher.send("bills", range(10), "orders", "bill.at.1")
    publisher.send("bills", range(10, 14), "orders", "nobody asked")


def _odd(publisher: Publisher) -> None:
    publisher.send(ODD, range(10), "events", ODD)
    publisher.send("odd\tstream\x01", range(5))
    _read_by_name(publisher.channel, "odd\tstream\x01", "odd reader", 2)


_STEPS: Final = {
    "/": [
        _deep, _by_headers, _letters, _returned, _known, _exchanged, _stream, _super_stream,
        _staged,
    ],
    "shop": [_shop],
    ODD: [_odd],
}  # fmt: skip


# -- the end ---------------------------------------------------------------------------------------


def finish(broker: BrokerProcess, sent: Sent) -> Channel:
    """Do what only the journal has when the broker ends; return a channel with unacked messages.

    What is due soon becomes due when the broker is down.
    """
    connection = connect(uri_of(broker, "/"))
    publisher = Publisher(connection.channel(), "/", sent)
    _read_by_name(publisher.channel, "sales", "billing", 40)
    publisher.send("deep", range(900, 930))
    publisher.take("deep", 10)
    publisher.send("expiring", range(DUE["expired letters"]), expiration=str(SOON_MS))
    publisher.send("expiring", range(5, 8), expiration=str(LONG_MS))
    for number in range(DUE["due"]):
        made = BasicProperties(delivery_mode=2, headers={"x-delay": SOON_MS})
        publisher.channel.publish_nowait(b"due %d" % number, "later", "due", made)
    publisher.channel.wait_for_confirms()
    holder = connection.channel()
    for queue in ("bounded.tasks", "returning"):
        for _ in range(3):
            assert holder.get(queue) is not None
    return holder
