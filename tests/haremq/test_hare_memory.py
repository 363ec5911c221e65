"""What a HareMQ connection holds is in the broker's account, and leaves it to the byte."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.scheduler.accounts import CONNECTION_BYTES, ROUTE_BYTES
from leveret.limits import ROUTE_TARGETS_CACHED_MAX
from leveret.names import Name
from support.node.core import Node
from support.wire.hare import HarePeer, Inbox, frame
from support.wire.raw_codec import publish

#: The account may differ from what is measured by this factor: builds and versions of Python do,
#: and a buffer may be twice as large as what is in it.
FACTOR = 3

#: Things of each kind.
MANY = 500


@pytest.fixture
def node() -> Iterator[Node]:
    """A broker; nothing that the tests before it left counts in what it takes."""
    gc.collect()
    yield Node()
    tracemalloc.stop()


def channels(peer: HarePeer) -> None:
    requests = [
        frame("openChannelRequest", rid="r", cid=f"{number:0200}") for number in range(MANY)
    ]
    peer.send(*requests)


def consumers(peer: HarePeer) -> None:
    channels(peer)
    names = {"queue_name": "other", "consumer_tag": "t" * 30}
    peer.send(
        *[frame("basicConsumeRequest", rid="r", cid=f"{n:0200}", **names) for n in range(MANY)]
    )


def routes(peer: HarePeer) -> None:
    def one(number: int) -> bytes:
        properties = {"routing_key": f"key-{number:020}"}
        fields: dict[str, Any] = {"exchange_name": "amq.direct", "properties": properties}
        return frame("basicPublishRequest", rid="r", cid="c1", **fields)

    peer.send(*[one(number) for number in range(MANY)])


def unacked(peer: HarePeer) -> None:
    assert peer.consume("q")
    assert len(peer.pushes()) == MANY


def waiting_answers(peer: HarePeer) -> None:
    fields: dict[str, Any] = {"body": "", "properties": {"routing_key": "d", "delivery_mode": 2}}
    peer.send(*[frame("basicPublishRequest", rid="r" * 1000, cid="c1", **fields)] * MANY)


def input_while_halted(peer: HarePeer) -> None:
    peer.connection.halt(1 << 20)
    for _ in range(MANY):
        peer.connection.receive(bytes(300), peer.node.now())


HOLDING = [channels, consumers, routes, unacked, waiting_answers, input_while_halted]


def held(peer: HarePeer) -> int:
    """What the account says of a connection."""
    return int(peer.connection.account.bytes + peer.connection.assembling_bytes)


@pytest.mark.parametrize("hold", HOLDING)
def test_the_account_says_what_a_hare_connection_holds(
    node: Node, hold: Callable[[HarePeer], None]
) -> None:
    other = HarePeer(node)
    assert other.open()
    for name in ("q", "other"):
        assert other.queue(name)
    assert other.queue("d", durable=True)
    node.connect().send(*[publish(1, "", "q", b"", message_id=f"{n:0100}") for n in range(MANY)])
    accounts = node.core.accounts
    peer = HarePeer(node, other.shared)
    assert peer.open()
    before = held(peer)
    messages = node.core.memory.held_bytes
    gc.collect()
    tracemalloc.start()
    hold(peer)
    node.tick()
    gc.collect()
    # What the test itself keeps of the answers is no memory of the broker's.
    peer.inbox = Inbox()
    queued = int(node.core.memory.held_bytes - messages)
    measured, booked = tracemalloc.get_traced_memory()[0], held(peer) + queued - before
    assert measured / FACTOR < booked < measured * FACTOR, (measured, booked)
    # All of it goes with the connection.
    all_bytes = int(accounts.connection_bytes)
    mine = int(peer.connection.account.bytes)
    assert mine > CONNECTION_BYTES
    peer.lose()
    assert accounts.connection_bytes == all_bytes - mine
    node.sync()
    assert held(peer) == 0


def test_what_ends_on_an_open_connection_is_booked_out(node: Node) -> None:
    peer = HarePeer(node)
    assert peer.open()
    assert peer.queue("q")
    assert peer.queue("gone")
    node.tick()
    before = held(peer)
    node.connect().send(*[publish(1, "", "q", b"", message_id=f"{n}") for n in range(MANY)])
    for cid, queue in (("a", "q"), ("b", "q"), ("c", "gone")):
        assert peer.open(cid)
        assert peer.consume(queue, tag="t" * 200)
    assert len(peer.pushes()) == MANY
    node.tick()
    assert held(peer) - before > MANY * 200
    assert peer.call("deleteQueueRequest", queue_name="gone").ok
    for number in range(0, MANY, 2):
        assert peer.ack("q", str(number))
    peer.cid = "a"
    assert peer.cancel("q", "t" * 200)
    for cid in ("a", "b", "c"):
        peer.cid = cid
        assert peer.call("closeChannelRequest").ok
    node.run()
    node.tick()
    assert held(peer) == before


def test_routes_to_very_many_queues_are_not_all_remembered(node: Node) -> None:
    queues = 2_000
    peer = HarePeer(node)
    assert peer.open()
    assert peer.exchange("x", 2)
    for number in range(queues):
        queue = Name(f"q{number}")
        node.vhost.queues.declare(None, queue, QueueAttributes())
        node.vhost.exchanges.bind(Name("x"), queue, True, "", {}, None)
    before = held(peer)
    most = before + 8 * ROUTE_TARGETS_CACHED_MAX + 64 * (ROUTE_BYTES + 100)
    for number in range(2 * ROUTE_TARGETS_CACHED_MAX // queues):
        assert peer.publish("x", "", f"k{number}")
        assert held(peer) < most
    # The routes of a topology that has changed hold what was deleted.
    assert held(peer) > before + 8 * queues
    assert peer.bind("x", "q0", "once more")
    node.tick()
    assert held(peer) == before


def test_a_connection_that_is_over_waits_for_no_collector(node: Node) -> None:
    """What has lived for long is nearly never collected."""
    before = 0
    gc.collect()
    gc.disable()
    try:
        # What is kept of the first one serves all others.
        for _ in range(3):
            before = sessions()
            peer = HarePeer(node)
            assert peer.open()
            assert peer.queue("q")
            assert peer.consume("q", tag="t")
            assert peer.publish("", "q", "m")
            peer.send(frame("basicPublishRequest", rid="r", cid="c1", exchange_name="x")[:-5])
            peer.lose()
            del peer
            node.run()
            # Longer than a consumer waits for its first push.
            node.tick(10)
        assert sessions() == before
    finally:
        gc.enable()


def sessions() -> int:
    """How many objects of connections there are."""
    rooms = ("leveret.session.", "leveret.wire.")
    return sum(str(type(one).__module__).startswith(rooms) for one in gc.get_objects())
