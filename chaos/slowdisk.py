"""A disk whose syncs take 0.2 to 5 s: who does not wait for one is served as ever (R9).

While one client floods the broker with persistent messages, others get, publish transient messages
with confirms, and hear heartbeats.  The memory stays bounded, for the flood is not read on.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from chaos import strace
from chaos.board import Row, skipped
from support.brokers.broker_process import BrokerProcess
from support.wire import raw

NAME: Final = "slowdisk"

#: How long each sync takes, in seconds.
DELAYS: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
RUNS: Final = len(DELAYS)

#: How long the others are served while the disk is slow: some syncs.
SECONDS: Final = 12.0
P99_SECONDS_MAX: Final = 0.050
#: What a flood may cost: what waits unsynced, the sockets' input, and as much again.
RSS_GROWTH_MAX: Final = 64 << 20
#: So many of the flood's messages are kept: it is not the queue that is measured.
KEPT: Final = 500
BODY: Final = bytes(10_000)


@dataclass
class Slow:
    """One delay, and what the others met."""

    delay: float
    waits: list[float] = field(default_factory=list)
    heartbeats: int = 0
    rss_growth: int = 0
    confirmed: int = 0
    sent: int = 0
    lost: int = 0
    boots: bool = False
    problems: list[str] = field(default_factory=list)

    @property
    def p99(self) -> float:
        """The wait that one in a hundred exceeded."""
        return sorted(self.waits)[len(self.waits) * 99 // 100] if self.waits else 0.0


def run(runs: int, seed: int, say: Callable[[str], None]) -> list[Row]:  # noqa: ARG001
    """Try the delays in turn."""
    if reason := strace.missing():
        return [skipped(NAME, reason)]
    found = []
    for number in range(runs):
        slow = one(DELAYS[number % len(DELAYS)])
        say(
            f"syncs of {slow.delay} s: {len(slow.waits):,} answers, p99 {slow.p99 * 1000:.1f} ms, "
            f"longest {max(slow.waits) * 1000:.1f} ms; memory grew by {slow.rss_growth >> 20} MiB"
        )
        for problem in slow.problems:
            say(problem)
        found.append(slow)
    p99 = max(slow.p99 for slow in found) * 1000
    growth = max(slow.rss_growth for slow in found) >> 20
    return [
        Row(
            "slow syncs, 0.2 to 5 s", runs, sum(slow.boots for slow in found),
            sum(slow.confirmed for slow in found), sum(slow.lost for slow in found), 0, 0,
            sum(len(slow.problems) for slow in found),
            note=f"others' p99 {p99:.1f} ms at most, memory +{growth} MiB at most",
        )
    ]  # fmt: skip


def one(delay: float) -> Slow:
    """Flood a broker whose every sync takes so long, and measure the others."""
    slow = Slow(delay)
    with tempfile.TemporaryDirectory(prefix="chaos-slow-") as place:
        data = Path(place) / "data"
        with BrokerProcess(data) as broker, raw.connect(broker.uri) as connection:
            connection.open_channel(1)
            connection.declare(1, "flood", durable=True, arguments={"x-max-length": KEPT})
            broker.terminate()
        fault = f"fdatasync:delay_enter={int(delay * 1e6)}"
        # With a filter other calls cost nothing; delays work with it.
        wrapper = [*strace.command(Path(place) / "strace", fault), "--seccomp-bpf"]
        with BrokerProcess(data, wrapper=wrapper) as broker:
            process = psutil.Process(broker.pid)
            before = process.memory_info().rss
            flood = Flood(broker.uri)
            flood.start()
            try:
                serve_others(broker.uri, slow)
                slow.rss_growth = process.memory_info().rss - before
            finally:
                broker.kill()
                flood.join()
            slow.confirmed, slow.sent = flood.confirmed, flood.sent
        judge(slow, data)
    return slow


class Flood(threading.Thread):
    """Publishes persistent messages without waiting for anything, and counts its confirms."""

    def __init__(self, uri: str) -> None:
        super().__init__(daemon=True)
        self.connection = raw.connect(uri)
        self.connection.open_channel(1)
        self.connection.call(1, "confirm.select")
        self.sent = 0
        self.confirmed = 0

    def run(self) -> None:
        """Publish until the broker is gone."""
        reader = threading.Thread(target=self.read, daemon=True)
        reader.start()
        try:
            while True:
                batch = [self.message(number) for number in range(self.sent, self.sent + 20)]
                self.connection.socket.sendall(b"".join(batch))
                self.sent += 20
        except OSError:
            reader.join()

    @staticmethod
    def message(number: int) -> bytes:
        """The frames of a message."""
        return raw.publish(1, "", "flood", b"%d." % number + BODY, delivery_mode=2)

    def read(self) -> None:
        """Hear confirms."""
        try:
            while True:
                got = self.connection.next_method()
                if got.name == "basic.ack":
                    self.confirmed = max(self.confirmed, got.delivery_tag)
        except TimeoutError:
            self.read()
        except (raw.Closed, OSError):
            return


def serve_others(uri: str, slow: Slow) -> None:
    """Get and publish what needs no sync, again and again; hear heartbeats meanwhile."""
    with raw.connect(uri, raw.Login(heartbeat=2)) as idle, raw.connect(uri) as connection:
        connection.open_channel(1)
        connection.declare(1, "transient", exclusive=True)
        connection.call(1, "confirm.select")
        end = time.monotonic() + SECONDS
        beat = 0.0
        while time.monotonic() < end:
            begun = time.monotonic()
            connection.send(raw.publish(1, "", "transient", b"x"))
            connection.expect(1, "basic.ack")
            published = time.monotonic()
            if connection.get(1, "transient") is None:
                slow.problems.append("a confirmed transient message was not there")
            slow.waits += [published - begun, time.monotonic() - published]
            if begun > beat:
                beat = begun + 1
                idle.send(raw.frame(raw.HEARTBEAT, 0, b""))
            time.sleep(0.005)
        idle.socket.settimeout(0.5)
        try:
            while idle.next_frame().kind == raw.HEARTBEAT:
                slow.heartbeats += 1
        except (TimeoutError, raw.Closed):
            pass
    if slow.p99 > P99_SECONDS_MAX:
        slow.problems.append(f"p99 of the others: {slow.p99 * 1000:.1f} ms")
    if slow.heartbeats < SECONDS / 2 - 1:
        slow.problems.append(f"only {slow.heartbeats} heartbeats in {SECONDS} s")


def judge(slow: Slow, data: Path) -> None:
    """Start on a good disk: the confirmed ones are there, in order."""
    if slow.rss_growth > RSS_GROWTH_MAX:
        slow.problems.append(f"memory grew by {slow.rss_growth >> 20} MiB")
    with BrokerProcess(data) as broker, raw.connect(broker.uri) as connection:
        slow.boots = True
        connection.open_channel(1)
        bodies = connection.drain(1, "flood")
        broker.terminate()
    numbers = [int(body.partition(b".")[0]) for body in bodies]
    # The newest confirmed one is there, and as many before it as the queue keeps.
    newest = numbers[-1] if numbers else -1
    slow.lost = max(0, slow.confirmed - 1 - newest)
    if numbers != list(range(newest - len(numbers) + 1, newest + 1)) or len(numbers) != KEPT:
        slow.problems.append("the order changed, or messages came twice")
