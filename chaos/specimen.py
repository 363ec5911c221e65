"""A data directory with something of everything in it, and all that is known of what it holds.

A real broker makes it: queues of which the older part lies in chunks of several segment files and
the newer part in the journal, with acks in both, a queue with priorities, a fanout, a stream, a
transaction, a deleted queue, users and policies; two snapshots.  Then it is killed.

`Specimen` remembers each message by its id: what it carries and which queues it went to.  What a
boot of the unharmed directory gives is the measure for all that are harmed.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from chaos.forks import READER, Boot, booted
from chaos.reading import Content, Reading, read_all
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api
from support.wire import raw
from support.wire.raw_codec import content, method, properties

URGENT: Final = "urgent"
STREAM: Final = "stream"
#: Declared and deleted: a damaged delete brings it back.
DELETED: Final = "deleted"
CLASSIC: Final = ("plain", "holes", URGENT, "fan")
FANOUT: Final = "everyone"

#: The ways a message takes: exchange, routing key, and the queues that get it.
WAYS: Final = (
    ("", "plain", ("plain",)),
    ("amq.topic", "a.b", ("plain",)),
    ("", "holes", ("holes",)),
    ("", URGENT, (URGENT,)),
    (FANOUT, "", ("fan", STREAM)),
    ("", STREAM, (STREAM,)),
)

#: A small window, so that most of a queue lies on the disk only.
WINDOW_BYTES: Final = 16_384

#: The settings of all brokers on a specimen: no ballast, which is zeros.
SETTINGS: Final = {"queue_window_bytes": str(WINDOW_BYTES), "ballast_bytes": "0"}

#: A journal so short that a checkpoint follows every 64 KiB.
SHORT: Final = {"journal_bytes_max": "65536"}

#: The sizes of bodies: of one frame and of more, in the journal's records and as columns.
SIZES: Final = (0, 30, 30, 200, 200, 800, 800, 3000)


@dataclass
class Specimen:
    """A directory and what is known of it."""

    directory: Path
    sent: dict[str, Content] = field(default_factory=dict)
    #: The queues that each message was routed to.
    places: dict[str, tuple[str, ...]] = field(default_factory=dict)
    #: What was taken out of a queue and acked.
    gone: set[tuple[str, str]] = field(default_factory=set)
    #: The messages of each transaction: one record holds them all.
    transactions: list[set[str]] = field(default_factory=list)
    definitions: dict[str, Any] = field(default_factory=dict)
    reading: Reading = field(default_factory=Reading)

    @property
    def settings(self) -> dict[str, str]:
        """The settings under which it is booted."""
        return dict(SETTINGS)

    @property
    def confirmed(self) -> int:
        """How many messages wait in it: each was confirmed."""
        return sum(len(queues) for queues in self.places.values()) - len(self.gone)

    def read(self, boot: Boot) -> Reading:
        """Read all queues of a broker that was booted on it or on a copy."""
        if boot.port == 0:
            return Reading(problems=[f"it did not start: {boot.said()}"])
        names = {str(queue["name"]) for queue in boot.definitions.get("queues", [])}
        login = raw.Login(user=READER, password=READER)
        with raw.Connection("127.0.0.1", boot.port) as connection:
            connection.handshake(login)
            return read_all(connection, channels_of(names), [STREAM])


def channels_of(names: set[str]) -> dict[str, int]:
    """Return the channel on which each queue is read: always the same for those that are known."""
    known = (*CLASSIC, STREAM)
    channels = {name: place + 1 for place, name in enumerate(known) if name in names}
    for place, name in enumerate(sorted(names - set(known))):
        channels[name] = len(known) + 1 + place
    return channels


@contextlib.contextmanager
def made(base: Path, seed: int) -> Iterator[Specimen]:
    """Make a specimen in the directory `base`, and take it away afterwards."""
    specimen = Specimen(base / "specimen")
    try:
        Maker(specimen, seed).make()
        (specimen.directory / "management.sock").unlink()
        with copied(specimen, base / "unharmed") as copy, booted(copy, specimen.settings) as boot:
            specimen.reading = specimen.read(boot)
            assert not specimen.reading.problems, specimen.reading.problems
            assert "damage" not in boot.said(), boot.said()
            specimen.definitions = boot.definitions
        yield specimen
    finally:
        shutil.rmtree(specimen.directory, ignore_errors=True)


@contextlib.contextmanager
def copied(specimen: Specimen, to: Path) -> Iterator[Path]:
    """Give a copy of the specimen's directory, to be harmed; it is taken away afterwards."""
    shutil.copytree(specimen.directory, to)
    try:
        yield to
    finally:
        shutil.rmtree(to, ignore_errors=True)
        to.with_name(f"{to.name}.log").unlink(missing_ok=True)


class Maker:
    """Fills a specimen through a real broker."""

    def __init__(self, specimen: Specimen, seed: int) -> None:
        self.specimen = specimen
        self.random = random.Random(seed)
        #: The tag of the newest publish on channel 1 of the connection at hand.
        self.tag = 0

    def make(self) -> None:
        """Make the directory: three lives that checkpoint, then one whose journal stays."""
        windows = self.specimen.settings
        with BrokerProcess(self.specimen.directory, settings=SHORT | windows) as broker:
            with self.opened(broker) as connection:
                self.define(connection)
            self.govern(Api(self.specimen.directory / "management.sock"))
            for _ in range(3):
                with self.opened(broker) as connection:
                    self.fill_to_checkpoint(connection)
                    self.take(connection, "holes", 3)
                broker.crash()
            with self.opened(broker) as connection:
                self.fill_to_checkpoint(connection)
            broker.kill()
        with BrokerProcess(self.specimen.directory, settings=windows) as broker:
            with self.opened(broker) as connection:
                self.take(connection, "holes", 2)
                self.commit(connection)
                self.fill(connection, 70_000)
                self.take(connection, "plain", 5)
                self.fill(connection, 30_000)
            broker.kill()

    def define(self, connection: raw.Connection) -> None:
        """Declare all that is declared over AMQP."""
        connection.call(1, "exchange.declare", exchange=FANOUT, type="fanout", durable=True)
        for queue in CLASSIC:
            arguments = {"x-max-priority": 4} if queue == URGENT else {}
            connection.declare(1, queue, durable=True, arguments=arguments)
        connection.declare(1, STREAM, durable=True, arguments={"x-queue-type": "stream"})
        for queue in ("fan", STREAM):
            connection.call(1, "queue.bind", queue=queue, exchange=FANOUT)
        connection.call(1, "queue.bind", queue="plain", exchange="amq.topic", routing_key="a.#")
        connection.declare(1, DELETED, durable=True)
        before = set(self.specimen.sent)
        self.publish(connection, [("", DELETED, (DELETED,))] * 3)
        connection.call(1, "queue.delete", queue=DELETED)
        self.specimen.gone |= {(DELETED, id_) for id_ in set(self.specimen.sent) - before}

    def govern(self, api: Api) -> None:
        """Set all that is set over HTTP."""
        for path, body in (
            ("/api/users/somebody", {"password_hash": "", "tags": "monitoring"}),
            ("/api/permissions/%2F/somebody", {"configure": "", "write": "a.*", "read": ".*"}),
            (
                "/api/policies/%2F/short",
                {"pattern": "^none$", "definition": {"max-length": 5}, "apply-to": "queues"},
            ),
        ):
            assert api.change("PUT", path, body) == 201
        api.close()

    def fill_to_checkpoint(self, connection: raw.Connection) -> None:
        """Publish until the broker has taken one more checkpoint."""
        before = self.generation()
        while self.generation() == before:
            self.fill(connection, 5_000)

    def generation(self) -> int:
        """The number of the newest snapshot, 0 without one."""
        names = [path.name for path in (self.specimen.directory / "state").iterdir()]
        return max((int(name) for name in names if name.isdecimal()), default=0)

    def fill(self, connection: raw.Connection, size: int) -> None:
        """Publish so many bytes to every queue and exchange in turn, and have them confirmed."""
        end = size + self.size()
        while self.size() < end:
            self.publish(connection, self.random.choices(WAYS, k=self.random.randrange(1, 8)))

    def size(self) -> int:
        """The bytes of all bodies."""
        return sum(len(one.body) for one in self.specimen.sent.values())

    def publish(
        self, connection: raw.Connection, batch: list[tuple[str, str, tuple[str, ...]]]
    ) -> None:
        """Publish messages and wait for the last one's confirm."""
        for exchange, key, queues in batch:
            connection.send(self.one(1, exchange, key, queues))
            self.tag += 1
        while connection.expect(1, "basic.ack").delivery_tag < self.tag:
            pass

    def one(self, channel: int, exchange: str, key: str, queues: tuple[str, ...]) -> bytes:
        """The frames of a new message."""
        specimen = self.specimen
        id_ = f"m{len(specimen.sent)}"
        word = f"<{id_}>".encode()
        body = word + self.random.randbytes(self.random.choice(SIZES)) + word
        props = properties(
            headers={"n": len(specimen.sent), "raw": self.random.randbytes(9)},
            delivery_mode=2,
            priority=self.random.randrange(1, 4),
            message_id=id_,
        )
        specimen.sent[id_] = Content(exchange, key, props, body)
        specimen.places[id_] = queues
        address = method(channel, "basic.publish", exchange=exchange, routing_key=key)
        return address + content(channel, body, props)

    def take(self, connection: raw.Connection, queue: str, each: int) -> None:
        """Take every `each`-th message out of a queue, and put the rest back."""
        channel = connection.open_channel(2)
        tags: dict[int, str] = {}
        while (got := connection.get(channel, queue, no_ack=False)) is not None:
            word = got.body[1 : got.body.index(b">")].decode()
            tags[got.delivery_tag] = word
        for place, (tag, id_) in enumerate(tags.items()):
            if place % each == 0:
                connection.send(method(channel, "basic.ack", delivery_tag=tag))
                self.specimen.gone.add((queue, id_))
        connection.call(channel, "channel.close", code=200)
        # Its confirm comes after the sync of the acks before it.
        self.publish(connection, [("", "plain", ("plain",))])

    def commit(self, connection: raw.Connection) -> None:
        """Publish in a transaction."""
        channel = connection.open_channel(3)
        connection.call(channel, "tx.select")
        before = set(self.specimen.sent)
        for queue in ("plain", "holes", "fan"):
            connection.send(self.one(channel, "", queue, (queue,)))
        connection.call(channel, "tx.commit")
        self.specimen.transactions.append(set(self.specimen.sent) - before)
        connection.call(channel, "channel.close", code=200)

    @contextlib.contextmanager
    def opened(self, broker: BrokerProcess) -> Iterator[raw.Connection]:
        """A connection that confirms on channel 1."""
        with raw.connect(broker.uri) as connection:
            connection.open_channel(1)
            connection.call(1, "confirm.select")
            self.tag = 0
            yield connection
