"""The well-behaved neighbours of a hostile scenario, in a process of their own.

    python bench/neighbour.py PORT RATE

Ten clients publish RATE persistent messages a second together, each to a durable queue of its own
with confirms, and consume them.  A latency is counted from the moment when the message was due, so
that a broker which does not read for a second delays all that were due in it.  One of them logs in
anew twice a second, each time as a user whose password the broker has not verified yet.

On a line from standard input they end and print JSON: `latencies` (when due, ms until the consumer
had it; what never came counts until the end), `logins` (when, ms; -1 for a failed one) and `drops`
(when a connection was lost).
"""

from __future__ import annotations

import contextlib
import json
import struct
import sys
import threading
import time
from typing import Final

from target import COLD_PASSWORD, COLD_USERS

from support.wire import raw
from support.wire.raw_codec import method

CLIENTS: Final = 10
LOGIN_SECONDS: Final = 0.5
HEARTBEAT_SECONDS: Final = 2
BODY: Final = struct.Struct("!qd")


class Neighbour:
    """One publisher and one consumer of a queue; the first one also logs in now and then."""

    def __init__(self, number: int, port: int, rate: float) -> None:
        self.number = number
        self.queue = f"neighbour-{number}"
        self.uri = f"amqp://guest:guest@127.0.0.1:{port}/%2F"
        self.every = 1.0 / rate
        self.over = threading.Event()
        self.due: dict[int, float] = {}
        self.latencies: list[tuple[float, float]] = []
        self.logins: list[tuple[float, float]] = []
        #: When the login at hand began; 0 between two.
        self.logging_in = 0.0
        self.drops: list[float] = []

    def start(self) -> None:
        """Declare the queue and begin to work, in threads of its own."""
        with self._opened() as connection:
            connection.declare(1, self.queue, durable=True)
        works = [self._publish, self._consume]
        if self.number == 0:
            works.append(self._log_in)
        for work in works:
            threading.Thread(target=self._again, args=(work,), daemon=True).start()

    def end(self, end: float) -> None:
        """Publish no more; what has not come counts until `end`."""
        self.over.set()
        self.latencies += [(due, (end - due) * 1000) for due in list(self.due.values())]
        if self.logging_in:
            self.logins.append((self.logging_in, -1.0))

    def _opened(self) -> raw.Connection:
        connection = raw.connect(self.uri, raw.Login(heartbeat=HEARTBEAT_SECONDS))
        connection.open_channel(1)
        return connection

    def _again(self, work: object) -> None:
        """Do a work, again after each loss of its connection."""
        assert callable(work)
        while not self.over.is_set():
            try:
                work()
            except (OSError, raw.Closed, AssertionError):
                self.drops.append(time.monotonic())
                self.over.wait(0.1)

    def _publish(self) -> None:
        with self._opened() as connection:
            connection.call(1, "confirm.select")
            lost = threading.Event()
            threading.Thread(target=self._read, args=(connection, lost), daemon=True).start()
            number, due = time.monotonic_ns(), time.monotonic()
            while not self.over.is_set():
                if lost.is_set():
                    raise raw.Closed("the publisher's connection ended")
                due += self.every
                time.sleep(max(0.0, due - time.monotonic()))
                number += 1
                self.due[number] = due
                body = BODY.pack(number, due)
                connection.send(raw.publish(1, "", self.queue, body, delivery_mode=2))

    def _read(self, connection: raw.Connection, lost: threading.Event) -> None:
        """Read confirms and heartbeats until the connection ends; answer with heartbeats."""
        with contextlib.suppress(OSError, raw.Closed):
            while True:
                connection.next_frame()
        lost.set()

    def _consume(self) -> None:
        with self._opened() as connection:
            connection.call(1, "basic.qos", prefetch_count=1000)
            connection.call(1, "basic.consume", queue=self.queue)
            beaten = time.monotonic()
            while not self.over.is_set():
                got = connection.next_method()
                now = time.monotonic()
                if got.name != "basic.deliver":
                    raise raw.Closed(str(got))
                number, due = BODY.unpack(got.body)
                if self.due.pop(number, None) is not None:
                    self.latencies.append((due, (now - due) * 1000))
                connection.send(method(1, "basic.ack", delivery_tag=got.delivery_tag))
                if now - beaten > HEARTBEAT_SECONDS / 2:
                    beaten = now
                    connection.send(raw.frame(raw.HEARTBEAT, 0, b""))

    def _log_in(self) -> None:
        for number in range(COLD_USERS):
            begun = self.logging_in = time.monotonic()
            took = -1.0
            with contextlib.suppress(OSError, raw.Closed, AssertionError):
                raw.connect(self.uri, raw.Login(f"cold-{number}", COLD_PASSWORD)).close()
                took = (time.monotonic() - begun) * 1000
            self.logging_in = 0.0
            self.logins.append((begun, took))
            if self.over.wait(LOGIN_SECONDS):
                return
        self.over.wait()


def main() -> None:
    """Work until a line comes from standard input, then print what was found."""
    port, rate = int(sys.argv[1]), float(sys.argv[2])
    neighbours = [Neighbour(number, port, rate / CLIENTS) for number in range(CLIENTS)]
    for neighbour in neighbours:
        neighbour.start()
    print("ready", flush=True)
    sys.stdin.readline()
    end = time.monotonic()
    for neighbour in neighbours:
        neighbour.end(end)
    found = {
        name: [one for neighbour in neighbours for one in getattr(neighbour, name)]
        for name in ("latencies", "logins", "drops")
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
