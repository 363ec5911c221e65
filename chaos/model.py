"""The reference broker against a real process: every step through sockets, kills and stops between.

`tests/model` compares the broker's core in memory with a plain reference broker; here the same
rules drive `leveret serve` by two connections over TCP, and what its queues and exchanges are is
asked over HTTP.  Each example is a vhost of its own.  Left out is what needs a clock that the test
moves (times to live, delays, the expiry of queues) and a disk that it holds still (groups,
checkpoints, lost syncs): these stay with `make model`.

Invariants: a step ends when a persistent message sent after it is confirmed on every connection,
twice: all that the step does is synced and heard then.  A kill comes between two steps.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final, cast
from urllib.parse import quote

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from chaos.board import Row
from model import strategies as some
from model.exchange import Binding
from model.heard import Difference
from model.machine import CONNECTIONS, MODES, STEPS, Machine
from model.reference import Reference
from support.brokers.broker_process import STOP_SECONDS_MAX, BrokerProcess
from support.http.http_api import Api
from support.wire import raw
from support.wire.raw import Method
from support.wire.raw_codec import method

NAME: Final = "model"
#: Steps.
RUNS: Final = 100_000

STEPS_PER_EXAMPLE: Final = 100
EXAMPLES_PER_SEED: Final = 10
SAID_EACH: Final = 5_000

#: Rules whose matter is time, or a disk that is held still.
LEFT_OUT: Final = frozenset(
    {"pass_time", "publish_later", "seal", "write", "checkpoint", "whole_checkpoint"}
)
#: Rules that cost a start of the process, and how much rarer they are than in memory.
RESTARTS: Final = frozenset({"crash", "stop"})
RARER: Final = 3
#: Arguments whose effect comes with time.
TIMED: Final = frozenset({"x-message-ttl", "x-expires"})

#: Where a connection asks whether all is done, and the queue that it asks with.
BARRIER_CHANNEL: Final = 9
BARRIER: Final = "barrier"
ROUNDS: Final = 2

SETTINGS: Final = settings(
    max_examples=EXAMPLES_PER_SEED,
    stateful_step_count=STEPS_PER_EXAMPLE,
    deadline=None,
    database=None,
    report_multiple_bugs=False,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)


class TimelessReference(Reference):
    """The reference broker, which cannot know in which second of the process a message died."""

    @staticmethod
    def same_content(got: Method, body: bytes, properties: dict[str, Any]) -> None:
        """Compare a content, but for the times of its deaths."""
        deaths = properties.get("headers", {}).get("x-death")
        if isinstance(deaths, list):
            found = raw.decode_properties(got.properties).get("headers", {}).get("x-death")
            times = [death.get("time") for death in found] if isinstance(found, list) else []
            for death, time in zip(deaths, times, strict=False):
                death["time"] = time
        Reference.same_content(got, body, properties)


class SocketPeer:
    """One connection, with the calls of `core.Peer` that the machine makes."""

    def __init__(self, node: SocketNode) -> None:
        self.node = node
        self.lost = False
        self.heard: list[Method] = []
        self.raw = raw.Connection("127.0.0.1", node.process.port)
        self.raw.handshake(raw.Login(vhost=node.vhost))
        self.raw.open_channel(BARRIER_CHANNEL)
        self.raw.call(BARRIER_CHANNEL, "confirm.select")

    def send(self, *parts: bytes) -> None:
        """Send bytes."""
        self.raw.send(*parts)

    def call(self, channel: int, name: str, **values: Any) -> Method:
        """Send a method and return its reply."""
        self.send(method(channel, name, **values))
        return self.expect(channel, name + "-ok")

    def expect(self, channel: int, name: str) -> Method:
        """Return the next method, which must be this one."""
        got = self.heard.pop(0) if self.heard else self.raw.next_method()
        if (got.channel, got.name) != (channel, name):
            raise Difference(f"expected {name} on {channel}: {got}")
        return got

    def take(self) -> list[Method]:
        """Return what came since the last look."""
        heard, self.heard = self.heard, []
        return heard

    def lose(self) -> None:
        """Close the socket."""
        self.lost = True
        self.raw.socket.close()

    def answer_close(self) -> None:
        """Answer the broker's word that it stops."""
        while self.raw.next_method().name != "connection.close":
            pass
        self.send(method(0, "connection.close-ok"))

    def wait(self) -> None:
        """Hear all that comes before the confirm of a message that is sent now."""
        self.send(raw.publish(BARRIER_CHANNEL, "", BARRIER, b"", delivery_mode=2))
        while True:
            got = self.raw.next_method()
            if got.channel == BARRIER_CHANNEL:
                assert got.name == "basic.ack", got
                return
            self.heard.append(got)


class SocketNode:
    """A vhost of a broker process, with the calls of `core.Node` that the machine makes."""

    def __init__(self, process: BrokerProcess, vhost: str) -> None:
        self.process = process
        self.vhost = vhost
        self.peers: list[SocketPeer] = []
        self.api = Api(process.data_dir / "management.sock")
        self.ask("PUT", f"vhosts/{vhost}", {})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        self.ask("PUT", f"permissions/{vhost}/guest", everything)
        with raw.Connection("127.0.0.1", process.port) as connection:
            connection.handshake(raw.Login(vhost=vhost)).open_channel(1)
            connection.declare(1, BARRIER, durable=True, arguments={"x-max-length": 1})

    def ask(self, how: str, path: str, body: object = None) -> Any:
        """Ask the HTTP API; an answer of 400 or more is a difference."""
        status, answer = self.api.ask(how, f"/api/{path}", body)
        if status >= 400:
            raise Difference(f"{how} {path}: {status} {answer}")
        return answer

    def restarted(self) -> None:
        """Have new connections go to the new process."""
        for peer in self.peers:
            peer.lose()
        self.peers = []
        self.api.close()

    def connect(self, *channels: int) -> SocketPeer:
        """Open a connection with these channels."""
        peer = SocketPeer(self)
        self.peers.append(peer)
        for channel in channels:
            peer.call(channel, "channel.open")
        return peer

    def settle(self) -> None:
        """Wait until the broker has done all that it was asked for, and all of it is heard."""
        self.peers = [peer for peer in self.peers if not peer.lost]
        while len(self.ask("GET", "connections")) > len(self.peers):
            pass
        for _ in range(ROUNDS):
            for peer in self.peers:
                peer.wait()

    def queues(self) -> dict[str, tuple[int, int, int]]:
        """Return what waits, what is out and how many consume, by queue."""
        return {
            row["name"]: (row["messages_ready"], row["messages_unacknowledged"], row["consumers"])
            for row in self.ask("GET", f"queues/{quote(self.vhost)}")
            if row["name"] != BARRIER
        }

    def exchanges(self) -> set[str]:
        """Return the names of the exchanges."""
        return {row["name"] for row in self.ask("GET", f"exchanges/{quote(self.vhost)}")}


class SocketMachine(Machine):
    """The machine on a process.  `process` is set before it runs."""

    process: ClassVar[BrokerProcess]
    vhosts: ClassVar[int] = 0
    restarts: ClassVar[int] = 0

    def __init__(self) -> None:
        RuleBasedStateMachine.__init__(self)
        SocketMachine.vhosts += 1
        self.there = SocketNode(self.process, f"model{SocketMachine.vhosts}")
        # What the machine asks of its node and its peers is what these have.
        self.node = cast("Any", self.there)
        self.model = TimelessReference(0)
        self.copies = {}
        self.number = 0
        self.peers = []

    def teardown(self) -> None:
        """Leave nothing behind."""
        for peer in self.there.peers:
            peer.lose()
        if self.process.is_running():
            self.there.ask("DELETE", f"vhosts/{self.there.vhost}")
        self.there.api.close()

    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        """Take a step that needs neither a clock nor a disk of the test's own."""
        steps = sorted(STEPS.items(), key=lambda item: -item[1].weight)
        names = [
            name for name, one in steps if name not in LEFT_OUT and one.when(self)
            for _ in range(one.weight * (1 if name in RESTARTS else RARER))
        ]  # fmt: skip
        name = data.draw(st.sampled_from(names), label="step")
        Machine.steps[name] += 1
        getattr(self, name)(**data.draw(STEPS[name].draws, label=name))

    def connect(self) -> None:
        """Connect all clients."""
        self.peers = []
        for number in range(CONNECTIONS):
            self.peers.append(self.connect_one(number))

    def select(self, peer: Any, at: tuple[int, int]) -> None:
        """Have a channel confirm or transact, and hear that it does."""
        mode = MODES[at[1]]
        if mode:
            peer.heard.append(peer.call(at[1], f"{mode}.select"))
            self.model.heard.add(at[0], peer.take())
            self.model.select(at, mode)

    def listen(self) -> None:
        """Note what all clients heard until all was done."""
        self.there.settle()
        super().listen()

    def finish(self) -> None:
        """End a step, all of which is synced."""
        self.model.hand_out()
        self.model.sealed()
        self.model.synced()
        self.model.answer_awaited()
        self.model.finish()
        self.compare()

    def compare(self) -> None:
        """Compare queues, their counts and the exchanges, as HTTP tells them."""
        expected = {
            name: (len(queue.ready()), queue.unacked_count(), len(queue.consumers))
            for name, queue in self.model.queues.items()
        }
        if (found := self.there.queues()) != expected:
            raise Difference(f"queues (ready, unacked, consumers): {found}, expected {expected}")
        exchanges = {
            name for name in self.there.exchanges()
            if name in self.model.exchanges or not name.startswith("amq.")
        }  # fmt: skip
        if exchanges != {"", *self.model.exchanges}:
            raise Difference(f"exchanges: {exchanges}, expected {set(self.model.exchanges)}")

    def declare_as(self, at: tuple[int, int], name: str, variant: some.Variant) -> None:
        """Declare a queue that no time changes."""
        kept = {key: value for key, value in variant.arguments.items() if key not in TIMED}
        changed = some.Variant(variant.durable, variant.auto_delete, variant.exclusive, kept)
        super().declare_as(at, name, changed)

    def bind_to(self, at: tuple[int, int], binding: Binding) -> None:
        """Make a binding, but none whose replay fills a queue that refuses.

        Its reply waits for a sync and the consumers wait for the reply: what the queue refuses
        meanwhile depends on a moment that is not seen from outside.
        """
        source = self.model.exchanges.get(binding.source)
        refusing = any(one.overflow != "drop-head" for one in self.model.queues.values())
        if source is None or not source.history or not refusing:
            super().bind_to(at, binding)

    def publish_some(
        self, at: tuple[int, int], address: tuple[str, str], properties: dict[str, Any],
        sizes: list[int], *, mandatory: bool = False,
    ) -> None:  # fmt: skip
        """Publish messages that no time changes."""
        kept = {key: value for key, value in properties.items() if key != "expiration"}
        if "headers" in kept:
            headers = kept["headers"].items()
            kept["headers"] = {key: value for key, value in headers if key != "x-delay"}
        super().publish_some(at, address, kept, sizes, mandatory=mandatory)

    def close_channel(self, at: tuple[int, int]) -> None:
        """Close a channel and open it again."""
        self.peers[at[0]].send(method(at[1], "channel.close", code=200))
        self.listen()
        self.model.answer(at, "channel.close-ok")
        self.model.release([at])
        self.finish()
        self.peers[at[0]].call(at[1], "channel.open")
        self.model.open(at)
        self.select(self.peers[at[0]], at)

    def crash(self, seed: int) -> None:
        """Kill the process."""
        self.process.crash()
        self._go_on(clean=False)

    def stop(self) -> None:
        """Stop in order."""
        os.kill(self.process.pid, signal.SIGTERM)
        for peer in self.there.peers:
            peer.answer_close()
        code = self.process.wait(STOP_SECONDS_MAX)
        if code != 0:
            raise Difference(f"the stop was in order, and its exit code {code}")
        self.model.release(list(self.model.channels))
        self.process.start()
        self._go_on(clean=True)

    def _go_on(self, *, clean: bool) -> None:
        """Work on with the new process."""
        SocketMachine.restarts += 1
        self.there.restarted()
        kept = self.model.kept()
        self.model = TimelessReference(0)
        self.model.exchanges, self.model.queues = kept.exchanges, kept.queues
        self.model.started(0, clean=clean)
        self.compare()
        self.connect()
        self.listen()
        self.finish()


def run(runs: int, seed_: int, say: Callable[[str], None]) -> list[Row]:
    """Take so many steps; a difference ends it, for the broker and the reference have parted."""
    number = seed_
    difference = ""
    confirmed = Reference.seen["ack of a publish"]
    said = taken = 0
    with tempfile.TemporaryDirectory(prefix="chaos-model-") as place:
        SocketMachine.process = BrokerProcess(Path(place) / "data")
        with SocketMachine.process:
            while taken < runs and not difference:
                seeded = seed(number)(type("SocketMachine", (SocketMachine,), {}))
                try:
                    run_state_machine_as_test(seeded, settings=SETTINGS)
                except Exception as error:  # noqa: BLE001 (a difference, or a broker that fell)
                    difference = f"seed {number}: {type(error).__name__}: {error}"
                    say("\n".join((difference, *getattr(error, "__notes__", ()))))
                number += 1
                taken = sum(Machine.steps.values())
                if taken >= said + SAID_EACH:
                    said = taken
                    say(f"{taken:,} steps, {SocketMachine.restarts:,} kills and stops")
    kills = Machine.steps["crash"]
    note = f"{taken:,} steps; {kills:,} kills and {Machine.steps['stop']:,} stops between them"
    confirmed = Reference.seen["ack of a publish"] - confirmed
    boots = SocketMachine.restarts + 1
    runs_made = kills + Machine.steps["stop"] + 1
    return [
        Row("reference broker, by sockets", runs_made, boots, confirmed, 0, 0, 0,
            int(bool(difference)), note=note)
    ]  # fmt: skip
