"""Nanoseconds per operation of the codec's main paths, on the build that is installed.

    python bench/wire_codec.py [seconds per path, default 0.2]

Each figure is the best of five runs of one path in a row, so that a busy machine blurs it little.
The loop itself is interpreted and its cost, measured on an empty call, is taken off.
"""

from __future__ import annotations

import sys
import timeit
from collections.abc import Callable

from leveret.wire.buffer import COMPILED, BytesWriter
from leveret.wire.edit import edit_headers
from leveret.wire.frames import (
    FrameReader,
    write_body,
    write_header,
    write_method,
)
from leveret.wire.method import Method, payload
from leveret.wire.methods import (
    BasicAck,
    BasicDeliver,
    BasicPublish,
    QueueDeclare,
    decode_method,
)
from leveret.wire.properties import (
    BasicProperties,
    decode_properties,
    property_expiration,
    property_headers,
    skim_properties,
)
from leveret.wire.tables import read_table, skim_table, write_table

HEADERS: dict[str, object] = {
    "source": "sshd",
    "severity": "error",
    "count": 17,
    "ratio": 0.5,
    "retry": True,
}
RUNS = 5
PIECE = 262_144


def main(seconds: float) -> None:
    """Measure and print every path."""
    print(f"build: {'compiled' if COMPILED else 'pure'}")
    floor = best(lambda: None, seconds)
    for name, (run, count) in paths().items():
        print(f"{name:<44} {(best(run, seconds) - floor) / count:10.1f} ns")


def best(run: Callable[[], object], seconds: float) -> float:
    """Return the least nanoseconds that one call took on average in a run."""
    timer = timeit.Timer(run)
    calls, _ = timer.autorange()
    calls = max(1, int(calls * seconds / 0.2 / RUNS))
    return min(timer.repeat(RUNS, calls)) / calls * 1e9


def paths() -> dict[str, tuple[Callable[[], object], int]]:
    """Return what is measured: a call and how many operations it stands for."""
    plain = BasicProperties(delivery_mode=2).encode()
    rich = BasicProperties(headers=HEADERS, delivery_mode=2, expiration="60000").encode()
    w = BytesWriter()
    write_table(w, HEADERS)
    table = w.getvalue()
    piece, frames = publishes()
    return {
        "skim_properties: delivery_mode": (lambda: skim_properties(plain, 0, len(plain)), 1),
        "skim_properties: 5 headers, 2 more": (lambda: skim_properties(rich, 0, len(rich)), 1),
        "skim_table: 5 entries": (lambda: skim_table(table, 0, len(table)), 1),
        "read_table: 5 entries": (lambda: read_table(table, 0, len(table)), 1),
        "write_table: 5 entries": (lambda: write_table(BytesWriter(), HEADERS), 1),
        "decode_properties: 5 headers, 2 more": (lambda: decode_properties(rich), 1),
        "property_expiration": (lambda: property_expiration(rich), 1),
        "property_headers: 5": (lambda: property_headers(rich), 1),
        "edit_headers: 2 more": (lambda: edit_headers(rich, [], {"x-a": 1, "x-b": 2}), 1),
        **method_paths(),
        "FrameReader: a frame of a 256 KiB piece": (lambda: read(piece), frames),
        "write a delivery of 16 B (3 frames)": (deliver, 1),
    }


def method_paths() -> dict[str, tuple[Callable[[], object], int]]:
    """Return the paths of single methods."""
    methods: list[Method] = [
        BasicAck(delivery_tag=7, multiple=True),
        BasicPublish(exchange="logs", routing_key="sshd.error"),
        QueueDeclare(queue="work", durable=True, arguments={"x-message-ttl": 60_000}),
    ]
    found: dict[str, tuple[Callable[[], object], int]] = {}
    for method in methods:
        raw = payload(method)
        found[f"decode_method: {method.NAME}"] = (
            lambda raw=raw: decode_method(raw, 0, len(raw)),  # type: ignore[misc]
            1,
        )
        found[f"write_method: {method.NAME}"] = (
            lambda method=method: write_method(BytesWriter(), 1, method),  # type: ignore[misc]
            1,
        )
    return found


def publishes() -> tuple[bytes, int]:
    """Return one piece of input full of publishes, and how many frames it holds."""
    w = BytesWriter()
    frames = 0
    while len(w) < PIECE:
        write_method(w, 1, BasicPublish(exchange="logs", routing_key="sshd.error"))
        write_header(w, 1, 60, 16, BasicProperties(delivery_mode=2).encode())
        write_body(w, 1, bytes(16), 131_072)
        frames += 3
    return w.getvalue(), frames


def read(piece: bytes) -> None:
    """Find every frame of `piece`."""
    reader = FrameReader()
    reader.feed(piece)
    while reader.next():
        pass


def deliver() -> None:
    """Write what a consumer gets for one message, with no part prepared."""
    w = BytesWriter()
    write_method(w, 1, BasicDeliver("ctag", 7, False, "logs", "sshd.error"))
    write_header(w, 1, 60, 16, b"\x10\x00\x02")
    write_body(w, 1, bytes(16), 131_072)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 0.2)
