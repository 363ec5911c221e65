"""Delayed messages over stops, crashes and checkpoints; listing and cancelling them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.broker.delayed.pages import DELAYED_PAGE_BYTES
from leveret.broker.scheduler.costs import SLICE
from leveret.broker.stats.stats import DelayedStats, delayed_rows
from leveret.names import Name
from leveret.store.disks.recording import Image, RecordingDisk, crash_states
from support.node.core import Node, Peer, held
from support.node.delayed import (
    bind,
    declare,
    delay,
    drain,
    kept,
    listed,
    restarted,
    store_of,
)
from support.wire.raw_codec import method, properties, publish


@pytest.fixture
def ready(peer: Peer) -> Peer:
    """A peer with `e`, direct, and `q` bound to it."""
    declare(peer)
    bind(peer)
    return peer


# -- listing and cancelling ------------------------------------------------------------------------


def test_what_is_listed(ready: Peer) -> None:
    now = ready.node.clock.wall_ms()
    delay(ready, 5000, b"12345", key="k")
    ready.send(publish(1, "e", "other", b"", headers={"x-delay": "70"}))
    first, second = listed(ready.node)
    size = len(properties(headers={"x-delay": 5000}, delivery_mode=2)) + 5
    assert vars_of(first) == ("/", "e", 1, now + 5000, now, "e", "k", size, True)
    assert vars_of(second)[2:7] == (2, now + 70, now, "e", "other")
    assert not second.persistent
    assert listed(restarted(ready.node))[0].due_ms == now + 5000


def vars_of(stats: DelayedStats) -> tuple[Any, ...]:
    """The fields of a snapshot."""
    names = "vhost exchange id due_ms taken_ms source routing_key bytes persistent"
    return tuple(getattr(stats, name) for name in names.split())


def test_an_exchange_that_delays_nothing_lists_nothing(peer: Peer) -> None:
    assert list(delayed_rows("/", peer.node.vhost.exchanges.by_name["amq.direct"])) == []


def test_a_cancelled_message_does_not_come(ready: Peer) -> None:
    for ms in (10, 20, 30):
        delay(ready, ms, b"%d" % ms)
    vhost = ready.node.vhost
    assert vhost.exchanges.cancel_delayed(Name("e"), 2)
    assert not vhost.exchanges.cancel_delayed(Name("e"), 2)
    assert not vhost.exchanges.cancel_delayed(Name("e"), 9)
    assert not vhost.exchanges.cancel_delayed(Name("amq.direct"), 1)
    assert [stats.id for stats in listed(ready.node)] == [1, 3]
    assert store_of(ready.node).ready_count() == 2
    node = restarted(ready.node)
    assert [stats.id for stats in listed(node)] == [1, 3]
    node.tick(30)
    assert drain(node.connect()) == [b"10", b"30"]
    assert not node.vhost.exchanges.cancel_delayed(Name("e"), 1)


def test_ids_are_not_used_twice(ready: Peer) -> None:
    delay(ready, 10)
    ready.node.tick(10)
    node = restarted(ready.node)
    node.take_checkpoint()
    node.take_checkpoint()
    node = restarted(node)
    delay(node.connect(), 10)
    assert [stats.id for stats in listed(node)] == [2]


def test_a_purge_drops_all(ready: Peer) -> None:
    for ms in (10, 20, 30):
        delay(ready, ms)
    assert ready.node.vhost.exchanges.purge_delayed(Name("e")) == 3
    assert ready.node.vhost.exchanges.purge_delayed(Name("amq.direct")) == 0
    assert ready.node.core.memory.held_messages == 0
    assert ready.node.core.memory.held_bytes == 0
    assert not listed(restarted(ready.node))


# -- the end of the exchange -----------------------------------------------------------------------


def test_a_deleted_exchange_takes_along_what_it_delays(ready: Peer) -> None:
    delay(ready, 10)
    ready.call(1, "exchange.delete", exchange="e")
    core = ready.node.core
    assert (core.memory.held_messages, core.memory.held_bytes) == (0, 0)
    declare(ready)
    bind(ready)
    for node in (ready.node, restarted(ready.node)):
        assert listed(node) == []
        assert node.orphaned == []
        node.tick(10)
        assert drain(node.connect()) == []


def test_a_deleted_vhost_takes_along_what_it_delays(node: Node) -> None:
    vhost = node.broker.add_vhost("other")
    arguments: dict[str, object] = {"x-delayed-type": "fanout"}
    exchange = vhost.exchanges.declare(
        Name("e"), "x-delayed-message", True, False, False, arguments
    )
    assert exchange.delayed is not None
    node.broker.delete_vhost("other")
    node.sync()
    again = restarted(node)
    assert "other" not in again.broker.vhosts
    assert exchange.delayed.deleted


# -- restarts, crashes and checkpoints -------------------------------------------------------------


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("checkpoints", [0, 1, 2])
def test_every_message_of_a_durable_exchange_survives(
    ready: Peer, mode: int, checkpoints: int
) -> None:
    """Transient ones too, as in the plugin; what is due meanwhile goes at the start."""
    delay(ready, 10, b"soon", delivery_mode=mode)
    delay(ready, 5000, b"later", delivery_mode=mode)
    ready.node.sync()
    for _ in range(checkpoints):
        ready.node.take_checkpoint()
    ready.node.clock.advance(3000)
    node = restarted(ready.node)
    peer = node.connect()
    assert drain(peer) == [b"soon"]
    node.tick(1999)
    assert drain(peer) == []
    node.tick(1)
    got = peer.call_get("q")
    assert (got.body, got.redelivered) == (b"later", False)


def test_a_transient_exchange_goes_with_its_messages(peer: Peer) -> None:
    declare(peer, durable=False)
    bind(peer)
    delay(peer, 10)
    peer.call(1, "confirm.select")
    delay(peer, 20)
    assert peer.names() == ["basic.ack"], "nothing is to be synced"
    again = restarted(peer.node)
    assert "e" not in again.vhost.exchanges.by_name
    assert again.orphaned == []


def test_after_a_clean_stop_too(ready: Peer) -> None:
    delay(ready, 10)
    node = Node(RecordingDisk(ready.node.stop()), clock=ready.node.clock)
    assert node.report.clean_stop
    node.tick(10)
    assert drain(node.connect()) == [b"m"]


def test_a_release_is_one_record(ready: Peer) -> None:
    """At every crash the message is in the store or in its queues, not in both, not nowhere."""
    bind(ready, "second")
    delay(ready, 10)
    ready.node.sync()
    since = ready.node.trace_length()
    ready.node.tick(10)
    ready.node.sync()
    found = set()
    images = crash_images(ready.node, since)
    for image in images:
        again = Node(RecordingDisk(image))
        counts = [int(again.vhost.queues.by_name[name].ready_count()) for name in ("q", "second")]
        found.add((len(listed(again)), *counts))
    assert found == {(1, 0, 0), (0, 1, 1)}


def crash_images(node: Node, since: int) -> list[Image]:
    """Images that a crash at any moment since then could leave."""
    assert node.recording is not None
    chance = random.Random(7)
    return [s.image for s in crash_states(node.recording, chance.randrange, 4, since=since)]


def test_a_delete_is_one_record(ready: Peer) -> None:
    delay(ready, 10)
    ready.node.sync()
    since = ready.node.trace_length()
    ready.call(1, "exchange.delete", exchange="e")
    found = set()
    for image in crash_images(ready.node, since):
        again = Node(RecordingDisk(image))
        assert again.orphaned == []
        found.add(("e" in again.vhost.exchanges.by_name, len(listed(again))))
    assert found == {(True, 1), (False, 0)}


STEPS: dict[str, Callable[[Peer], Any]] = {
    "nothing": lambda _: None,
    "release the first": lambda peer: peer.node.tick(10),
    "cancel the second": lambda peer: peer.node.vhost.exchanges.cancel_delayed(Name("e"), 2),
    "delay more": lambda peer: delay(peer, 40, b"40"),
    "release all": lambda peer: peer.node.tick(100),
    "purge": lambda peer: peer.node.vhost.exchanges.purge_delayed(Name("e")),
}


@pytest.mark.parametrize("second", STEPS)
@pytest.mark.parametrize("first", STEPS)
def test_chunked_messages_that_went_stay_away(ready: Peer, first: str, second: str) -> None:
    """Every pair of steps between three checkpoints, then a crash: no journal tells of them."""
    node = ready.node
    for ms in (10, 20, 30):
        delay(ready, ms, b"%d" % ms)
    node.take_checkpoint()
    for step in (first, second):
        STEPS[step](ready)
        node.sync()
        node.take_checkpoint()
    node.sync()
    expected = [stats.id for stats in listed(node)], [m.message.body for m in waiting(node)]
    again = Node(RecordingDisk(node.image()), clock=node.clock)
    assert again.report.records < 3, "only the start is in the journal"
    assert ([stats.id for stats in listed(again)], [m.message.body for m in waiting(again)]) == (
        expected
    )
    again.take_checkpoint()
    again.sync()
    last = Node(RecordingDisk(again.image()), clock=node.clock)
    assert ([stats.id for stats in listed(last)], [m.message.body for m in waiting(last)]) == (
        expected
    )


def waiting(node: Node) -> list[Any]:
    """What is in `q`."""
    return held(node.classic("q"))


def test_a_checkpoint_hands_over_while_messages_leave(ready: Peer) -> None:
    """One item a slice, and time passes between them."""
    node = ready.node
    for ms in range(1, 31):
        delay(ready, ms, b"%d" % ms)
    while not node.step_checkpoint(1):
        node.tick(1)
        node.sync()
    node.sync()
    expected = len(listed(node)), len(waiting(node))
    assert sum(expected) == 30
    again = Node(RecordingDisk(node.image()), clock=node.clock)
    assert (len(listed(again)), len(waiting(again))) == expected
    again.tick(30)
    assert len(waiting(again)) == 30


@settings(max_examples=80)
@given(
    st.sampled_from([-1, 0, 2000]),
    st.lists(
        st.one_of(
            st.tuples(st.just("delay"), st.integers(1, 50)),
            st.tuples(st.just("delay"), st.sampled_from([60_000, 200_000])),
            st.tuples(st.just("tick"), st.sampled_from([25_000, 100_000])),
            st.tuples(st.just("tick"), st.integers(1, 30)),
            st.tuples(st.just("cancel"), st.integers(1, 8)),
            st.tuples(st.sampled_from(["evict", "compact", "purge"]), st.just(0)),
            st.tuples(st.sampled_from(["kill", "checkpoint", "stop"]), st.just(0)),
        ),
        max_size=25,
    ),
)
def test_any_story(window: int, steps: list[tuple[str, int]]) -> None:
    """Against a dict of deadlines: every message comes at its time, once, over any stop.

    Whether messages wait in memory or on the disk makes no difference.
    """
    node = Node(window_bytes=window)
    peer = node.connect()
    declare(peer)
    bind(peer)
    waits: dict[int, int] = {}
    expected: list[bytes] = []
    now, last = 0, 0
    for step, value in steps:
        if step == "delay":
            last += 1
            waits[last] = now + value
            delay(peer, value, b"%d" % last)
        elif step == "tick":
            now += value
            node.tick(value)
        elif step == "cancel":
            assert node.vhost.exchanges.cancel_delayed(Name("e"), value) is (
                waits.pop(value, None) is not None
            )
        elif step == "checkpoint":
            node.sync()
            node.take_checkpoint()
        elif step == "evict":
            store_of(node).evict()
            node.run()
        elif step == "compact":
            node.compact()
        elif step == "purge":
            assert node.vhost.exchanges.purge_delayed(Name("e")) == len(waits)
            waits.clear()
        else:
            node.sync()
            image = node.stop() if step == "stop" else node.image()
            node = Node(RecordingDisk(image), clock=node.clock, window_bytes=window)
            node.run()
            peer = node.connect()
        due = sorted((at, number) for number, at in waits.items() if at <= now)
        expected += [b"%d" % number for _, number in due]
        for _, number in due:
            del waits[number]
        assert [item.message.body for item in waiting(node)] == expected
        assert [stats.id for stats in listed(node)] == sorted(waits)
        check_counts(node)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_compaction_keeps_what_is_not_persistent(restarts: bool) -> None:
    """A delayed message outlives a stop whatever its mode, and so do its bytes in every count."""
    node = Node(window_bytes=0)
    peer = node.connect()
    declare(peer)
    bind(peer)
    for number in range(40):
        delay(peer, 200_000, b"%d" % number * 20, delivery_mode=1)
    node.sync()
    if restarts:
        node = Node(RecordingDisk(node.image()), clock=node.clock, window_bytes=0)
    for number in range(1, 41):
        if number % 4:
            assert node.vhost.exchanges.cancel_delayed(Name("e"), number)
    assert node.compact() > 0
    for _ in range(3):
        # The old files go, so that all is read from the copies.
        node.take_checkpoint()
        node.sync()
    check_counts(node)
    again = Node(RecordingDisk(node.image()), clock=node.clock, window_bytes=0)
    sizes = [int(message.size) for _, message in kept(store_of(node))]
    assert len(sizes) == 10
    assert store_of(again).ready_bytes() == sum(sizes)
    assert [stats.id for stats in listed(again)] == list(range(4, 41, 4))
    check_counts(again)
    again.tick(200_000)
    assert drain(again.connect()) == [b"%d" % (number - 1) * 20 for number in range(4, 41, 4)]


def check_counts(node: Node) -> None:
    """What is booked is what is there."""
    store = store_of(node)
    sizes = [int(message.size) for _, message in kept(store)]
    assert (store.ready_count(), store.ready_bytes()) == (len(sizes), sum(sizes))
    in_queue = [item.message for item in node.classic("q").ready.waiting()]
    delayed = [*store.memory.fresh.values(), *store.memory.loaded.values()]
    in_memory = [item.message for item in delayed] + in_queue
    pages = len(store.pages.by_key) * DELAYED_PAGE_BYTES
    assert node.core.memory.held_messages == len(in_memory)
    assert node.core.memory.held_bytes == sum(int(message.size) for message in in_memory) + pages
    assert store.memory.leaving == 0
    assert len(store.pages.by_key) == len(store.stored.items)


# -- damage ---------------------------------------------------------------------------------------


def test_a_store_whose_exchange_no_record_explains_is_kept(ready: Peer) -> None:
    """Damage may lose a definition; what was delayed lies in a queue of its own then."""
    delay(ready, 10)
    journal = ready.node.journal
    journal.delete("exchange", {"vhost": "/", "name": "e"})
    node = restarted(ready.node)
    (name,) = node.orphaned
    node = restarted(node)
    assert [item.message.body for item in held(node.classic(name))] == [b"m"]


def go_to(node: Node, by_ms: int) -> None:
    """Let time pass and do what is due, but read nothing from the disk."""
    node.clock.advance(by_ms)
    node.now()
    node.settle()
    node.rest()


def paged_store(node: Node) -> Peer:
    """A store with a page on the disk, all of which is due after 100 s."""
    peer = node.connect()
    declare(peer)
    bind(peer)
    for number in range(4):
        delay(peer, 100_000, b"%d" % number + bytes(70_000))
    node.run()
    store = store_of(node)
    assert store.pages.away == 4
    return peer


def test_what_is_in_memory_waits_for_a_page_that_is_being_read() -> None:
    """It comes after what is on the page, and what is due before that does not wait."""
    node = Node(window_bytes=100_000)
    peer = paged_store(node)
    delay(peer, 99_995, b"before")
    delay(peer, 100_001, b"behind")
    go_to(node, 99_990)
    assert len(node.core.wanted) == 1
    go_to(node, 20)
    assert node.classic("q").ready_count() == 1
    node.run()
    bodies = [body.rstrip(b"\0") for body in drain(peer)]
    assert bodies == [b"before", b"0", b"1", b"2", b"3", b"behind"]


def test_no_page_is_read_ahead_without_room() -> None:
    node = Node(window_bytes=100_000)
    peer = paged_store(node)
    for _ in range(3):
        delay(peer, 200_000, bytes(70_000))
    assert not store_of(node).pages.has_room()
    go_to(node, 99_000)
    assert node.core.wanted == []
    go_to(node, 1_000)
    assert len(node.core.wanted) == 1
    node.run()
    assert node.classic("q").ready_count() == 4


def test_a_page_arrives_while_the_chunks_of_its_deleted_exchange_are_forgotten() -> None:
    """There are so many of them that they go in slices."""
    node = Node(window_bytes=0)
    node.core.memory.page_bytes = 500
    peer = node.connect()
    declare(peer)
    for _ in range(SLICE + 100):
        delay(peer, 100_000, bytes(600))
        node.run()
    assert len(store_of(node).pages.by_key) > SLICE
    node.hold_reads = True
    node.tick(99_990)
    assert node.wanted
    peer.receive(method(1, "exchange.delete", exchange="e"))
    assert not node.rests()
    node.read_wanted()
    node.sync()
    assert node.rests()
    assert node.core.memory.held_bytes == node.core.memory.delayed_bytes == 0


def test_a_page_that_waits_to_be_read_before_what_is_due_lets_others_rest(ready: Peer) -> None:
    """As many pages as may are being read, of later messages; nothing can be done until then."""
    node = ready.node
    node.core.memory.window_bytes = 3_000
    node.core.memory.page_bytes = 500
    store = store_of(node)
    for _ in range(40):
        delay(ready, 20_000, bytes(200))
    store.evict()
    node.hold_reads = True
    node.sync()
    node.tick(1)
    # What is due before them is written while they are being read, and one message is in memory.
    for _ in range(5):
        delay(ready, 1_000, bytes(200))
    store.evict()
    node.sync()
    delay(ready, 2_000, b"last")
    node.tick(5_000)
    node.hold_reads = False
    node.sync()
    found = drain(ready)
    assert len(found) == 6
    assert found[-1] == b"last"
