"""A pause of the broker's process is not its clients' silence.

What arrived is read before anybody is called silent.  Source: AMQP 0-9-1 section 4.2.7.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from leveret.client.asynchronous import connect
from leveret.clock import SLACK_MS, TICK_MS, LivedClock, ManualClock
from leveret.session.settings import SessionSettings
from leveret.session.states import CLOSED, CLOSING, OPEN, REFUSING_LOGIN
from leveret.wire.methods import BasicQos, BasicQosOk, ConnectionTune
from support.brokers.broker_process import BrokerProcess
from support.node.core import Node, Peer
from support.wire import raw
from support.wire.client_peer import Line, ScriptedBroker
from support.wire.client_peer import frame as wire_frame
from support.wire.raw_codec import PROTOCOL_HEADER, frame, method, publish

HEARTBEAT = frame(8, 0, b"")

#: Longer than anything that a connection waits for.
PAUSE_MS = 3_600_000

CONSUMER_TIMEOUT_MS = 10_000


class LivedNode(Node):
    """A broker in memory whose sessions are judged by the time that it lived."""

    lived: LivedClock | None = None

    def now(self) -> int:
        if self.lived is None:
            self.lived = LivedClock(self.clock)
        super().now()
        return self.lived.monotonic_ms()


def node() -> LivedNode:
    return LivedNode(settings=SessionSettings("t", consumer_timeout_ms=CONSUMER_TIMEOUT_MS))


def seconds(node: Node, count: int) -> None:
    """Let whole seconds pass, with a look at the clock at each."""
    for _ in range(count):
        node.tick(1000)


# -- what waits for a client ----------------------------------------------------------------------


def beating(node: Node) -> Peer:
    """An open connection whose next heartbeat is due."""
    peer = node.connect(heartbeat=1)
    seconds(node, 1)
    return peer


def in_handshake(node: Node) -> Peer:
    """A connection that is about to open."""
    peer = node.dial()
    peer.send(PROTOCOL_HEADER)
    peer.expect(0, "connection.start")
    seconds(node, 5)
    return peer


def closing(node: Node) -> Peer:
    """A connection whose client is about to say close-ok."""
    peer = node.connect()
    peer.send(method(1, "basic.qos", prefetch_size=1))
    assert peer.expect(0, "connection.close").code == 540
    seconds(node, 5)
    return peer


def acking(node: Node) -> Peer:
    """A connection that is about to ack."""
    peer = node.connect()
    peer.call(1, "queue.declare", queue="q")
    peer.send(publish(1, "", "q", b"x"))
    peer.call_get("q")
    seconds(node, 5)
    return peer


WAITING: dict[str, Callable[[Node], Peer]] = {
    "heartbeat": beating,
    "handshake": in_handshake,
    "close-ok": closing,
    "ack": acking,
}


@pytest.mark.parametrize("kind", WAITING)
@pytest.mark.parametrize("looks_first", [True, False])
def test_a_pause_ends_nothing_that_waits_for_a_client(kind: str, looks_first: bool) -> None:
    """Whether the loop looks at the clock or reads a socket first afterwards."""
    broker = node()
    peer = WAITING[kind](broker)
    state, channels = peer.connection.state, len(peer.connection.channels.by_number)
    other = broker.connect()
    for _ in range(3):
        broker.clock.advance(PAUSE_MS)
        if not looks_first:
            other.call(1, "basic.qos")
        # Twice: the tick that was due, and the one after it, before anything was read.
        broker.tick()
        broker.tick()
        assert peer.connection.state == state
        assert len(peer.connection.channels.by_number) == channels
        peer.send(HEARTBEAT if state in (OPEN, CLOSING) else b"")


@pytest.mark.parametrize("kind", WAITING)
def test_what_is_really_silent_ends_in_time(kind: str) -> None:
    """Also when the process was paused in between: the pause alone does not count."""
    broker = node()
    peer = WAITING[kind](broker)
    broker.clock.advance(PAUSE_MS)
    seconds(broker, 11)
    if kind == "ack":
        assert peer.expect(1, "channel.close").code == 406
    else:
        assert peer.connection.state == CLOSED


def test_the_delay_of_a_refused_login_goes_on_after_a_pause() -> None:
    broker = node()
    peer = in_handshake(broker)
    client = {"client_properties": {}, "response": b"\0guest\0wrong", "locale": "en_US"}
    peer.send(method(0, "connection.start-ok", mechanism="PLAIN", **client))
    assert peer.connection.state == REFUSING_LOGIN
    broker.clock.advance(PAUSE_MS)
    broker.tick()
    assert peer.connection.state != CLOSED
    seconds(broker, 3)
    assert peer.connection.state == CLOSED


def test_a_client_is_not_silent_before_its_socket_was_looked_at() -> None:
    """The tick comes before the reading: the loop was late by less than counts as a pause."""
    broker = node()
    peer = broker.connect(heartbeat=1)
    seconds(broker, 2)
    broker.tick(TICK_MS + SLACK_MS)
    assert peer.connection.state == OPEN
    peer.send(HEARTBEAT)
    broker.tick(TICK_MS)
    assert peer.connection.state == OPEN
    seconds(broker, 4)
    assert peer.connection.state == CLOSED


def test_a_heartbeat_goes_out_at_once_after_a_pause() -> None:
    """The client has waited for one during the whole pause."""
    broker = node()
    peer = broker.connect(heartbeat=60)
    before = peer.inbox.heartbeats
    peer.connection.resumed()
    broker.run()
    assert peer.inbox.heartbeats == before + 1


def test_lived_time_is_the_clocks_but_for_pauses() -> None:
    clock = ManualClock(1_000_000)
    lived = LivedClock(clock)
    begun = lived.monotonic_ms()
    for _ in range(100):
        clock.advance(TICK_MS + SLACK_MS)
        lived.monotonic_ms()
    assert lived.monotonic_ms() - begun == 100 * (TICK_MS + SLACK_MS)
    assert lived.paused_ms == 0
    clock.advance(TICK_MS + SLACK_MS + 1)
    assert lived.monotonic_ms() - begun == 100 * (TICK_MS + SLACK_MS) + TICK_MS
    assert lived.paused_ms == SLACK_MS + 1
    assert lived.wall_ms() == clock.wall_ms()


# -- a real process -------------------------------------------------------------------------------


class Beater:
    """Clients that send a heartbeat every quarter of a second, whatever the broker does."""

    def __init__(self, clients: list[raw.Connection]) -> None:
        self.clients = clients
        self.over = threading.Event()
        self.beats = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._beat, daemon=True)
        self.thread.start()

    def _beat(self) -> None:
        while not self.over.wait(0.25):
            for client in self.clients:
                client.socket.sendall(HEARTBEAT)
            self.beats.release()

    def wait(self, beats: int) -> None:
        """Wait until each client has sent so many more."""
        for _ in range(beats):
            assert self.beats.acquire(timeout=raw.SECONDS_MAX)

    def stop(self) -> None:
        self.over.set()
        self.thread.join()


@pytest.mark.parametrize("loop", ["true", "false"])
def test_a_stopped_process_drops_nobody_who_lives(tmp_path: Path, loop: str) -> None:
    """Twenty clients with heartbeats of 1 s, on uvloop and not, and a silent one that goes."""
    with (
        BrokerProcess(tmp_path / "data", settings={"uvloop": loop}) as broker,
        contextlib.ExitStack() as opened,
    ):
        login = raw.Login(heartbeat=1)
        clients = [opened.enter_context(raw.connect(broker.uri, login)) for _ in range(20)]
        beater = Beater(clients)
        os.kill(broker.pid, signal.SIGSTOP)
        # The pause lasts longer than two intervals.
        beater.wait(12)
        os.kill(broker.pid, signal.SIGCONT)
        with raw.connect(broker.uri, raw.Login(heartbeat=1)) as silent:
            silent.expect_heartbeats_and_end()
        # The broker has looked at its clock several times by now.
        beater.stop()
        for client in clients:
            client.open_channel(1)
            client.close()
        assert broker.output.count("missed heartbeats") == 1


def beats_while_nobody_reads(line: Line) -> None:
    """Send a heartbeat into each second of the client's pause, then answer."""
    line.handshake(ConnectionTune(channel_max=10, frame_max=131_072, heartbeat=1)).open_channel()
    line.receive(BasicQos)
    line.receive_heartbeats(2)
    line.send(wire_frame(1, BasicQosOk()))
    line.answer_close()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_our_client_reads_before_it_calls_the_broker_silent(run: Callable[..., None]) -> None:
    """Its loop stood still for more than two intervals, and the broker's heartbeats came."""

    async def scenario(uri: str) -> None:
        connection = await connect(uri)
        channel = await connection.channel()
        asked = asyncio.ensure_future(channel.qos(1))
        await asyncio.sleep(0)
        # What holds up a whole loop: a call that blocks, for more than two intervals.
        asyncio.get_running_loop().call_soon(threading.Event().wait, 2.5)
        await asked
        await connection.close()

    with ScriptedBroker(beats_while_nobody_reads) as broker:
        run(scenario(broker.uri))
