"""Data directories made by a real broker, and ways to damage them.

A directory holds every kind of content: two snapshots, closed journal files and an open one, chunks
of a classic queue, a stream and a deleted queue, messages that are only in the journal, and
definitions of each kind.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from leveret.client.blocking import Channel, connect
from leveret.wire.properties import BasicProperties
from support.brokers.broker_process import BrokerProcess
from support.commands.command_process import run_leveret

#: Small enough that a few hundred messages cause several checkpoints and a deep queue.
SMALL: Final = {
    "journal_bytes_max": "65536",
    "journal_file_bytes": "65536",
    "ballast_bytes": "0",
    "queue_window_bytes": "16384",
}

PERSISTENT: Final = BasicProperties(delivery_mode=2, headers={"n": 1})

DEFINITIONS: Final = {
    "vhosts": [{"name": "shop"}],
    "users": [{"name": "ann", "password_hash": "", "tags": "monitoring"}],
    "permissions": [{"user": "ann", "vhost": "shop", "configure": "", "write": ".*", "read": ""}],
    "topic_permissions": [
        {"user": "ann", "vhost": "shop", "exchange": "amq.topic", "write": "^a", "read": "^b"}
    ],
    "policies": [
        {
            "vhost": "shop",
            "name": "ttl",
            "pattern": "^tmp",
            "apply-to": "queues",
            "definition": {"message-ttl": 60000},
            "priority": 1,
        }
    ],
    "global_parameters": [{"name": "cluster_name", "value": "here"}],
    "exchanges": [
        {
            "vhost": "shop",
            "name": "orders",
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {},
        }
    ],
    "queues": [
        {"vhost": "shop", "name": "bills", "durable": True, "auto_delete": False, "arguments": {}}
    ],
    "bindings": [
        {
            "source": "orders",
            "vhost": "shop",
            "destination": "bills",
            "destination_type": "queue",
            "routing_key": "bill.#",
            "arguments": {},
        }
    ],
}


@dataclass
class Filled:
    """A directory and its content: the bodies of each queue in order, and all definitions."""

    path: Path
    bodies: dict[str, list[bytes]]
    definitions: object


def body(queue: str, number: int) -> bytes:
    """The body of one message."""
    return f"<{queue}.{number}>".encode() * 20


def publish(channel: Channel, queue: str, first: int, count: int) -> list[bytes]:
    """Publish persistent messages and wait for their confirms."""
    sent = [body(queue, number) for number in range(first, first + count)]
    for each in sent:
        channel.publish_nowait(each, "", queue, PERSISTENT)
    channel.wait_for_confirms()
    return sent


def read_numbers(uri: str, queue: str, count: int) -> list[int]:
    """Take `count` messages with numbers as bodies from a queue or the stream `s`."""
    found: list[int] = []
    with connect(uri) as connection:
        channel = connection.channel()
        channel.qos(prefetch_count=500)
        arguments = {"x-stream-offset": "first"} if queue == "s" else {}
        with channel.consume(queue, arguments=arguments, inactivity_timeout=120) as consumer:
            for message in consumer:
                message.ack()
                found.append(int(message.body))
                if len(found) == count:
                    break
    return found


def fill(data: Path) -> Filled:
    """Let a broker fill a directory, and kill it."""
    bodies: dict[str, list[bytes]] = {"deep": [], "log": []}
    data.parent.mkdir(parents=True, exist_ok=True)
    file = data.parent / "definitions.json"
    file.write_text(json.dumps(DEFINITIONS))
    with BrokerProcess(data, settings=SMALL) as broker:
        run_leveret("ctl", "--data-dir", data, "import_definitions", file)
        with connect(broker.uri) as connection:
            channel = connection.channel()
            channel.confirm_select()
            channel.queue_declare("deep", durable=True)
            channel.queue_declare("gone", durable=True)
            channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
            for first in range(0, 1000, 100):
                for queue in bodies:
                    bodies[queue] += publish(channel, queue, first, 100)
                publish(channel, "gone", first, 10)
            for _ in range(150):
                taken = channel.get("deep")
                assert taken is not None
                taken.ack()
            del bodies["deep"][:150]
            channel.queue_delete("gone")
            # The following is only in the journal; a confirm after the acks makes them durable.
            bodies["late"] = []
            channel.queue_declare("late", durable=True)
            bodies["late"] = publish(channel, "late", 0, 5)
        definitions = definitions_of(data)
        broker.kill()
    return Filled(data, bodies, definitions)


def definitions_of(data: Path) -> object:
    """Return the exported definitions of a running broker."""
    return json.loads(run_leveret("ctl", "--data-dir", data, "export_definitions").stdout)


def take_all(channel: Channel, queue: str) -> list[bytes]:
    """Take and ack all messages of a queue."""
    found: list[bytes] = []
    while (taken := channel.get(queue)) is not None:
        found.append(taken.body)
        taken.ack()
    return found


def read_stream(channel: Channel, queue: str, count: int) -> list[bytes]:
    """Read the first messages of a stream."""
    found: list[bytes] = []
    channel.qos(100)
    arguments: dict[str, object] = {"x-stream-offset": "first"}
    with channel.consume(queue, arguments=arguments, inactivity_timeout=60) as consumer:
        for message in consumer:
            found.append(message.body)
            message.ack()
            if len(found) == count:
                break
    return found


@contextmanager
def started(data: Path) -> Iterator[tuple[BrokerProcess, Channel]]:
    """Start a broker on a directory; yield it and a channel."""
    settings = {"ballast_bytes": "0"}
    with BrokerProcess(data, settings=settings) as broker, connect(broker.uri) as connection:
        yield broker, connection.channel()


def copy_of(filled: Filled, to: Path) -> Path:
    """Return a copy of a directory, to be damaged."""
    shutil.copytree(filled.path, to, ignore=shutil.ignore_patterns("*.sock"))
    return to


def flip(path: Path, position: int) -> None:
    """Flip one bit of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        found = file.read(1)[0]
        file.seek(position)
        file.write(bytes((found ^ 0x10,)))


def bytes_of(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Return all files of a directory with their contents and modification times."""
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
