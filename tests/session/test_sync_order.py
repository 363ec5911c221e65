"""No promise leaves before its sync: confirms, commit-oks and the -oks of durable definitions.

The recording disk's trace is the witness: when a promise was heard, the record it rests on had been
written and its file synced, in this order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from leveret.store.disk import StorageFailure
from leveret.store.disks.faulty import Fault, FaultyDisk
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer
from support.store.durable_load import Load, check_promises
from support.wire.raw_codec import method, publish

SEEDS = range(25)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_promise_leaves_before_its_sync(seed: int) -> None:
    node = Node(seed=seed)
    load = Load(node, seed)
    load.run(150)
    load.finish()
    assert check_promises(load) > 20
    assert load.unconfirmed() == []


@pytest.mark.parametrize("seed", SEEDS[:12])
def test_after_a_failed_sync_nothing_more_is_promised(seed: int) -> None:
    """Invariant I8: not for what failed, not for what comes later, not by a second try."""
    recording = RecordingDisk()
    fault = Fault("error", 12 + 3 * seed, verbs=("sync",), within="journal/")
    node = Node(FaultyDisk(recording, fault), seed=seed, recording=recording)
    load = Load(node, seed)
    with pytest.raises(StorageFailure):
        load.run(2000)
    before = load.promises()
    # The disk would do it now, as a kernel does after it dropped the pages: nobody may fall for it.
    for _ in range(3):
        load.publish()
        load.feed()
        assert node.begin_sync()
        with pytest.raises(StorageFailure, match="failed before"):
            node.write()
    assert load.promises() == before
    check_promises(load)


def test_one_seed_gives_one_run() -> None:
    def run() -> tuple[list[bytes], list[object]]:
        node = Node(seed=7)
        load = Load(node, 7)
        load.run(300)
        load.finish()
        assert node.recording is not None
        return [peer.sent_by_broker for peer in load.peers], list(node.recording.trace)

    assert run() == run()


# -- one by one ------------------------------------------------------------------------------------

DURABLE: dict[str, dict[str, Any]] = {
    "queue.declare": {"queue": "new", "durable": True},
    "exchange.declare": {"exchange": "new", "type": "topic", "durable": True},
    "queue.bind": {"queue": "q", "exchange": "x", "routing_key": "new"},
    "exchange.bind": {"destination": "x", "source": "x2", "routing_key": "new"},
    "queue.unbind": {"queue": "q", "exchange": "x", "routing_key": "k"},
    "exchange.unbind": {"destination": "x2", "source": "x", "routing_key": "k"},
    "queue.delete": {"queue": "q"},
    "exchange.delete": {"exchange": "x"},
}


def defined(node: Node) -> Peer:
    """A client with a durable queue and two exchanges, bound to each other."""
    peer = node.connect(1, 2)
    peer.declare("q")
    for name in ("x", "x2"):
        peer.call(1, "exchange.declare", exchange=name, type="topic", durable=True)
    peer.call(1, "queue.bind", queue="q", exchange="x", routing_key="k")
    peer.call(1, "exchange.bind", destination="x2", source="x", routing_key="k")
    return peer


@pytest.mark.parametrize("name", DURABLE)
def test_the_ok_of_a_definition_waits(node: Node, name: str) -> None:
    peer = defined(node)
    peer.send(method(1, name, **DURABLE[name]))
    assert peer.take() == []
    node.begin_sync()
    node.write()
    assert peer.take() == []
    node.end_sync()
    assert peer.names() == [f"{name}-ok"]


@pytest.mark.parametrize("name", DURABLE)
def test_the_ok_of_the_same_again_waits_too(node: Node, name: str) -> None:
    """A second client is not told of what the first one's sync may still lose (invariant I5)."""
    peer = defined(node)
    other = node.connect()
    peer.send(method(1, name, **DURABLE[name]))
    other.send(method(1, name, **DURABLE[name]))
    assert other.take() == []
    node.sync()
    assert other.names() == [f"{name}-ok"]
    # What is durable already costs no wait.
    other.send(method(1, name, **DURABLE[name]))
    assert other.names() == [f"{name}-ok"]


def test_the_ok_of_what_is_not_durable_does_not_wait(node: Node) -> None:
    peer = node.connect()
    peer.send(
        method(1, "queue.declare", queue="t"),
        method(1, "exchange.declare", exchange="tx", type="fanout"),
        method(1, "queue.bind", queue="t", exchange="tx"),
        method(1, "queue.delete", queue="t"),
    )
    names = ["queue.declare-ok", "exchange.declare-ok", "queue.bind-ok", "queue.delete-ok"]
    assert peer.names() == names


def test_what_follows_a_waiting_reply_waits_in_order(node: Node) -> None:
    peer = node.connect(1, 2)
    peer.send(
        method(1, "queue.declare", queue="q", durable=True),
        publish(2, "", "q", b"m"),
        method(2, "basic.get", queue="q"),
    )
    assert peer.take() == []
    node.sync()
    assert peer.names() == ["queue.declare-ok", "basic.get-ok"]


def lasting(number: int) -> bytes:
    return publish(1, "", "q", b"%d" % number, delivery_mode=2)


def test_a_confirm_waits_and_is_cumulative(node: Node, peer: Peer) -> None:
    peer.declare("q")
    peer.call(1, "confirm.select")
    peer.send(lasting(1), lasting(2))
    node.begin_sync()
    peer.send(lasting(3))
    node.write()
    assert peer.take() == []
    node.end_sync()
    confirm = peer.expect(1, "basic.ack")
    assert (confirm.delivery_tag, confirm.multiple) == (2, True)
    node.sync()
    confirm = peer.expect(1, "basic.ack")
    assert (confirm.delivery_tag, confirm.multiple) == (3, False)


TRANSIENT: dict[str, Callable[[], bytes]] = {
    "not persistent": lambda: publish(1, "", "q", b"t"),
    "to a transient queue": lambda: publish(1, "", "t", b"t", delivery_mode=2),
    "to nobody": lambda: publish(1, "amq.fanout", "", b"t", delivery_mode=2),
}


@pytest.mark.parametrize("kind", TRANSIENT)
def test_a_confirm_of_what_needs_no_sync_comes_at_once_but_never_early(
    node: Node, peer: Peer, kind: str
) -> None:
    """Never a cumulative ack over an unsynced publish."""
    peer.declare("q")
    peer.declare("t", durable=False)
    peer.call(1, "confirm.select")
    peer.send(TRANSIENT[kind]())
    assert peer.expect(1, "basic.ack").delivery_tag == 1
    peer.send(lasting(2), TRANSIENT[kind]())
    assert peer.take() == []
    node.sync()
    confirm = peer.expect(1, "basic.ack")
    assert (confirm.delivery_tag, confirm.multiple) == (3, True)


def test_a_confirm_for_a_queue_that_was_deleted_comes(node: Node, peer: Peer) -> None:
    """Behaviour 27 (deleted queue delays none)."""
    peer.declare("q")
    peer.call(1, "confirm.select")
    peer.send(lasting(1))
    deleter = node.connect()
    deleter.send(method(1, "queue.delete", queue="q"))
    node.sync()
    assert peer.expect(1, "basic.ack").delivery_tag == 1


def test_mandatory_returns_come_before_their_confirm(peer: Peer) -> None:
    """Behaviour 24 (return before confirm)."""
    peer.call(1, "confirm.select")
    peer.send(publish(1, "amq.fanout", "", b"m", mandatory=True))
    assert peer.names() == ["basic.return", "basic.ack"]
