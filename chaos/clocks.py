"""The machine's clock is set forward and back by an hour and by a day while a broker runs (R21).

`libfaketime` gives the process another wall clock, and leaves the clocks alone that the system too
leaves alone when somebody sets the time (monotonic, boottime).  After each step, messages, queues,
delayed messages and heartbeats must end when so much time has passed, neither earlier nor never.
The time of a line of the log tells that the process did see the step.

Invariant: what is measured is the monotonic time of the client, from the publish on.
"""

from __future__ import annotations

import random
import re
import select
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from chaos.board import Row, skipped
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api
from support.wire import raw
from support.wire.raw_codec import publish

NAME: Final = "clocks"

#: Steps of the clock, in seconds; each round takes all of them.
STEPS: Final = (3600, -3600, 86_400, -86_400)
RUNS: Final = 6 * len(STEPS)

LIBRARY: Final = "faketime/libfaketimeMT.so.1"

#: What is short ends within the run, what is long outlives it.
SHORT_MS: Final = 1500
LONG_MS: Final = 1_800_000
HEARTBEAT_SECONDS: Final = 2
#: What may pass between the end of a time and what the client hears of it, on a busy machine.
LATE_SECONDS_MAX: Final = 5.0
#: After so many seconds each must end.
DUE: Final = {
    "x-message-ttl": SHORT_MS / 1000, "expiration": SHORT_MS / 1000, "x-expires": SHORT_MS / 1000,
    "x-delay": SHORT_MS / 1000, "heartbeats": 2.0 * HEARTBEAT_SECONDS,
}  # fmt: skip
#: How far a line of the log may be from the clock that was set.
LOG_SECONDS_OFF: Final = 30.0

LONG_QUEUES: Final = ("long-ttl", "long-expiration", "long-expires")


def library() -> str:
    """Return where libfaketime is, nothing if it is not here."""
    found = sorted(Path("/usr/lib").glob(f"*/{LIBRARY}"))
    return str(found[0]) if found else ""


@dataclass
class Found:
    """What came of all steps."""

    runs: int = 0
    kept: int = 0
    early: int = 0
    problems: list[str] = field(default_factory=list)
    #: How much later than due something ended, by what it was, at most.
    late: dict[str, float] = field(default_factory=dict)

    def ended(self, what: str, due: float, took: float) -> None:
        """Judge something that ended `took` seconds after it began."""
        if took < due:
            self.early += 1
            self.problems.append(f"{what} of {due} s ended after {took:.2f} s")
        elif took > due + LATE_SECONDS_MAX:
            self.problems.append(f"{what} of {due} s ended after {took:.2f} s only")
        self.late[what] = max(self.late.get(what, 0.0), took - due)


def run(runs: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Step the clock so many times while one broker runs."""
    if not (path := library()):
        return [skipped(NAME, "libfaketime is not installed")]
    chance = random.Random(seed)
    found = Found()
    with tempfile.TemporaryDirectory(prefix="chaos-clocks-") as place:
        clock = Path(place) / "clock"
        clock.write_text("+0\n")
        # `env` becomes the broker: no process stands between.
        wrapper = [
            "env", f"LD_PRELOAD={path}", f"FAKETIME_TIMESTAMP_FILE={clock}", "FAKETIME_NO_CACHE=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
        ]  # fmt: skip
        with BrokerProcess(Path(place) / "data", wrapper=wrapper) as broker:
            offset = 0
            while found.runs < runs:
                step = STEPS[found.runs % len(STEPS)]
                offset += step
                known = len(found.problems)
                one_step(broker, clock, offset, chance, found)
                found.runs += 1
                for problem in found.problems[known:]:
                    say(f"{step:+} s: {problem}")
            if broker.terminate() != 0:
                found.problems.append(f"the broker's end: {broker.output[-2000:]}")
    late = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in found.late.items())
    return [
        Row("clock set by an hour or a day", found.runs, found.runs, found.kept, found.early, 0, 0,
            len(found.problems) - found.early, note=f"late at most: {late}")
    ]  # fmt: skip


def one_step(
    broker: BrokerProcess, clock: Path, offset: int, chance: random.Random, found: Found
) -> None:
    """Begin all that ends by time, set the clock, and wait for the ends."""
    with (
        raw.connect(broker.uri) as client,
        raw.connect(broker.uri, raw.Login(heartbeat=HEARTBEAT_SECONDS)) as beating,
        raw.connect(broker.uri, raw.Login(heartbeat=HEARTBEAT_SECONDS)) as silent,
    ):
        begun = {"heartbeats": time.monotonic()}
        client.open_channel(1)
        begun["x-expires"] = time.monotonic()
        declare(client)
        begun |= dict.fromkeys(("x-message-ttl", "expiration", "x-delay"), time.monotonic())
        fill(client)
        time.sleep(chance.uniform(0, SHORT_MS / 2000))
        clock.write_text(f"{offset:+}\n")
        told(broker, offset, found)
        waiting: dict[str, Callable[[], bool]] = {
            "x-message-ttl": lambda: count(client, "ttl") == 0,
            "expiration": lambda: count(client, "expiration") == 0,
            "x-expires": lambda: "expires" not in queues(broker),
            "x-delay": lambda: count(client, "delayed") > 0,
            "heartbeats": lambda: is_closed(silent),
        }
        last = max(begun[what] + DUE[what] for what in waiting) + 2 * LATE_SECONDS_MAX
        beat = 0.0
        while waiting and time.monotonic() < last:
            for what in [what for what, is_over in waiting.items() if is_over()]:
                del waiting[what]
                found.ended(what, DUE[what], time.monotonic() - begun[what])
            if time.monotonic() > beat:
                beat = time.monotonic() + HEARTBEAT_SECONDS / 2
                beating.send(raw.frame(raw.HEARTBEAT, 0, b""))
            time.sleep(0.02)
        found.problems += [f"{what}: no end" for what in waiting]
        # Who sends heartbeats is served yet.
        beating.open_channel(1)
        judge_long(client, found)


def declare(client: raw.Connection) -> None:
    """Declare what ends soon and what ends late, each anew."""
    later = {"type": "x-delayed-message", "durable": True}
    later["arguments"] = {"x-delayed-type": "fanout"}
    client.call(1, "exchange.declare", exchange="later", **later)
    kinds = {"ttl": "x-message-ttl", "expires": "x-expires"}
    for name in ("ttl", "expires", "expiration", "delayed", *LONG_QUEUES):
        client.call(1, "queue.delete", queue=name)
        kind = kinds.get(name.removeprefix("long-"))
        ms = LONG_MS if name.startswith("long-") else SHORT_MS
        client.declare(1, name, durable=True, arguments={kind: ms} if kind else {})
    client.call(1, "queue.bind", queue="delayed", exchange="later")
    client.call(1, "confirm.select")


def fill(client: raw.Connection) -> None:
    """Publish what ends soon and what ends late, and wait for the confirms."""
    short, long = str(SHORT_MS), str(LONG_MS)
    client.send(
        publish(1, "", "ttl", b"x", delivery_mode=2),
        publish(1, "", "expiration", b"x", delivery_mode=2, expiration=short),
        publish(1, "later", "", b"x", delivery_mode=2, headers={"x-delay": SHORT_MS}),
        publish(1, "later", "", b"x", delivery_mode=2, headers={"x-delay": LONG_MS}),
        publish(1, "", "long-ttl", b"x", delivery_mode=2),
        publish(1, "", "long-expires", b"x", delivery_mode=2),
        publish(1, "", "long-expiration", b"x", delivery_mode=2, expiration=long),
    )
    tag = 0
    while tag < 7:
        tag = client.expect(1, "basic.ack").delivery_tag


def judge_long(client: raw.Connection, found: Found) -> None:
    """What ends late is there: nothing expired before its time, and nothing came before it."""
    found.kept += len(LONG_QUEUES)
    for name in LONG_QUEUES:
        if (left := count(client, name)) != 1:
            found.early += 1
            found.problems.append(f"{name}: {left} messages are left of 1")
    if (came := count(client, "delayed")) != 1:
        found.early += 1
        found.problems.append(f"delayed: {came} messages came, and 1 is due")


def told(broker: BrokerProcess, offset: int, found: Found) -> None:
    """Have the broker log something, and look which time it gives it."""
    api = Api(broker.data_dir / "management.sock")
    api.change("PUT", f"/api/vhosts/clock{offset}-{found.runs}", {})
    api.close()
    line = broker.expect_line(f"/api/vhosts/clock{offset}-{found.runs}")
    match = re.search(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d", line)
    seen = datetime.fromisoformat(match[0]).replace(tzinfo=UTC) if match else None
    off = seen.timestamp() - time.time() - offset if seen else LOG_SECONDS_OFF
    if abs(off) >= LOG_SECONDS_OFF:
        found.problems.append(f"the process did not see its clock set by {offset} s: {line!r}")


def is_closed(connection: raw.Connection) -> bool:
    """Tell whether the broker has closed a connection, and drop the heartbeats that came."""
    try:
        while select.select([connection.socket], [], [], 0)[0]:
            if not connection.socket.recv(4096):
                return True
    except ConnectionError:
        return True
    return False


def queues(broker: BrokerProcess) -> set[str]:
    """Return the names of the queues; asking over AMQP would count as use."""
    api = Api(broker.data_dir / "management.sock")
    _, rows = api.ask("GET", "/api/queues")
    api.close()
    assert isinstance(rows, list)
    return {row["name"] for row in rows}


def count(client: raw.Connection, queue: str) -> int:
    """Return how many messages are ready."""
    return int(client.declare(1, queue, passive=True).message_count)
