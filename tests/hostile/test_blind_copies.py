"""Nobody sees the keys of BCC, wherever a message leaves; and they count when it is routed again.

The ways out are derived: the methods with content that a broker sends, and the whole table of
routes of the HTTP API.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from leveret.store.disks.recording import RecordingDisk
from leveret.store.survey.dump import Dump
from leveret.store.survey.identity import seed_of
from leveret.wire.spec import METHODS
from support.hostile.hostile_node import HostileNode, Tally, prepare
from support.hostile.hostile_requests import good, key_of, routes
from support.node.core import UUID, Node, Peer, all_waiting
from support.node.paged import no_chance
from support.wire.raw_codec import decode_properties, method, publish

#: A key that stands nowhere else.
SECRET: Final = "blind-5b1d0c"
HEADERS: Final[dict[str, Any]] = {"CC": ["open"], "BCC": [SECRET], "x": 1}


# -- ways out --------------------------------------------------------------------------------------


def _deliver(peer: Peer, queue: str) -> Any:
    peer.call(1, "basic.consume", queue=queue, consumer_tag="c")
    return peer.expect(1, "basic.deliver")


def _get(peer: Peer, queue: str) -> Any:
    return peer.call_get(queue, no_ack=True)


def _return(peer: Peer, queue: str) -> Any:
    peer.send(publish(1, "amq.direct", "nowhere", b"m", headers=HEADERS, mandatory=True))
    return peer.expect(1, "basic.return")


WAYS: Final[dict[str, Callable[[Peer, str], Any]]] = {
    "basic.deliver": _deliver,
    "basic.get-ok": _get,
    "basic.return": _return,
}


def test_the_ways_are_all_methods_with_content_that_a_broker_sends() -> None:
    assert set(WAYS) | {"basic.publish"} == {
        name for name, spec in METHODS.items() if spec.has_content
    }


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("window_bytes", [-1, 0])
@pytest.mark.parametrize("way", sorted(WAYS))
def test_no_method_shows_it(way: str, window_bytes: int, restart: bool) -> None:
    node = Node(window_bytes=window_bytes)
    peer = node.connect()
    peer.declare("q", arguments={"x-dead-letter-exchange": "amq.fanout"})
    for _ in range(9):
        peer.send(publish(1, "", "q", b"m", headers=HEADERS, delivery_mode=2))
    node.sync()
    if restart:
        node.take_checkpoint()
        node = Node(RecordingDisk(node.crashed(no_chance)[0]), window_bytes=window_bytes)
        peer = node.connect()
    headers = decode_properties(WAYS[way](peer, "q").properties)["headers"]
    assert headers == {"CC": ["open"], "x": 1}


def test_no_request_shows_it(tmp_path: Path) -> None:
    """Every route but those that delete is asked, with a message with BCC wherever one can be."""
    asked: set[tuple[str, str]] = set()
    seen: list[str] = []

    async def run() -> None:
        hostile = HostileNode(tmp_path, Tally())
        node = hostile.node
        peer = node.connect_as("u", 1, vhost="h")
        late = HEADERS | {"x-delay": 1_000_000}
        staged = HEADERS | {"x-staged-exchange": "e", "x-staged-routing-key": "k"}
        for exchange, key, headers in [
            ("", "q", HEADERS), ("", "s", HEADERS), ("", "kept", HEADERS), ("e", "k", late),
            ("", "stage", staged), ("history", "k", HEADERS),
        ]:  # fmt: skip
            peer.send(publish(1, exchange, key, b"m", headers=headers, delivery_mode=2))
        node.sync()
        async with hostile.serving():
            for chunked in (False, True):
                if chunked:
                    node.take_checkpoint()
                for route in routes():
                    if route.method == "DELETE":
                        continue
                    request = good(route)
                    _, answer = await hostile.unix.ask(request.method, request.path, request.body)
                    asked.add(key_of(route))
                    if SECRET.encode() in answer:
                        seen.append(f"{route.method} {route.path}")
                    prepare(node)

    asyncio.run(run())
    assert len(asked) > 60
    assert not seen


def test_no_dump_of_a_store_shows_it() -> None:
    node = Node()
    peer = node.connect()
    peer.declare("q")
    peer.declare("s", arguments={"x-queue-type": "stream"})
    peer.send(publish(1, "", "q", b"m", headers=HEADERS, delivery_mode=2))
    peer.send(publish(1, "", "s", b"m", headers=HEADERS, delivery_mode=2))
    node.sync()
    node.take_checkpoint()
    peer.send(publish(1, "", "q", b"m", headers=HEADERS, delivery_mode=2))
    node.sync()
    dump = Dump(node.disk, seed_of(UUID))
    rows = [*dump.state(), *dump.journal(), *dump.segments()]
    assert sum(row.get("body") == b"m" for row in rows) >= 2
    assert SECRET not in repr(rows)


# -- routing again ---------------------------------------------------------------------------------


def _expire(peer: Peer) -> None:
    peer.node.tick(2000)


def _reject(peer: Peer) -> None:
    tag = peer.call_get("q").delivery_tag
    peer.send(method(1, "basic.reject", delivery_tag=tag, requeue=False))
    peer.node.sync()


def _push_out(peer: Peer) -> None:
    peer.send(publish(1, "", "q", b"newer", delivery_mode=2, expiration="100000"))
    peer.node.sync()


def _return_too_often(peer: Peer) -> None:
    for _ in range(2):
        tag = peer.call_get("q").delivery_tag
        peer.send(method(1, "basic.reject", delivery_tag=tag, requeue=True))
    peer.node.sync()


#: How a message dies: the arguments of its queue, and what kills it.
DEATHS: Final[dict[str, tuple[dict[str, Any], Callable[[Peer], None]]]] = {
    "expired": ({"x-message-ttl": 1000}, _expire),
    "rejected": ({}, _reject),
    "maxlen": ({"x-max-length": 1}, _push_out),
    "delivery_limit": ({"x-delivery-limit": 1}, _return_too_often),
}


def _declared(node: Node, arguments: dict[str, Any]) -> Peer:
    peer = node.connect()
    peer.declare("q", arguments={"x-dead-letter-exchange": "dlx"} | arguments)
    peer.call(1, "exchange.declare", exchange="dlx", type="direct", durable=True)
    for name in ("first", "open", SECRET):
        peer.declare(name)
        peer.call(1, "queue.bind", queue=name, exchange="dlx", routing_key=name)
    peer.call(1, "queue.bind", queue="q", exchange="amq.direct", routing_key="first")
    return peer


@pytest.mark.parametrize("restart", ["none", "crash", "checkpoint", "paged"])
@pytest.mark.parametrize("reason", sorted(DEATHS))
def test_a_letter_goes_to_the_blind_keys_too(reason: str, restart: str) -> None:
    arguments, kill = DEATHS[reason]
    window_bytes = 0 if restart == "paged" else -1
    node = Node(window_bytes=window_bytes)
    peer = _declared(node, arguments)
    peer.send(publish(1, "amq.direct", "first", b"m", headers=HEADERS, delivery_mode=2))
    node.sync()
    if restart != "none":
        if restart != "crash":
            node.take_checkpoint()
        image = node.crashed(no_chance)[0]
        node = Node(RecordingDisk(image), clock=node.clock, window_bytes=window_bytes)
        peer = node.connect()
    kill(peer)
    for name in ("first", "open", SECRET):
        headers = decode_properties(peer.call_get(name, no_ack=True).properties)["headers"]
        assert "BCC" not in headers
        assert headers["CC"] == ["open"]
        (death,) = headers["x-death"]
        assert (death["reason"], death["routing-keys"]) == (reason, ["first", "open"])


@pytest.mark.parametrize("restart", [False, True])
def test_a_key_of_the_queue_counts_alone_and_is_the_last_of_them(restart: bool) -> None:
    """As RabbitMQ 4.3: CC stays in the headers, and neither this death nor the next follows it."""
    node = Node()
    peer = _declared(node, {"x-message-ttl": 1000, "x-dead-letter-routing-key": "first"})
    again = {"x-message-ttl": 1000, "x-dead-letter-exchange": "dlx"}
    peer.call(1, "queue.delete", queue="first")
    peer.declare("first", arguments=again)
    peer.call(1, "queue.bind", queue="first", exchange="dlx", routing_key="first")
    peer.send(publish(1, "amq.direct", "first", b"m", headers=HEADERS, delivery_mode=2))
    node.tick(2000)
    if restart:
        node.sync()
        node.take_checkpoint()
        node = Node(RecordingDisk(node.crashed(no_chance)[0]), clock=node.clock)
    assert [node.classic(name).ready_count() for name in ("first", "open", SECRET)] == [1, 0, 0]
    headers = decode_properties(all_waiting(node.classic("first"))[0].message.properties)["headers"]
    assert (headers["CC"], "BCC" in headers) == (["open"], False)
    node.tick(2000)
    assert [node.classic(name).ready_count() for name in ("first", "open", SECRET)] == [0, 0, 0]


def test_they_count_after_a_delay_and_again_after_a_death() -> None:
    node = Node()
    peer = _declared(node, {"x-message-ttl": 1000})
    peer.call(
        1, "exchange.declare", exchange="later", type="x-delayed-message", durable=True,
        arguments={"x-delayed-type": "direct"},
    )  # fmt: skip
    peer.call(1, "queue.bind", queue="q", exchange="later", routing_key="first")
    headers = HEADERS | {"x-delay": 5000}
    peer.send(publish(1, "later", "first", b"m", headers=headers, delivery_mode=2))
    node.sync()
    node.take_checkpoint()
    node = Node(RecordingDisk(node.crashed(no_chance)[0]), clock=node.clock)
    node.tick(5000)
    node.tick(2000)
    assert [node.classic(name).ready_count() for name in ("first", "open", SECRET)] == [1, 1, 1]
