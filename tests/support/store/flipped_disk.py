"""Directories in memory with flipped bytes, and the results of their four readers.

A start, reads while a broker runs, `leveret store check` and `leveret store salvage` must agree
with each other, and with the messages that consumers get.  `specimen` makes a directory with every
kind of content, `flips` damages it at random, and `differences` describes where two readers
disagree.  Everything runs in one process, on the real code of the store and the core.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from leveret.store.damage import Damage
from leveret.store.disks.recording import Image, RecordingDisk
from leveret.store.journal.files import journal_number
from leveret.store.journal.scan import JournalScan
from leveret.store.records.record import GROUP_MAGIC, PUBLISH, RECORD_HEADER_BYTES
from leveret.store.survey.identity import identify
from leveret.store.survey.salvage import Salvage, write_salvage
from leveret.store.survey.survey import Survey
from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish

FLIP_BYTES: Final = 16

#: Folders that are damaged together, with the number of places.
HARMS: Final[tuple[tuple[tuple[str, ...], int], ...]] = (
    (("journal",), 1),
    (("segments",), 1),
    (("state",), 1),
    (("journal", "segments"), 1),
    (("segments",), 3),
    (("state",), 3),
    (("state", "journal", "segments"), 2),
)

#: A pseudo kind of record: the number of queues in the record of a message.
COUNT: Final = -1
CLASSIC: Final = ("plain", "holes", "urgent", "fan")
STREAM: Final = "log"
#: A queue's window, small enough that most messages are in chunks.
WINDOW_BYTES: Final = 3_000

_WORD: Final = re.compile(rb"<m(\d+)>")


@dataclass
class Specimen:
    """A directory, and the messages that each of its queues holds."""

    image: Image
    held: dict[str, Counter[bytes]] = field(default_factory=dict)


@dataclass(frozen=True)
class Flip:
    """Bytes of a file that are inverted."""

    path: str
    at: int
    size: int

    def on(self, data: bytes) -> bytes:
        """Return the file's bytes with these inverted."""
        hit = bytes(byte ^ 0xFF for byte in data[self.at : self.at + self.size])
        return data[: self.at] + hit + data[self.at + self.size :]


class Maker:
    """Fills a specimen."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.node = Node(window_bytes=WINDOW_BYTES, seed=seed)
        self.peer = self.node.connect()
        self.count = 0

    def make(self) -> Image:
        """Make it: two checkpoints with a compaction between them, and a journal after them."""
        self.declare()
        for _ in range(2):
            self.fill(60)
            self.take("holes", 3)
            self.node.take_checkpoint()
        self.fill(40)
        self.take("plain", 4)
        self.node.compact()
        self.fill(50)
        self.node.take_checkpoint()
        self.fill(50)
        self.take("holes", 2)
        self.fill(20)
        self.node.sync()
        # The last messages show that all earlier ones were durable.
        self.fill(1)
        return self.node.image()

    def declare(self) -> None:
        """Declare the queues."""
        for queue in CLASSIC:
            arguments = {"x-max-priority": 4} if queue == "urgent" else {}
            self.peer.declare(queue, arguments=arguments)
        self.peer.declare(STREAM, arguments={"x-queue-type": "stream"})
        self.peer.call(1, "exchange.declare", exchange="all", type="fanout", durable=True)
        for queue in ("fan", STREAM):
            self.peer.call(1, "queue.bind", queue=queue, exchange="all")

    def fill(self, count: int) -> None:
        """Publish `count` messages to random queues, synced in groups."""
        for number in range(count):
            word = b"<m%d>" % self.count
            self.count += 1
            body = word + self.random.randbytes(self.random.choice((0, 90, 300))).hex().encode()
            exchange, key = self.random.choice(
                (("", "plain"), ("", "plain"), ("", "holes"), ("", "urgent"), ("all", ""),
                 ("", STREAM))
            )  # fmt: skip
            priority = self.random.randrange(4)
            self.peer.send(publish(1, exchange, key, body, delivery_mode=2, priority=priority))
            if number % 3 == 0:
                self.node.sync()
        self.node.sync()

    def take(self, queue: str, each: int) -> None:
        """Take every `each`-th message out of a queue."""
        channel = 2
        self.peer.call(channel, "channel.open")
        tags: list[int] = []
        while True:
            self.peer.send(method(channel, "basic.get", queue=queue))
            got = self.peer.take()[-1]
            if got.name != "basic.get-ok":
                break
            tags.append(got.delivery_tag)
        for tag in tags[::each]:
            self.peer.send(method(channel, "basic.ack", delivery_tag=tag))
        self.peer.call(channel, "channel.close", code=200)
        self.node.sync()


def specimen(seed: int) -> Specimen:
    """Return a directory and its content."""
    made = Specimen(Maker(seed).make())
    made.held = read(started(made.image))
    return made


def flips(
    made: Specimen, chance: random.Random, folders: tuple[str, ...], count: int, size: int
) -> list[Flip]:
    """Return flips of `size` bytes at `count` random places of files in each folder."""
    found: list[Flip] = []
    for folder in folders:
        paths = sorted(path for path in made.image.files if path.startswith(f"{folder}/"))
        ends = {path: len(made.image.files[path].rstrip(b"\0")) for path in paths}
        if folder == "journal":
            # Damage to the last group would look like a crash.
            ends[paths[-1]] = made.image.files[paths[-1]].rindex(GROUP_MAGIC)
        for path in chance.choices(paths, list(ends.values()), k=count):
            end = ends[path]
            found.append(Flip(path, chance.randrange(max(end - size, 1)), size))
    return found


def flipped(image: Image, harms: Sequence[Flip]) -> Image:
    """Return a damaged copy of an image."""
    files = dict(image.files)
    for harm in harms:
        files[harm.path] = harm.on(files[harm.path])
    return Image(files, set(image.folders))


def started(image: Image) -> Node:
    """Return a broker started on a copy of an image."""
    return Node(
        RecordingDisk(Image(dict(image.files), set(image.folders))), window_bytes=WINDOW_BYTES
    )


def _queues(node: Node) -> list[str]:
    return sorted(node.vhost.queues.by_name)


def read(node: Node) -> dict[str, Counter[bytes]]:
    """Read all queues of a broker to their ends."""
    found: dict[str, Counter[bytes]] = {}
    peer = _peer(node)
    for number, queue in enumerate(_queues(node), 1):
        stream = node.vhost.queues.by_name[queue].kind == "stream"
        arguments = {"x-stream-offset": "first"} if stream else {}
        peer.call(number, "channel.open")
        peer.call(number, "basic.qos", prefetch_count=0xFFFF)
        peer.send(
            method(
                number, "basic.consume", queue=queue, consumer_tag="r", arguments=arguments,
                no_ack=not stream,
            )
        )  # fmt: skip
        node.sync()
        bodies = [got.body for got in peer.take() if got.name == "basic.deliver"]
        found[queue] = Counter(bodies)
    return found


def _peer(node: Node) -> Peer:
    """Return a connection of a user who can log in, even if the damage removed other users."""
    node.add_user("reader", "administrator", configure=".*", write=".*", read=".*")
    peer = node.dial()
    peer.login(user="reader")
    return peer


@dataclass
class Views:
    """The results of all readers of one damaged directory."""

    started: dict[str, Counter[bytes]]
    salvaged: dict[str, Counter[bytes]]
    checked: dict[str, int]
    #: Lost messages or records: reported by a check, by queue, and by a start that read all.
    check_lost: int
    queue_lost: int
    start_lost: int
    #: True where a damaged place of the journal may have held any number of records.
    unknown: bool


def _is_unknown(damage: Damage) -> bool:
    return damage.path.startswith("journal/") and not damage.kind and damage.records != 0


def views(image: Image) -> Views:
    """Run all readers on a directory."""
    survey = Survey(RecordingDisk(Image(dict(image.files), set(image.folders))))
    for _ in survey.run():
        pass
    living = survey.holdings.living()
    checked = {
        one.name or f"leveret.recovered.{one.queue_id}": int(one.chunk_messages)
        + one.journal_only()[0]
        for one in living
    }
    keeping = Survey(RecordingDisk(Image(dict(image.files), set(image.folders))), keep=True)
    for _ in keeping.run():
        pass
    new = RecordingDisk()
    for _ in write_salvage(new, Salvage(keeping), bytes(16), 1):
        pass
    node = started(image)
    got = read(node)
    lost = node.report.lost_records + sum(int(one.records) for one in node.core.damaged)
    return Views(
        got, read(started(new.image())), checked, survey.lost,
        sum(int(one.lost) for one in living), lost,
        any(_is_unknown(damage) for damage in survey.damages),
    )  # fmt: skip


def differences(made: Specimen, harms: Sequence[Flip]) -> Iterator[str]:
    """Yield descriptions of the disagreements of the readers of a damaged directory."""
    image = flipped(made.image, harms)
    seen = views(image)
    for queue in sorted({*seen.started, *seen.salvaged, *seen.checked, *made.held}):
        start, saved = seen.started.get(queue, Counter()), seen.salvaged.get(queue, Counter())
        if start != saved:
            yield f"{queue}: the start has {_words(start - saved)}, salvage {_words(saved - start)}"
        if seen.checked.get(queue, 0) != saved.total():
            yield f"{queue}: check counts {seen.checked.get(queue, 0)}, salvage {saved.total()}"
    if seen.check_lost != seen.start_lost:
        yield f"check says that {seen.check_lost} are lost, the start {seen.start_lost}"
    yield from _untruths(made, harms, seen)


def _untruths(made: Specimen, harms: Sequence[Flip], seen: Views) -> Iterator[str]:
    """Yield descriptions of reports that differ from the messages that consumers get."""
    states = {harm.path for harm in harms if harm.path.startswith("state/")}
    if len(states) > 1:
        # The records of two damaged snapshots are unknown; some may be queues.
        return
    missing = sum((made.held[queue] - seen.started[queue]).total() for queue in made.held)
    kinds = kinds_hit(made.image, harms)
    if not kinds and any(seen.started[queue] - made.held[queue] for queue in made.held):
        yield "messages came back that were acked"
    if seen.unknown or COUNT in kinds:
        # The number of records in a wholly damaged place is unknown.
        right = seen.check_lost > 0 or missing == 0
    elif kinds <= {PUBLISH}:
        right = seen.queue_lost <= missing == seen.check_lost
    else:
        # A lost ack is one record, and the message that it removed counts if it is damaged too.
        right = missing <= seen.check_lost <= missing + 2 * len(harms)
    if not right:
        said = f"{seen.check_lost}, {seen.queue_lost} of them of queues"
        yield f"{missing} messages are lost, check says {said}"


def kinds_hit(image: Image, harms: Sequence[Flip]) -> set[int]:
    """Return the kinds of the journal's records that flips hit, by the original bytes.

    `COUNT` stands for the number of queues of a message.
    """
    kinds: set[int] = set()
    for path in {harm.path for harm in harms if harm.path.startswith("journal/")}:
        data = image.files[path]
        seed = identify(RecordingDisk(image)).seed or 0
        scan = JournalScan(data, seed, path, journal_number(path[-20:]), 1)
        while scan.next():
            begin, end = scan.start - RECORD_HEADER_BYTES, scan.end
            for harm in harms:
                if harm.path != path or harm.at >= end or begin >= harm.at + harm.size:
                    continue
                kinds.add(int(scan.kind))
                if harm.at < scan.start + 4 and scan.start < harm.at + harm.size:
                    kinds.add(COUNT)
    return kinds


def running_differences(made: Specimen, harms: Sequence[Flip]) -> Iterator[str]:
    """Yield descriptions of differences between a running broker's reads and a salvage."""
    node = started(made.image)
    for harm in harms:
        file = node.disk.open(harm.path)
        file.pwrite(harm.on(file.read(0, file.size()))[harm.at : harm.at + harm.size], harm.at)
    got, saved = read(node), views(flipped(made.image, harms)).salvaged
    for queue in sorted(made.held):
        # Messages in memory are not lost.
        if saved[queue] - got[queue]:
            yield f"{queue}: salvage has {_words(saved[queue] - got[queue])}, and no reader got it"


def _words(bodies: Counter[bytes]) -> str:
    return ",".join(sorted(word[1].decode() for body in bodies if (word := _WORD.match(body))))
