"""What nobody expected: it ends one connection, with 541 (AMQP 0-9-1 section 1.2), or the broker.

The connection, if what met it had changed nothing that others see and written nothing to the
journal; else the exception comes out of the core as it is, for the shell to stop the broker.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.exchanges.binding import Binding
from leveret.broker.exchanges.exchange import Declared, Exchange, Routing
from leveret.broker.queue.target import RECORDS_NONE, Target
from leveret.broker.scheduler.effects import ChunkReader
from leveret.broker.scheduler.link import Link
from leveret.message import Message
from leveret.session.settings import Tokens
from leveret.store.segments.segments import ChunkRef
from support.node.core import Node, Peer
from support.node.idle_queues import IdleQueue, IdleTarget
from support.wire.raw_codec import method, publish


class BrokenTokens(Tokens):
    """Stands for any bug below the session, in what only judges."""

    def token(self) -> str:
        raise ZeroDivisionError("no tokens left")


class BrokenTarget(IdleTarget):
    """What takes no message, and says so in no way that is expected."""

    def publish(self, message: Message) -> int:
        raise ZeroDivisionError("no queue")


class BrokenQueue(IdleQueue):
    """A queue that takes no message."""

    def new_target(self) -> Target:
        return BrokenTarget(self.core, self.name, self.queue_id, RECORDS_NONE)


class WakingTarget(IdleTarget):
    """What has its queue dispatch."""

    def __init__(self, queue: BrokenOut) -> None:
        super().__init__(queue.core, queue.name, queue.queue_id, RECORDS_NONE)
        self.queue = queue

    def publish(self, message: Message) -> int:
        self.queue.schedule()
        return 0


class BrokenOut(IdleQueue):
    """A queue that hands nothing out."""

    def new_target(self) -> Target:
        return WakingTarget(self)

    def dispatch(self, limit: int) -> bool:
        raise ZeroDivisionError("no dispatch")


class BrokenExchange(Exchange):
    """An exchange that leads nowhere."""

    def add(self, binding: Binding) -> None:
        """Index nothing."""

    def remove(self, binding: Binding) -> None:
        """Index nothing."""

    def route(self, routing: Routing) -> None:
        raise ZeroDivisionError("no route")


class NoMemory(Tokens):
    """Has no memory for a token."""

    def token(self) -> str:
        raise MemoryError


class BrokenReader(ChunkReader):
    """Reads no chunk."""

    def read(self, owner: int, ref: ChunkRef, levels: int) -> bytes:
        raise ZeroDivisionError("no reader")


class BrokenLink(Link):
    """A connection that does not bear to hear of a change."""

    def access_changed(self) -> None:
        raise ZeroDivisionError("no link")

    def check_consumers(self) -> Iterator[int]:
        return iter(())

    def synced(self, group: int) -> None:
        """Wait for nothing."""

    def spilled(self) -> None:
        """Wait for nothing."""

    def yield_turn(self) -> None:
        """Ask for nothing."""

    def take_turn(self) -> None:
        """Ask for nothing."""

    def alarm(self, blocked: bool, reason: str) -> None:
        """Publish nothing."""

    def channel_count(self) -> int:
        return 0

    def force(self, text: str) -> None:
        """End in silence."""


def put(node: Node, kind: type[IdleQueue], name: str) -> None:
    """Put a queue of a type of ours into the default vhost."""
    node.vhost.queues.by_name[name] = kind(node.core, 1000, name, QueueAttributes())


def ended(peer: Peer) -> None:
    """Check that the peer is told of 541, and nothing of the inside."""
    closed = peer.expect(0, "connection.close")
    assert closed.code == 541
    assert closed.text == "INTERNAL_ERROR - see the broker's log"
    said = [text for level, text in peer.connection.log if level == "error"]
    assert said[0].startswith("internal error: ZeroDivisionError at ")


def test_a_bug_ends_one_connection(node: Node) -> None:
    peer, neighbour = node.connect(), node.connect()
    peer.call(1, "queue.declare", queue="q")
    peer.send(publish(1, "", "q", b"kept"))
    peer.call_get("q")
    peer.connection.tokens = BrokenTokens()
    peer.send(method(1, "queue.declare", queue=""), publish(1, "", "q", b"dropped"))
    ended(peer)
    assert neighbour.call_get("q").body == b"kept"


@pytest.mark.parametrize("bytewise", [False, True])
def test_what_came_whole_before_it_stays_done_and_is_answered(node: Node, bytewise: bool) -> None:
    peer, neighbour = node.connect(), node.connect()
    peer.declare("q")
    peer.call(1, "confirm.select")
    peer.connection.tokens = BrokenTokens()
    sent = publish(1, "", "q", b"first", delivery_mode=2)
    sent += publish(1, "", "q", b"second", delivery_mode=2)
    sent += method(1, "queue.declare", queue="") + publish(1, "", "q", b"third", delivery_mode=2)
    peer.send(*[sent[at : at + 1] for at in range(len(sent))] if bytewise else [sent])
    assert peer.take() == [], "the confirm waits for the sync, and the close for the confirm"
    node.sync()
    confirmed = peer.expect(1, "basic.ack")
    assert (confirmed.delivery_tag, confirmed.multiple) == (2, True)
    ended(peer)
    assert [neighbour.call_get("q").body for _ in range(2)] == [b"first", b"second"]
    neighbour.send(method(1, "basic.get", queue="q"))
    neighbour.expect(1, "basic.get-empty")


def test_a_socket_that_goes_before_the_answer_is_no_fault(node: Node) -> None:
    peer = node.connect()
    peer.declare("q")
    peer.call(1, "confirm.select")
    peer.connection.tokens = BrokenTokens()
    peer.send(publish(1, "", "q", b"m", delivery_mode=2), method(1, "queue.declare", queue=""))
    peer.lose()
    node.sync()
    assert node.connect().call_get("q").body == b"m"


def test_a_publish_that_no_queue_has_yet_ends_the_connection(node: Node) -> None:
    """The bug is met while the arguments of the publish are resolved."""
    peer = node.connect()
    declared = Declared("x", "headers", False, False, False, {})
    node.vhost.exchanges.by_name["x"] = BrokenExchange(declared)
    peer.send(publish(1, "x", "", b"m"))
    ended(peer)


def test_a_publish_that_one_queue_took_comes_out_of_the_core(node: Node) -> None:
    peer = node.connect()
    peer.call(1, "queue.declare", queue="a")
    put(node, BrokenQueue, "b")
    for name in ("a", "b"):
        peer.call(1, "queue.bind", queue=name, exchange="amq.fanout")
    with pytest.raises(ZeroDivisionError, match="no queue"):
        peer.send(publish(1, "amq.fanout", "", b"m"))
    assert peer.take() == []


def test_a_get_that_took_something_comes_out_of_the_core() -> None:
    node = Node(window_bytes=0)
    peer = node.connect()
    peer.declare("q")
    for number in range(100):
        peer.send(publish(1, "", "q", b"%d" % number, delivery_mode=2))
    node.sync()
    node.core.reader = BrokenReader()
    node.hold_reads = True
    gets = [method(1, "basic.get", queue="q", no_ack=True)] * 100
    with pytest.raises(ZeroDivisionError, match="no reader"):
        peer.send(*gets)


def test_a_fault_after_a_record_of_the_journal_comes_out_of_the_core(node: Node) -> None:
    """The user has a new permission, and a connection of his was not told."""
    link = BrokenLink(node.core.scheduler, node.core.accounts, "broken")
    link.user = "guest"
    link.vhost_name = "/"
    node.broker.links[link] = None
    written = node.journal.unsynced_bytes
    with pytest.raises(ZeroDivisionError, match="no link"):
        node.broker.users.set_permission("guest", "/", "", "", "")
    assert node.journal.unsynced_bytes > written


def test_out_of_memory_is_never_one_connections_matter(node: Node) -> None:
    peer = node.connect()
    peer.connection.tokens = NoMemory()
    with pytest.raises(MemoryError):
        peer.send(method(1, "queue.declare", queue=""))


def test_a_fault_in_a_delivery_comes_out_of_the_core(node: Node) -> None:
    """A message has left its queue by then."""
    peer = node.connect()
    put(node, BrokenOut, "q")
    with pytest.raises(ZeroDivisionError, match="no dispatch"):
        peer.send(publish(1, "", "q", b"m"))
