"""Heartbeats of a session, driven by given times (section 4.2.7)."""

from __future__ import annotations

import pytest

from leveret.client.errors import ConnectionLost
from leveret.client.events import ConnectionEnded, Event
from leveret.client.uri import Parameters
from leveret.wire.frames import HEARTBEAT
from leveret.wire.methods import ConnectionBlocked
from support.wire.client_peer import Peer, frame

INTERVAL_MS = 10_000


@pytest.fixture
def beating(bytewise: bool) -> Peer:
    """A session with heartbeats of 10 s that has seen its first tick at 0."""
    peer = Peer(bytewise, Parameters(heartbeat_seconds=10)).open()
    peer.session.tick(0)
    peer.sent()
    return peer


def run_to(peer: Peer, end_ms: int) -> list[Event]:
    """Tick whenever the session wants it, up to `end_ms`."""
    events: list[Event] = []
    while (due_ms := peer.session.next_tick_ms()) is not None and due_ms <= end_ms:
        events += peer.session.tick(due_ms)
    return events


def test_an_idle_session_beats_twice_per_interval(beating: Peer) -> None:
    assert run_to(beating, INTERVAL_MS // 2 - 1) == []
    assert beating.session.data_to_send() == b""
    run_to(beating, INTERVAL_MS // 2)
    assert beating.session.data_to_send() == HEARTBEAT
    run_to(beating, INTERVAL_MS)
    assert beating.session.data_to_send() == b""


def test_what_is_sent_counts_as_a_heartbeat(beating: Peer) -> None:
    beating.channel()
    run_to(beating, INTERVAL_MS // 2)
    assert beating.session.data_to_send() == b""


def test_there_is_never_an_interval_without_a_byte(beating: Peer) -> None:
    """Whenever something was sent, the next heartbeat follows within one interval."""
    for start_ms in range(0, 2500, 100):
        peer = Peer(beating.bytewise, Parameters(heartbeat_seconds=10)).open()
        channel = peer.channel()
        now_ms = 0
        sent_ms = 0
        while now_ms < 3 * INTERVAL_MS:
            if now_ms == start_ms:
                channel.publish(b"", "", "q")
            due_ms = peer.session.next_tick_ms()
            if due_ms is not None and now_ms >= due_ms:
                peer.feed(HEARTBEAT)
                peer.session.tick(now_ms)
            if peer.session.data_to_send():
                sent_ms = now_ms
            assert now_ms - sent_ms <= INTERVAL_MS
            now_ms += 100


def test_a_broker_that_is_silent_for_two_intervals_is_gone(beating: Peer) -> None:
    beating.feed(HEARTBEAT)
    assert run_to(beating, 2 * INTERVAL_MS) == []
    (ended,) = run_to(beating, 3 * INTERVAL_MS)
    assert isinstance(ended, ConnectionEnded)
    assert isinstance(ended.error, ConnectionLost)
    assert beating.session.next_tick_ms() is None
    assert beating.session.tick(4 * INTERVAL_MS) == []


def test_any_byte_counts_as_a_heartbeat(beating: Peer) -> None:
    for number in range(1, 20):
        beating.feed(frame(0, ConnectionBlocked()))
        assert run_to(beating, number * INTERVAL_MS) == []


def test_silence_says_nothing_while_nobody_reads(beating: Peer) -> None:
    for now_ms in range(0, 10 * INTERVAL_MS, 1000):
        assert beating.session.tick(now_ms, reading=False) == []
    assert beating.session.tick(11 * INTERVAL_MS) == []


def test_without_heartbeats_there_are_no_ticks(bytewise: bool) -> None:
    peer = Peer(bytewise, Parameters(heartbeat_seconds=0)).open()
    assert peer.session.next_tick_ms() is None
    assert peer.session.tick(10**9) == []
    assert peer.sent() == []
