"""A broker under a hard limit of its address space: its account says no before the system does.

Clients fill it with what takes memory, a few kinds at a time: durable queues with messages, large
bindings, deep topic keys, connections with unfinished frames, unacked deliveries, streams, delays.
Each goes on until it is refused, blocked or cut off.  The process must live and know no
`MemoryError`; it is stopped in order and killed, and starts again each time under the same limit.

The limit is what the idle process has mapped and some room; the room is what the memory of a
machine is by default, so that the account has `MEMORY_SHARE` of it.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import psutil

from chaos.board import Row
from leveret.config import MEMORY_SHARE
from support.brokers.broker_process import BrokerProcess, BrokerProcessError
from support.wire import raw
from support.wire.raw_codec import METHOD, frame, header, method, publish, table

NAME: Final = "address-space"
RUNS: Final = 10

#: What the broker may map beyond what it has mapped when it is idle.
ROOM_BYTES: Final = 160 << 20

#: Kinds in one mix, and batches of one kind before the next one has its turn.
KINDS_MAX: Final = 3
BATCHES: Final = 300

#: How long a client waits for an answer before it takes the broker to say no by its silence, which
#: is how a publisher is blocked.
SILENCE_SECONDS: Final = 2.0

#: What a broker must never print.
FAULTS: Final = ("MemoryError", "Traceback", "internal error", "Cannot allocate")


def _durable(number: int) -> Iterator[bytes]:
    queue = f"deep{number % 5}"
    yield method(1, "queue.declare", queue=queue, durable=True, no_wait=True)
    for _ in range(40):
        yield publish(1, "", queue, bytes(8_000), delivery_mode=2)


def _small(_number: int) -> Iterator[bytes]:
    yield method(1, "queue.declare", queue="small", durable=True, no_wait=True)
    yield publish(1, "", "small", b"m", delivery_mode=2) * 2_000


def _large(_number: int) -> Iterator[bytes]:
    yield method(1, "queue.declare", queue="large", durable=True, no_wait=True)
    yield publish(1, "", "large", bytes(4 << 20), delivery_mode=1)


#: Many small entries of a table take five times the memory that they had on the wire.
_ENTRIES: Final = table({f"name-{one}": "v" for one in range(3_000)})[4:]


def _bindings(number: int) -> Iterator[bytes]:
    yield method(1, "queue.declare", queue="bound", durable=True, no_wait=True)
    for place in range(4):
        ends = {"queue": "bound", "exchange": "amq.direct", "routing_key": f"{number}-{place}"}
        yield method(1, "queue.bind", **ends, arguments=_ENTRIES, no_wait=True)


def _topics(number: int) -> Iterator[bytes]:
    yield method(1, "queue.declare", queue="ways", durable=True, no_wait=True)
    for place in range(200):
        key = f"{number}.{place}" + ".x" * 115
        ends = {"queue": "ways", "exchange": "amq.topic", "routing_key": key}
        yield method(1, "queue.bind", **ends, no_wait=True)


def _queues(number: int) -> Iterator[bytes]:
    for place in range(500):
        yield method(1, "queue.declare", queue=f"q{number}-{place}", durable=True, no_wait=True)


def _stream(_number: int) -> Iterator[bytes]:
    kind = {"x-queue-type": "stream"}
    yield method(1, "queue.declare", queue="s", durable=True, no_wait=True, arguments=kind)
    yield publish(1, "", "s", bytes(2_000)) * 100


def _delayed(number: int) -> Iterator[bytes]:
    values = {"type": "x-delayed-message", "durable": True, "no_wait": True}
    kind = {"x-delayed-type": "fanout"}
    yield method(1, "exchange.declare", exchange="later", arguments=kind, **values)
    later = {"x-delay": 3_000_000_000 + number}
    yield publish(1, "later", "", bytes(1_000), delivery_mode=2, headers=later) * 200


def _unacked(number: int) -> Iterator[bytes]:
    yield method(1, "queue.declare", queue="held", durable=True, no_wait=True)
    if number == 0:
        yield method(1, "basic.consume", queue="held", no_wait=True)
    yield publish(1, "", "held", b"m" * 50) * 1_000


def _wide(number: int) -> Iterator[bytes]:
    """Large deliveries that nobody acks, of as many channels as it takes."""
    queue = f"wide{number % 20}"
    channel = 2 + number % 20
    if number < 20:
        yield method(channel, "channel.open")
        yield method(channel, "queue.declare", queue=queue, durable=True, no_wait=True)
        yield method(channel, "basic.consume", queue=queue, no_wait=True)
    yield publish(1, "", queue, bytes(60_000), delivery_mode=2) * 10


def _retained(number: int) -> Iterator[bytes]:
    """Messages that were taken and acked, and that their queue keeps."""
    queue = f"kept{number % 5}"
    kind = {"x-retain-acked": "1D"}
    yield method(1, "queue.declare", queue=queue, durable=True, no_wait=True, arguments=kind)
    if number < 5:
        yield method(1, "basic.consume", queue=queue, no_wait=True)
    yield publish(1, "", queue, bytes(5_000), delivery_mode=2) * 100
    yield method(1, "basic.ack", delivery_tag=0, multiple=True)


def _transaction(number: int) -> Iterator[bytes]:
    if number == 0:
        yield method(1, "tx.select")
    yield publish(1, "", "nowhere", bytes(2_000)) * 200


#: What one client sends, batch after batch.
KINDS: Final[Mapping[str, Callable[[int], Iterator[bytes]]]] = {
    "durable": _durable, "small": _small, "large": _large, "bindings": _bindings,
    "topics": _topics, "queues": _queues, "stream": _stream, "delayed": _delayed,
    "unacked": _unacked, "transaction": _transaction, "wide": _wide, "retained": _retained,
}  # fmt: skip

#: The kind that takes many clients, and how many.
CONNECTIONS: Final = "connections"
CLIENTS: Final = 400

#: What many clients leave open: part of a method, and part of a message.
UNFINISHED: Final = (
    frame(METHOD, 1, bytes(120_000))[:100_000],
    method(1, "basic.publish", routing_key="q") + header(1, 1 << 20) + frame(3, 1, bytes(130_000)),
)


class LimitedBroker(BrokerProcess):
    """A broker process whose address space ends; `limit` none measures what it takes idle."""

    def __init__(self, data_dir: Path, memory_bytes_max: int, limit: int | None) -> None:
        wrapper = []
        if limit is not None:
            wrapper = ["sh", "-c", f'ulimit -v {limit >> 10}; exec "$@"', "sh"]
        settings = {"memory_bytes_max": str(memory_bytes_max)}
        super().__init__(data_dir, settings=settings, wrapper=wrapper)


def fill(broker: BrokerProcess, kind: str, batches: int = BATCHES) -> str:
    """Let one client send a kind of thing until the broker says no; return how it said so."""
    try:
        with raw.connect(broker.uri) as client:
            return _fill(client, kind, batches)
    except (OSError, AssertionError, raw.Closed) as error:
        return type(error).__name__


def _fill(client: raw.Connection, kind: str, batches: int) -> str:
    client.socket.settimeout(SILENCE_SECONDS)
    client.send(method(1, "channel.open"))
    for number in range(batches):
        client.send(*KINDS[kind](number), method(1, "basic.qos"))
        while (got := client.next_method()).name != "basic.qos-ok":
            if got.name in ("channel.close", "connection.close"):
                return str(got.code)
            if got.name == "connection.blocked":
                return "blocked"
    return "never"


def crowd(broker: BrokerProcess, count: int) -> str:
    """Let many clients begin what they do not end, until one is refused; return how."""
    with contextlib.ExitStack() as stack:
        for number in range(count):
            try:
                client = stack.enter_context(raw.connect(broker.uri))
                client.socket.settimeout(SILENCE_SECONDS)
                for channel in range(1, 20):
                    client.send(method(channel, "channel.open"))
                client.send(UNFINISHED[number % 2])
            except (OSError, AssertionError, raw.Closed) as error:
                return type(error).__name__
    return "never"


def fill_with(broker: BrokerProcess, kind: str) -> str:
    """Fill a broker with one kind; return how it said no."""
    return crowd(broker, CLIENTS) if kind == CONNECTIONS else fill(broker, kind)


def idle_bytes(place: Path) -> int:
    """Return what a broker has mapped that has done a little of everything."""
    with LimitedBroker(place, 1 << 30, None) as broker:
        for kind in KINDS:
            fill(broker, kind, 2)
        return int(psutil.Process(broker.pid).memory_info().vms)


def judged(
    place: Path,
    mix: list[str],
    idle: int,
    room: int = ROOM_BYTES,
    memory_bytes_max: int | None = None,
) -> list[str]:
    """Fill a broker with a mix, stop it, kill it; return what went wrong.

    `memory_bytes_max` takes the place of the share of `room` that the broker takes by itself.
    """
    share = int(room * MEMORY_SHARE)
    most = share if memory_bytes_max is None else memory_bytes_max
    faults: list[str] = []
    with LimitedBroker(place, most, idle + room) as broker:
        try:
            said = [fill_with(broker, kind) for kind in mix]
            for end in (broker.restart, broker.crash):
                if not broker.is_running():
                    faults.append(f"{mix} ended the broker ({said}): {broker.output[-2_000:]}")
                    break
                # One that has failed may never end in order, which would be waited for.
                if faults := _printed(broker, mix):
                    break
                end()
                raw.connect(broker.uri).close()
            faults = faults or _printed(broker, mix)
        except BrokerProcessError as error:
            faults.append(f"{mix}: {str(error)[-2_000:]}")
        except (OSError, AssertionError, raw.Closed) as error:
            faults.append(f"{mix}: nobody can connect any more: {error!r}")
    return faults


def _printed(broker: BrokerProcess, mix: list[str]) -> list[str]:
    return [f"{mix}: {fault} is in the log" for fault in FAULTS if fault in broker.output]


def run(runs: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Try so many mixes."""
    draw = random.Random(seed)
    kinds = [*KINDS, CONNECTIONS]
    found: list[str] = []
    boots = 0
    with tempfile.TemporaryDirectory(prefix="chaos-space-") as place:
        idle = idle_bytes(Path(place) / "idle")
        for number in range(runs):
            mix = draw.sample(kinds, draw.randint(1, KINDS_MAX))
            faults = judged(Path(place) / f"{number}", mix, idle)
            say(f"{', '.join(mix)}: {faults or 'started twice again'}")
            found += faults
            boots += not faults
    note = f"{idle >> 20} MiB idle, {ROOM_BYTES >> 20} MiB of room"
    return [Row("address space", runs, boots, 0, 0, 0, 0, len(found), note=note)]
