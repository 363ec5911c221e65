"""What was begun with a right ends when the right goes: at once, and not when it would have ended.

HTTP requests are tried on the real listener on TCP over a broker in memory, so that what ends them
is seen in the one loop that all of it runs in: nothing here waits for a time to pass.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.sinks.commit import COMMIT_KEY
from leveret.broker.stream.stream import Stream
from leveret.broker.users.users import User, Users, hash_password
from leveret.management.gate import Gate
from leveret.names import Name
from support.hostile.hostile_node import HostileNode, Tally
from support.node.core import Node, Peer
from support.node.staged import stage, stage_queue
from support.node.tags import set_tags
from support.wire.raw_codec import method, publish

#: Longer than any test: an answer that comes does not come because the time is up.
_WAIT_MS = 60_000

#: Turns of the loop in which a request is begun, by far.
_TURNS_MAX = 1_000_000

_POLL = b"/api/streams/h/s/chunks?offset=1000000&wait_ms=%d" % _WAIT_MS


def basic(user: str, password: str) -> bytes:
    """The credentials of a request."""
    return b"Basic " + base64.b64encode(f"{user}:{password}".encode())


@dataclass
class Served:
    """A broker that listens, and its user `reader`, who may read the stream `s` in `h`."""

    hostile: HostileNode

    @property
    def node(self) -> Node:
        return self.hostile.node

    @property
    def users(self) -> Users:
        return self.node.broker.users

    @property
    def stream(self) -> Stream:
        found = self.node.broker.vhosts["h"].queues.by_name["s"]
        assert isinstance(found, Stream)
        return found

    async def begun(self, is_begun: Callable[[], bool]) -> None:
        """Let the loop run until a request is so far."""
        for _ in range(_TURNS_MAX):
            if is_begun():
                return
            await asyncio.sleep(0)
        raise AssertionError("the request was not begun")


def served(directory: Path) -> Served:
    """Make one."""
    found = Served(HostileNode(directory, Tally()))
    found.users.put(User("reader", hash_password(b"salt", b"reader"), []))
    found.users.set_permission("reader", "h", "", "", "^(s|parts.*)$")
    found.users.set_permission("reader", "/", "", "", ".*")
    found.node.sync()
    return found


def permission_cleared(broker: Served) -> None:
    broker.users.clear_permission("reader", "h")


def read_taken(broker: Served) -> None:
    broker.users.set_permission("reader", "h", ".*", ".*", "^other$")


def user_deleted(broker: Served) -> None:
    broker.users.delete("reader")


def password_changed(broker: Served) -> None:
    broker.users.change_password(
        "reader", hash_password(b"salt", b"new"), "rabbit_password_hashing_sha256"
    )


def user_replaced(broker: Served) -> None:
    broker.users.put(User("reader", hash_password(b"tlas", b"reader"), []))


def vhost_deleted(broker: Served) -> None:
    broker.node.broker.delete_vhost("h")


ENDS = [
    (permission_cleared, 403),
    (read_taken, 403),
    (user_deleted, 401),
    (password_changed, 401),
    (user_replaced, 401),
    (vhost_deleted, 403),
]


async def gone(writer: asyncio.StreamWriter) -> None:
    """Close a connection, and wait for its end."""
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@pytest.mark.parametrize(("revoke", "status"), ENDS)
def test_a_long_poll_ends_with_the_right(
    tmp_path: Path, revoke: Callable[[Served], None], status: int
) -> None:
    async def run() -> None:
        broker = served(tmp_path)
        async with broker.hostile.serving():
            wire = broker.hostile.tcp
            poll = asyncio.create_task(wire.ask("GET", _POLL, None, basic("reader", "reader")))
            await broker.begun(lambda: bool(broker.stream.watchers))
            revoke(broker)
            found, body = await poll
            assert found == status, body
            assert json.loads(body)["error"] in ("forbidden", "not_authorised")

    asyncio.run(run())


def test_a_long_poll_goes_on_where_the_right_stays(tmp_path: Path) -> None:
    """Another tag, another's change, more rights, and a change in another vhost end nothing."""

    async def run() -> None:
        broker = served(tmp_path)
        async with broker.hostile.serving():
            wire, users = broker.hostile.tcp, broker.users
            end = int(broker.stream.visible_end)
            path = b"/api/streams/h/s/chunks?offset=%d&wait_ms=%d" % (end, _WAIT_MS)
            poll = asyncio.create_task(wire.ask("GET", path, None, basic("reader", "reader")))
            await broker.begun(lambda: bool(broker.stream.watchers))
            set_tags(users, "reader", ["monitoring"])
            users.set_permission("reader", "h", ".*", ".*", ".*")
            users.clear_permission("reader", "/")
            users.clear_permission("u", "h")
            assert not poll.done()
            peer = broker.node.connect_as("guest", vhost="h")
            peer.send(publish(1, "", "s", b"more"))
            broker.node.sync()
            found, body = await poll
            assert found == 200
            assert b"more" in body

    asyncio.run(run())


@pytest.mark.parametrize(("revoke", "status"), ENDS)
def test_a_download_that_is_open_ends_with_the_right(
    tmp_path: Path, revoke: Callable[[Served], None], status: int
) -> None:
    """What was sent cannot be taken back: the connection ends, and the answer never looks whole."""

    async def run() -> None:
        broker = served(tmp_path)
        peer = broker.node.connect_as("guest", vhost="h")
        for _ in range(16):
            peer.send(publish(1, "", "s", b"x" * 1_000_000))
            broker.node.sync()
        async with broker.hostile.serving():
            port = broker.hostile.tcp.port
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=65_536)
            head = b"GET /api/streams/h/s/chunks?max_bytes=16000000 HTTP/1.1\r\nHost: localhost\r\n"
            writer.write(head + b"Authorization: " + basic("reader", "reader") + b"\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            revoke(broker)
            rest = b""
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(1 << 20):
                    rest += data
            assert not rest.endswith(b"0\r\n\r\n")
            await gone(writer)

    asyncio.run(run())


def tag_gone(broker: Served) -> None:
    set_tags(broker.users, "reader", ["policymaker"])


def vhost_closed(broker: Served) -> None:
    broker.users.clear_permission("reader", "h")


@pytest.mark.parametrize(
    ("tag", "revoke"), [("monitoring", tag_gone), ("management", vhost_closed)]
)
def test_a_long_list_ends_with_the_right(
    tmp_path: Path, tag: str, revoke: Callable[[Served], None]
) -> None:
    """Who reads slowly gets no more of a list than what was sent while he might see it."""

    async def run() -> None:
        broker = served(tmp_path)
        set_tags(broker.users, "reader", [tag])
        vhost = broker.node.broker.vhosts["h"]
        # More than the buffers of a connection hold.
        arguments: dict[str, object] = {"x-none": "x" * 30_000}
        for number in range(600):
            vhost.queues.declare(
                None, Name(f"q-{number}"), QueueAttributes(True, arguments=arguments)
            )
        broker.node.sync()
        async with broker.hostile.serving():
            port = broker.hostile.tcp.port
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=65_536)
            head = b"GET /api/queues HTTP/1.1\r\nHost: localhost\r\n"
            writer.write(head + b"Authorization: " + basic("reader", "reader") + b"\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            revoke(broker)
            rest = b""
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(1 << 20):
                    rest += data
            assert not rest.endswith(b"0\r\n\r\n")
            await gone(writer)

    asyncio.run(run())


def test_a_body_that_is_still_coming_is_not_taken(tmp_path: Path) -> None:
    """The request was let in, and its user is gone when the body is whole."""

    async def run() -> None:
        broker = served(tmp_path)
        broker.users.set_permission("reader", "h", ".*", ".*", ".*")
        async with broker.hostile.serving():
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.hostile.tcp.port)
            head = b"PUT /api/super-streams/h/mine HTTP/1.1\r\nHost: localhost\r\n"
            head += b"Content-Length: 16\r\n"
            writer.write(head + b"Authorization: " + basic("reader", "reader") + b"\r\n\r\n{")
            (gate,) = broker.users.watchers
            assert isinstance(gate, Gate)
            await broker.begun(lambda: bool(gate.visits))
            password_changed(broker)
            line = await reader.readline()
            assert b" 401 " in line
            writer.write(b'"partitions": 2}')
            await reader.read()
            await gone(writer)
            # Others are served, and the end of this connection is read before the listener closes.
            status, _ = await broker.hostile.tcp.ask("GET", b"/api/overview", None)
            assert status == 200
            assert "mine" not in broker.node.broker.vhosts["h"].exchanges.by_name

    asyncio.run(run())


# -- AMQP ------------------------------------------------------------------------------------------


def holder(node: Node) -> Peer:
    """A user with all rights, on an open connection."""
    node.add_user("u", configure=".*", write=".*", read=".*")
    peer = node.connect_as("u", 1, 2)
    peer.declare("q")
    return peer


def test_a_transaction_is_judged_again(node: Node) -> None:
    peer = holder(node)
    peer.call(1, "tx.select")
    peer.send(publish(1, "", "q", b"one"))
    node.broker.users.set_permission("u", "/", ".*", "", ".*")
    node.run()
    peer.send(method(1, "tx.commit"))
    assert peer.expect(1, "channel.close").code == 403
    assert node.classic("q").ready_count() == 0


def refusal_of_commit(node: Node, peer: Peer) -> str:
    """Commit after a change; return why that is refused.  Nothing comes to the queue `q`."""
    node.run()
    peer.send(method(1, "tx.commit"))
    closed = peer.expect(1, "channel.close")
    assert node.classic("q").ready_count() == 0
    return str(closed.text)


def test_a_transaction_is_judged_again_by_its_topics(node: Node) -> None:
    peer = holder(node)
    peer.call(1, "queue.bind", queue="q", exchange="amq.topic", routing_key="#")
    peer.call(1, "tx.select")
    peer.send(publish(1, "amq.topic", "a.b", b"one", headers={"CC": ["b.c"]}))
    node.broker.users.set_topic_permission("u", "/", "amq.topic", "^a", ".*")
    assert "topic 'b.c'" in refusal_of_commit(node, peer)


@pytest.mark.parametrize("kind", ["fanout", "topic"])
def test_a_transaction_is_judged_again_by_the_topics_of_exchanges_behind(
    node: Node, kind: str
) -> None:
    """Its copies come to each exchange that the first key leads to."""
    peer = holder(node)
    peer.call(1, "exchange.declare", exchange="before", type=kind)
    peer.call(1, "exchange.bind", destination="amq.topic", source="before", routing_key="#")
    peer.call(1, "queue.bind", queue="q", exchange="amq.topic", routing_key="secret.#")
    node.broker.users.set_topic_permission("u", "/", "amq.topic", ".*", ".*")
    peer.call(1, "tx.select")
    peer.send(publish(1, "before", "a.b", b"one", headers={"CC": ["secret.x"]}))
    node.broker.users.set_topic_permission("u", "/", "amq.topic", "^a", ".*")
    assert "topic 'secret.x'" in refusal_of_commit(node, peer)


@pytest.mark.parametrize("header", ["", "CC", "BCC"])
def test_a_transaction_is_judged_by_topics_of_an_exchange_that_is_gone(
    node: Node, header: str
) -> None:
    peer = holder(node)
    peer.call(1, "exchange.declare", exchange="t", type="topic")
    peer.call(1, "queue.bind", queue="q", exchange="t", routing_key="#")
    peer.call(1, "tx.select")
    headers = {header: ["secret"]} if header else {}
    peer.send(publish(1, "t", "a" if header else "secret", b"one", headers=headers))
    node.broker.users.set_topic_permission("u", "/", "t", "^a", ".*")
    node.connect().call(1, "exchange.delete", exchange="t")
    assert "topic 'secret'" in refusal_of_commit(node, peer)


def test_a_transaction_that_is_still_allowed_is_committed(node: Node) -> None:
    peer = holder(node)
    peer.call(1, "tx.select")
    peer.send(publish(1, "", "q", b"one"))
    node.broker.users.set_permission("u", "/", "", ".*", "")
    node.run()
    peer.call(1, "tx.commit")
    assert node.classic("q").ready_count() == 1


def test_a_commit_of_a_batch_is_judged_again_when_it_is_decided(node: Node) -> None:
    """It waits for the sync of what is staged, and meanwhile the right to the queues goes."""
    peer = holder(node)
    stage_queue(peer, "stage")
    peer.call(1, "confirm.select")
    stage(peer, "stage", b"one")
    body = json.dumps({"sink": "s", "batch": 1, "queues": ["stage"]}).encode()
    peer.send(publish(1, "", COMMIT_KEY, body, mandatory=True))
    assert peer.connection.halted
    node.broker.users.set_permission("u", "/", "^q$", ".*", ".*")
    node.sync()
    returned = [got for got in peer.take() if got.name == "basic.return"]
    assert [got.code for got in returned] == [403]
    assert node.classic("q").ready_count() == 0


@pytest.fixture
def node() -> Node:
    return Node()
