"""What a request has the broker do is counted, whatever it is: a table of requests and worlds.

Only what is counted ends the slice that it fills.  A row makes a world, asks, and says how much at
least, and at most, is counted until the broker rests.  That no request does more than it counts is
shown by `test_costs.py`; that long ones let others have their turn by `model/test_operations.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pytest

from leveret.broker.backlog.stored import StoredChunk
from leveret.broker.definitions.imports import import_definitions
from leveret.broker.parameters import OPERATOR_POLICY
from leveret.broker.policies.policy import make_policy
from leveret.broker.quotas import QUOTA_RECOUNT_QUEUES
from leveret.broker.scheduler.costs import (
    CHUNK_BYTES_PER_COST,
    CHUNK_READ,
    DEAD_LETTER,
    LOOKED_AT_PER_COST,
    METHOD_BYTES_PER_COST,
    METHOD_VALUES_MAX,
    PATTERN_WALK_PER_COST,
    PLACES_MOVED_PER_COST,
    QUEUES_COUNTED_PER_COST,
    ROUTE_RESOLVED,
    SLICE,
)
from leveret.broker.vhost.policies import POLICIES_LOOKS_MAX
from leveret.broker.vhost.vhost import HISTORY_COPIES_MAX
from leveret.limits import (
    CHUNK_BYTES_MAX,
    COPY_KEYS_MAX,
    DEATHS_LISTED_MAX,
    HAREMQ_LISTED_MAX,
    PATTERN_LOOKS_MAX,
    ROUTING_LOOKS_MAX,
    SUPER_STREAM_BYTES_MAX,
    SUPER_STREAM_PARTITIONS_MAX,
    TABLE_BYTES_PER_COST,
    TABLE_ENTRIES_MAX,
    TX_COPIES_MAX,
)
from leveret.names import Name
from leveret.session.connection.frame_input import SHORT_METHOD_BYTES
from leveret.store.segments.segments import ChunkRef
from leveret.wire.content.output import OUTPUT_APART_BYTES
from support.node.core import Node, Peer
from support.wire.hare import HarePeer, frame
from support.wire.raw_codec import Typed, method, properties, publish

#: What is asked, of a client or of the broker.
Ask = Callable[[], object]

#: A look at a binding is an eighth of what is counted; and what goes with any frame.
ROUTING: Final = ROUTING_LOOKS_MAX // 8
BINDINGS: Final = 16_000
FRAME: Final = 128

#: So many partitions may a super stream have.
PARTITIONS: Final = SUPER_STREAM_PARTITIONS_MAX


def asks(peer: Peer, *data: bytes) -> Ask:
    """Have a client ask for something."""
    return partial(peer.receive, *data)


# -- routing ---------------------------------------------------------------------------------------


def client(node: Node, **arguments: Any) -> Peer:
    """A client with the queue `q`."""
    peer = node.connect(1, 2)
    peer.declare("q", durable=False, arguments=arguments)
    return peer


def restore(node: Node, source: str, count: int, key: str = "") -> None:
    """Bind `q` so many times to an exchange, by arguments that differ."""
    exchanges = node.vhost.exchanges
    for number in range(count):
        exchanges.restore_binding(exchanges.by_name[source], "q", True, key, {"n": number})


def long_keys(node: Node) -> Ask:
    """A key of 126 words for many topic exchanges, of which none has a binding that begins so."""
    peer = client(node)
    peer.call(1, "exchange.declare", exchange="all", type="fanout")
    for number in range(60):
        name = f"topic-{number}"
        peer.call(1, "exchange.declare", exchange=name, type="topic")
        peer.call(1, "exchange.bind", destination=name, source="all")
        peer.call(1, "queue.bind", queue="q", exchange=name, routing_key="k")
    return asks(peer, publish(1, "all", ".".join("a" * 126), b"x"))


def hashes(number: int) -> str:
    """A binding key of a tree of its own, in which every second word is `#`."""
    words = "abcd"
    own = "".join(words[number // 4**place % 4] for place in range(5))
    return ".".join(f"#.{word}" for word in own + "abcd" * 14)


def wildcards(node: Node) -> Ask:
    """A key of 128 words for very many patterns of wildcards, which is refused."""
    peer = client(node)
    for number in range(1000):
        key = hashes(number)
        peer.send(
            method(1, "queue.bind", queue="q", exchange="amq.topic", routing_key=key, no_wait=True)
        )
    return asks(peer, publish(1, "amq.topic", ".".join(["a", "b", "c", "d"] * 32), b"x"))


def many_bindings(node: Node, kind: str) -> Ask:
    """A message that matches many bindings."""
    peer = client(node)
    peer.call(1, "exchange.declare", exchange="e", type=kind)
    restore(node, "e", BINDINGS, "#")
    return asks(peer, publish(1, "e", "k", b"x"))


def many_keys(node: Node) -> Ask:
    """Messages with as many keys in CC as there may be, each with a few bindings."""
    peer = client(node)
    keys = [f"k{number}" for number in range(COPY_KEYS_MAX)]
    for key in keys:
        restore(node, "amq.direct", 8, key)
    return asks(peer, publish(1, "amq.direct", "k0", b"x", headers={"CC": keys}) * 20)


def routed_once(node: Node, rights: bool) -> Ask:
    """A message whose routing takes more than half of what it may, with another key beside it.

    Neither its first key alone, nor what checks the rights of its user, is routed once more.
    """
    node.connect().declare("q", durable=False)
    node.add_user("mallory", configure=".*", write=".*", read=".*")
    if rights:
        node.broker.users.set_topic_permission("mallory", "/", "amq.topic", ".*", ".*")
    peer = node.connect_as("mallory")
    bind = {"queue": "q", "exchange": "amq.topic", "no_wait": True}
    peer.send(*[method(1, "queue.bind", routing_key=hashes(at), **bind) for at in range(100)])
    key = ".".join(["a", "b", "c", "d"] * 10)
    return asks(peer, publish(1, "amq.topic", key, b"x", headers={"CC": ["other"]}))


def many_exchanges(node: Node) -> Ask:
    """Many exchanges with many ways between them, of which each is visited once."""
    peer = client(node)
    names = [f"e{number}" for number in range(300)]
    for name in names:
        peer.send(method(1, "exchange.declare", exchange=name, type="fanout", no_wait=True))
    exchanges = node.vhost.exchanges
    for name in names:
        for other in names:
            exchanges.restore_binding(exchanges.by_name[name], other, False, "", {})
    exchanges.restore_binding(exchanges.by_name["e299"], "q", True, "", {})
    return asks(peer, publish(1, "e0", "", b"x"))


def deep_headers(node: Node) -> Ask:
    """A headers exchange whose bindings differ in a table alone."""
    peer = client(node)
    exchanges = node.vhost.exchanges
    for number in range(5000):
        arguments: dict[str, object] = {"kind": {"of": ["thing"] * 20, "n": number}}
        exchanges.restore_binding(exchanges.by_name["amq.headers"], "q", True, "", arguments)
    kind = {"of": ["thing"] * 20, "n": 4999}
    return asks(peer, publish(1, "amq.headers", "", b"x", headers={"kind": kind}))


def weights(node: Node) -> Ask:
    """Binds to a ring, each of which makes 3,000 points."""
    peer = client(node)
    peer.call(1, "exchange.declare", exchange="ring", type="x-consistent-hash")
    values: dict[str, Any] = {"queue": "q", "exchange": "ring", "no_wait": True}
    return asks(
        peer,
        *[
            method(1, "queue.bind", **values, routing_key="30", arguments={"n": number})
            for number in range(10)
        ],
    )


def new_keys(node: Node) -> Ask:
    """Messages with a key each that finds its queue for the first time."""
    peer = client(node)
    peer.call(1, "queue.bind", queue="q", exchange="amq.topic", routing_key="a.#")
    return asks(peer, *[publish(1, "amq.topic", f"a.{number}", b"x") for number in range(1000)])


def fan(node: Node) -> Ask:
    """Messages for a thousand queues each."""
    peer = client(node)
    for number in range(1000):
        peer.send(method(1, "queue.declare", queue=f"q{number}", no_wait=True))
        peer.send(method(1, "queue.bind", queue=f"q{number}", exchange="amq.fanout", no_wait=True))
    return asks(peer, publish(1, "amq.fanout", "", b"x") * 20)


# -- patterns --------------------------------------------------------------------------------------

#: A key of many words, and a pattern that looks at each of them.
WORDS: Final = "ab." * 80
PATTERN: Final = "^([a-z]+\\.)*[a-z]+[0-9]+$"

#: What a key of so many characters takes at least.
KEY: Final = len(WORDS) // PATTERN_WALK_PER_COST

#: A lookaround in a lookaround at each place.
SLOW: Final = "(?=(?:(?!" + ".*x?" * 150 + "b)a)*$)z"


def limited(node: Node, pattern: str = PATTERN) -> Peer:
    """A client that publishes to the topic exchange `t` as a pattern lets it."""
    node.connect().call(1, "exchange.declare", exchange="t", type="topic")
    node.add_user("mallory", configure=".*", write=".*", read=".*")
    node.broker.users.set_topic_permission("mallory", "/", "t", pattern, pattern)
    return node.connect_as("mallory")


def checked_keys(node: Node, pattern: str) -> Ask:
    """Messages with a new key each."""
    peer = limited(node, pattern)
    return asks(peer, *[publish(1, "t", f"{WORDS}q{number}", b"") for number in range(400)])


def known_key(node: Node) -> Ask:
    """A message with a key that was checked before."""
    peer = limited(node)
    known = publish(1, "t", f"{WORDS}q1", b"")
    peer.send(known)
    return asks(peer, known)


def untouched_keys(node: Node) -> Ask:
    """The commit of very many keys after a change of rights that is not about them."""
    peer = limited(node)
    node.broker.users.clear_topic_permission("mallory", "/", "t")
    peer.call(1, "tx.select")
    peer.send(*[publish(1, "t", f"{WORDS}q{number}", b"") for number in range(2000)])
    node.broker.users.set_topic_permission("mallory", "/", "other", PATTERN, PATTERN)
    node.run()
    return asks(peer, method(1, "tx.commit"))


def checked_bind(node: Node) -> Ask:
    """A bind by such a key."""
    peer = limited(node)
    peer.declare("q")
    return asks(peer, method(1, "queue.bind", queue="q", exchange="t", routing_key=f"{WORDS}q1"))


def large_class(node: Node) -> Ask:
    """A key that is compared with very many characters at each place."""
    large = "".join(chr(0x4E00 + 2 * number) for number in range(500))
    return asks(limited(node, f"[{large}]|q$"), publish(1, "t", f"{WORDS}q", b""))


def checked_copies(node: Node) -> Ask:
    """A message with two keys for twenty exchanges that each check them."""
    peer = limited(node)
    guest = node.connect()
    for number in range(20):
        name = f"e{number}"
        guest.call(1, "exchange.declare", exchange=name, type="topic")
        guest.call(1, "exchange.bind", destination=name, source="t", routing_key="#")
        node.broker.users.set_topic_permission("mallory", "/", name, PATTERN, PATTERN)
    return asks(peer, publish(1, "t", f"{WORDS}q1", b"", headers={"CC": [f"{WORDS}q2"]}))


def slow_policy(node: Node) -> Ask:
    """A policy whose pattern looks at a name as often as it may."""
    node.connect().declare("a" * 255, durable=False)
    slow = make_policy("slow", SLOW, {"max-length": 10}, apply_to="queues")
    return partial(node.vhost.policies.set, slow)


def slow_policies(node: Node) -> Ask:
    """A declare that very many patterns are compared with."""
    for number in range(8):
        policy = make_policy(f"p{number}", f"{SLOW}{number}", {"max-length": 1}, apply_to="queues")
        node.vhost.policies.set(policy)
    return asks(node.connect(), method(1, "queue.declare", queue="a" * 255, no_wait=True))


def policies_of_copies(node: Node) -> Ask:
    """An import beside many queues, which are copied for its trial, with what governs them."""
    queues = [
        {"name": f"q{number}", "vhost": "/", "durable": True, "arguments": {}}
        for number in range(500)
    ]
    import_definitions(node.broker, {"queues": queues}, b"salt")
    for number in range(200):
        value = {"pattern": f"^(q|r)*x{number}$", "definition": {"max-length": 1}}
        node.broker.parameters.set("/", OPERATOR_POLICY, f"p{number}", value)
    return partial(import_definitions, node.broker, {"queues": queues}, b"salt")


def compiled(node: Node, section: str) -> Ask:
    """An import of long patterns."""
    texts = [f"{number:04}" + "a" * 596 for number in range(90)]
    rows: list[dict[str, object]] = []
    for number in range(30):
        first, second, third = texts[3 * number : 3 * number + 3]
        user: dict[str, object] = {"user": f"u{number}", "vhost": "/"}
        if section == "permissions":
            rows.append({**user, "configure": first, "write": second, "read": third})
        elif section == "topic_permissions":
            rows.append({**user, "exchange": "amq.topic", "write": first, "read": second})
        else:
            at: dict[str, object] = {"name": f"p{number}", "vhost": "/"}
            limit = {"max-length": 10_000}
            policy = {"pattern": first, "definition": limit, "priority": 1, "apply-to": "queues"}
            operator = {**at, "component": OPERATOR_POLICY, "value": policy}
            rows.append(operator if section == "parameters" else {**at, **policy})
    users = [{"name": f"u{number}", "password_hash": "", "tags": ""} for number in range(30)]
    import_definitions(node.broker, {"users": users}, b"salt")
    return partial(import_definitions, node.broker, {section: rows}, b"salt")


# -- methods ---------------------------------------------------------------------------------------

#: Values of one method, each of which has as little as one byte on the wire.
VALUES: Final = 4000


def deep() -> dict[str, Any]:
    """A table of one table in another."""
    table: dict[str, Any] = {}
    for _ in range(30):
        table = {"a": table}
    return table


TABLES: Final[dict[str, dict[str, Any]]] = {
    "voids": {"a": [None] * VALUES},
    "tables": {"a": [{}] * VALUES},
    "decimals": {"a": [Typed("D", (2, number)) for number in range(VALUES)]},
    "keys": {f"{number:x}": Typed("D", (2, number)) for number in range(VALUES)},
    "deep": {f"{number}": deep() for number in range(VALUES // 31)},
}


def values(node: Node, table: str) -> Ask:
    """Declares with many small values."""
    peer = node.connect()
    data = [
        method(1, "queue.declare", queue=f"q{number}", no_wait=True, arguments=TABLES[table])
        for number in range(10)
    ]
    return asks(peer, *data)


def values_least(table: str) -> int:
    """What these count at least."""
    data = method(1, "queue.declare", queue="q0", no_wait=True, arguments=TABLES[table])
    return 10 * ((len(data) - SHORT_METHOD_BYTES) // METHOD_BYTES_PER_COST)


def long_texts(node: Node) -> Ask:
    """A declare with few texts that are long: they are copied as they are."""
    arguments = {f"{number}": "x" * 1000 for number in range(127)}
    data = method(1, "queue.declare", queue="q", no_wait=True, arguments=arguments)
    assert len(data) > METHOD_BYTES_PER_COST * METHOD_VALUES_MAX
    return asks(node.connect(), data)


def new_super_stream(node: Node, long: int) -> Ask:
    """The declare of a super stream, whose arguments are in the definition of each partition."""
    told: dict[str, Any] = {"x-super-stream-partitions": PARTITIONS}
    told |= {f"x-{number}": "n" * 250 for number in range(long)}
    return asks(
        node.connect(),
        method(1, "queue.declare", queue="s", durable=True, arguments=told, no_wait=True),
    )


def again(node: Node, extra: int) -> Ask:
    """The declare of a super stream that is there, with many arguments that no stream knows."""
    peer = node.connect()
    told: dict[str, Any] = {"x-super-stream-partitions": PARTITIONS}
    peer.declare("s", arguments=told)
    unknown: dict[str, Any] = {f"x{number}": number for number in range(extra)}
    return asks(
        peer,
        method(1, "queue.declare", queue="s", durable=True, arguments=told | unknown, no_wait=True),
    )


def consume_all(node: Node) -> Ask:
    """A consumer of all partitions of a super stream."""
    peer = node.connect()
    told: dict[str, Any] = {"x-super-stream-partitions": PARTITIONS}
    peer.declare("s", arguments=told)
    peer.call(1, "basic.qos", prefetch_count=1)
    return asks(peer, method(1, "basic.consume", queue="s", no_wait=True))


# -- messages --------------------------------------------------------------------------------------

#: So many headers.
HEADERS: Final = {f"h{number:03}": True for number in range(900)}
MESSAGES: Final = 300

#: What the headers of one message count.
EACH: Final = len(properties(headers=HEADERS)) // TABLE_BYTES_PER_COST


def stream_headers(node: Node, headers: dict[str, Any], **arguments: Any) -> Ask:
    """A consumer of a stream whose messages have long headers, neighbours not the same ones."""
    peer = node.connect()
    peer.declare("s", arguments={"x-queue-type": "stream"})
    both = publish(1, "", "s", b"m", headers=headers)
    both += publish(1, "", "s", b"m", headers={**headers, "one": "more"})
    peer.send(both * (MESSAGES // 2))
    node.sync()
    peer.call(1, "basic.qos", prefetch_count=MESSAGES)
    told = {"x-stream-offset": "first"} | arguments
    return asks(peer, method(1, "basic.consume", queue="s", arguments=told, no_wait=True))


def headers_again(node: Node) -> Ask:
    """A consumer of messages that were delivered once, whose long headers are written anew."""
    peer, first = node.connect(), node.connect()
    peer.declare("q", arguments={"x-delivery-limit": 3})
    peer.send(publish(1, "", "q", b"m", headers=HEADERS) * MESSAGES)
    first.send(method(1, "basic.consume", queue="q"))
    first.lose()
    return asks(peer, method(1, "basic.consume", queue="q", no_wait=True))


def history(node: Node, kind: str, headers: dict[str, Any]) -> Ask:
    """A bind for which a history is published to another exchange, message by message."""
    peer = client(node)
    more = {"x-recent-history-length": MESSAGES}
    peer.call(1, "exchange.declare", exchange="h", type="x-recent-history", arguments=more)
    peer.call(1, "exchange.declare", exchange="to", type=kind)
    peer.call(1, "queue.bind", queue="q", exchange="to")
    peer.send(publish(1, "h", "", b"m", headers=headers) * MESSAGES)
    return asks(peer, method(1, "exchange.bind", source="h", destination="to", no_wait=True))


def history_of_queues(node: Node, **arguments: Any) -> Ask:
    """A bind for which a history is published to many queues that do more than keep it."""
    peer = node.connect()
    queues = 64
    length = HISTORY_COPIES_MAX // queues * 2
    more = {"x-recent-history-length": length}
    peer.call(1, "exchange.declare", exchange="h", type="x-recent-history", arguments=more)
    peer.send(*[publish(1, "h", "", b"m")] * length)
    peer.call(1, "exchange.declare", exchange="all", type="fanout")
    for number in range(queues):
        peer.declare(f"q{number}", durable=False, arguments=arguments)
        peer.call(1, "queue.bind", queue=f"q{number}", exchange="all")
    return asks(peer, method(1, "exchange.bind", source="h", destination="all", no_wait=True))


def chain(node: Node) -> Ask:
    """A message that dies in very many queues, each of which is told of in its letter."""
    peer = node.connect()
    length = 2 * DEATHS_LISTED_MAX
    for number in range(length):
        key = f"c{number + 1}"
        told = {
            "x-message-ttl": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": key
        }  # fmt: skip
        peer.declare(f"c{number}", durable=False, arguments=told)
    peer.declare(f"c{length}", durable=False)
    return asks(peer, publish(1, "", "c0", b"m"))


DEATHS: Final = sum(min(one, DEATHS_LISTED_MAX - 1) for one in range(2 * DEATHS_LISTED_MAX))


def letter_headers(node: Node) -> Ask:
    """A letter with as many headers as there may be."""
    peer = client(node, **{"x-dead-letter-exchange": "amq.fanout", "x-message-ttl": 1})
    headers = {f"name-{number}": "v" for number in range(TABLE_ENTRIES_MAX - 10)}
    peer.send(publish(1, "", "q", b"m", headers=headers))
    return partial(node.clock.advance, 2)


def letter_bindings(node: Node) -> Ask:
    """A letter that matches many bindings."""
    peer = client(node)
    peer.call(1, "exchange.declare", exchange="dead", type="fanout")
    peer.declare("dying", arguments={"x-dead-letter-exchange": "dead", "x-message-ttl": 1})
    restore(node, "dead", BINDINGS)
    peer.send(publish(1, "", "dying", b"x"))
    return partial(node.clock.advance, 2)


def browser(node: Node, prefetch: int) -> Ask:
    """A browser of a queue, to its end or until it has as much as it may."""
    peer = client(node)
    peer.send(*[publish(1, "", "q", b"")] * 1000)
    peer.call(1, "basic.qos", prefetch_count=prefetch)
    browse = {"x-browse": True}
    return asks(peer, method(1, "basic.consume", queue="q", arguments=browse, no_wait=True))


def deliveries(node: Node, **arguments: Any) -> Ask:
    """A consumer of some messages."""
    peer = client(node, **arguments)
    peer.send(publish(1, "", "q", b"m") * 500)
    return asks(peer, method(1, "basic.consume", queue="q", no_ack=True, no_wait=True))


#: The longest body that is copied to the output.
LONGEST_COPIED: Final = OUTPUT_APART_BYTES - 1


def long_bodies(node: Node) -> Ask:
    """A consumer of messages that are copied to the output."""
    peer = client(node)
    for _ in range(100):
        peer.send(publish(1, "", "q", bytes(LONGEST_COPIED)))
    return asks(peer, method(1, "basic.consume", queue="q", no_ack=True, no_wait=True))


def vain_consumers(node: Node) -> Ask:
    """A message for a queue none of whose many consumers can take more."""
    peer = client(node)
    peer.call(1, "basic.qos", prefetch_count=1)
    consumes = [
        method(1, "basic.consume", queue="q", consumer_tag=f"c{number}", no_wait=True)
        for number in range(2000)
    ]
    peer.send(*consumes, publish(2, "", "q", b"m") * 2000)
    return asks(node.connect(), publish(1, "", "q", b"m"))


def vain_readers(node: Node, count: int) -> Ask:
    """A message for a stream none of whose many readers can take more."""
    peer = node.connect()
    peer.declare("s", arguments={"x-queue-type": "stream"})
    peer.call(1, "basic.qos", prefetch_count=1)
    peer.send(
        *[
            method(1, "basic.consume", queue="s", consumer_tag=f"c{number}", no_wait=True)
            for number in range(count)
        ],
        publish(1, "", "s", b"m"),
    )
    node.sync()
    publisher = node.connect()
    publisher.receive(publish(1, "", "s", b"m"))
    return node.sync


def transaction(node: Node) -> Ask:
    """A commit of as many copies as there may be."""
    peer = client(node)
    for number in range(256):
        peer.declare(f"q{number}")
        peer.call(1, "queue.bind", queue=f"q{number}", exchange="amq.fanout")
    peer.call(1, "tx.select")
    peer.send(publish(1, "amq.fanout", "", b"m") * (TX_COPIES_MAX // 256))
    return asks(peer, method(1, "tx.commit"))


def rolled_back(node: Node, end: str) -> Ask:
    """The end of a transaction that acked very many deliveries one by one, every other one."""
    peer = client(node)
    peer.send(publish(1, "", "q", b"m") * 17_000)
    peer.call(1, "tx.select")
    peer.send(method(1, "basic.consume", queue="q"))
    peer.send(*[method(1, "basic.ack", delivery_tag=2 * tag) for tag in range(1, 8_001)])
    return asks(peer, method(1, end))


def dropped(node: Node, end: str) -> Ask:
    """The end of a transaction that is not committed."""
    peer = client(node)
    peer.call(1, "tx.select")
    peer.send(publish(1, "", "q", b"m") * 9_000)
    return asks(peer, method(1, end))


def refused(node: Node, exchange: str, times: int) -> Ask:
    """A publish for which a quota has no room, in any of very many queues."""
    queues = QUOTA_RECOUNT_QUEUES + 64 if times else 200
    node.add_user("alice", configure=".*", write=".*", read=".*")
    node.broker.users.set_limits("alice", {"max-messages": queues})
    peer = node.connect_as("alice")
    for number in range(queues):
        name = f"q{number}"
        peer.send(method(1, "queue.declare", queue=name, no_wait=True))
        peer.send(method(1, "queue.bind", queue=name, exchange="amq.fanout", no_wait=True))
        peer.send(publish(1, "", name, b"m"))
    return asks(peer, publish(1, exchange, "q0", b"m"))


def moved_chunks(node: Node) -> Ask:
    """A purge of very many chunks of which the first stays, so that all behind it are moved."""
    memory = node.core.memory
    memory.window_bytes = memory.window_mask = 0
    memory.page_bytes = 200
    peer = node.connect()
    peer.declare("q")
    peer.send(publish(1, "", "q", b"m", delivery_mode=2) * 2000)
    node.sync()
    peer.send(method(1, "basic.get", queue="q"))
    stored = node.classic("q").stored
    assert len(stored.items) > 10
    # Made as long as that of a queue with a hundred gigabytes on the disk.
    last = int(stored.items[-1].ref.last)
    for first in range(last + 1, last + 100_000):
        stored.items.append(StoredChunk(ChunkRef(1, 0, 1, first, first, 1, 0, 0), 1))
    return asks(node.connect(), method(1, "queue.purge", queue="q", no_wait=True))


def on_the_disk(node: Node) -> Ask:
    """A shorter limit for a queue with large messages, which are read before they are dropped."""
    node.core.memory.window_bytes = 4 * CHUNK_BYTES_MAX
    node.core.memory.window_mask = 0
    peer = client(node, **{"x-max-length": 100_000})
    for number in range(100):
        peer.send(publish(1, "", "q", b"%04d" % number + bytes(CHUNK_BYTES_MAX)))
    node.sync()
    short = {"pattern": ".*", "definition": {"max-length": 10}, "priority": 1}
    return partial(node.broker.parameters.set, "/", "operator_policy", "short", short)


def passed_deadlines(node: Node) -> Ask:
    """Many queues in which half of the messages with a deadline are gone when it comes."""
    peer = node.connect()
    for number in range(20):
        peer.declare(f"q{number}", arguments={"x-message-ttl": 1_000_000})
        peer.send(publish(1, "", f"q{number}", b"") * 1_000)
        peer.send(method(1, "basic.get", queue=f"q{number}", no_ack=True) * 500)
        peer.take()
    return partial(node.clock.advance, 1_000_001)


# -- HareMQ's protocol -----------------------------------------------------------------------------


def listed(node: Node) -> Ask:
    """A query of a queue with more bindings than are listed."""
    hare = HarePeer(node)
    assert hare.open()
    node.connect().declare("q")
    for number in range(4 * HAREMQ_LISTED_MAX):
        node.vhost.exchanges.bind(Name("amq.direct"), Name("q"), True, f"k{number}", {}, None)
    return partial(hare.receive, frame("basicQueryRequest", rid="r", cid="c1"))


def unbound(node: Node) -> Ask:
    """An unbind of a pair without a binding, of a queue with very many of another exchange."""
    hare = HarePeer(node)
    assert hare.open()
    node.connect().declare("q")
    for number in range(3_000):
        node.vhost.exchanges.bind(Name("amq.direct"), Name("q"), True, f"k{number}", {}, None)
    names = {"exchange_name": "amq.topic", "queue_name": "q"}
    return partial(hare.receive, frame("unbindRequest", rid="u", cid="c1", **names))


# -- the table -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A world that returns what is asked in it, and what is counted until the broker rests."""

    world: Callable[[Node], Ask]
    least: int
    most: int


def _row(world: Callable[..., Ask], least: int, most: int, *args: Any, **values: Any) -> Row:
    return Row(lambda node: world(node, *args, **values), least, most)


ROWS: Final[dict[str, Row]] = {
    "long keys at many topic exchanges": _row(long_keys, 60 * 31 // 8, 2_000),
    "wildcards": _row(wildcards, ROUTING - 1, 2 * ROUTING),
    **{
        f"bindings of a {kind} exchange": _row(
            many_bindings, BINDINGS // 8, BINDINGS // 8 + FRAME, kind
        )
        for kind in ("fanout", "topic", "x-recent-history")
    },
    "keys in CC": _row(many_keys, 20 * 12 * COPY_KEYS_MAX // 8, 40 * 12 * COPY_KEYS_MAX // 8),
    **{
        f"a message with CC, routed once, {rights} rights to topics": _row(
            routed_once, ROUTING // 2, ROUTING, rights == "with"
        )
        for rights in ("with", "without")
    },
    "ways between exchanges": _row(many_exchanges, 300 * 304 // 8, 300 * 304 // 8 + FRAME),
    "tables of a headers exchange": _row(deep_headers, 5000 * 22 // 8, ROUTING),
    "weights of a ring": _row(weights, 10 * 3000 // 4, 10 * 6000),
    "new routing keys": _row(new_keys, 1000 * ROUTE_RESOLVED, 3000 * ROUTE_RESOLVED),
    "copies": _row(fan, 20 * 1000, 20 * 1400),
    **{
        f"keys checked by {pattern}": _row(checked_keys, 400 * KEY, 400 * KEY * 16, pattern)
        for pattern in (PATTERN, "^ab\\..*$", ".*\\.z$|.*[0-9]$")
    },
    "a key that was checked before": _row(known_key, 1, KEY - 1),
    "keys that a change of rights does not touch": _row(untouched_keys, 500, 2_500 + SLICE),
    "a checked bind": _row(checked_bind, KEY, 20 * KEY),
    "a class of very many characters": _row(large_class, len(WORDS), 20 * len(WORDS)),
    "copies that are checked": _row(checked_copies, 40 * KEY, ROUTING),
    "a slow policy": _row(slow_policy, PATTERN_LOOKS_MAX // 8, PATTERN_LOOKS_MAX // 8 + 1000),
    "slow policies": _row(slow_policies, POLICIES_LOOKS_MAX // 8, POLICIES_LOOKS_MAX // 8 + 200),
    "policies of what an import copies": _row(policies_of_copies, 200 * 500, 40 * 200 * 500),
    **{
        f"patterns in {section}": _row(compiled, 2 * 30 * 600 * 2, 16 * 30 * 600 * 2, section)
        for section in ("permissions", "topic_permissions", "policies", "parameters")
    },
    **{
        f"values of arguments: {table}": _row(
            values, values_least(table), 2 * values_least(table), table
        )
        for table in TABLES
    },
    "long texts of arguments": _row(long_texts, METHOD_VALUES_MAX, 3 * METHOD_VALUES_MAX),
    **{
        f"a declare again with {extra} unknown arguments": _row(
            again,
            10 * PARTITIONS,
            20 * PARTITIONS + 16 * extra,
            extra,
        )
        for extra in (0, 4000)
    },
    "a super stream": _row(new_super_stream, 32 * PARTITIONS, 64 * PARTITIONS, 0),
    "a super stream with long definitions": _row(
        new_super_stream,
        32 * PARTITIONS,
        SUPER_STREAM_BYTES_MAX // TABLE_BYTES_PER_COST + 50 * PARTITIONS,
        2,
    ),
    "a consumer of all partitions": _row(consume_all, 8 * PARTITIONS, 20 * PARTITIONS),
    "long headers of a stream": _row(
        stream_headers, MESSAGES * EACH, 4 * MESSAGES * EACH, HEADERS | {"x-stream-offset": "mine"}
    ),
    "long headers that a filter reads": _row(
        stream_headers,
        MESSAGES * EACH,
        4 * MESSAGES * EACH,
        HEADERS,
        **{"x-stream-filter-headers": {"wanted": 1}},
    ),
    "long headers that come again": _row(headers_again, MESSAGES * EACH, 4 * MESSAGES * EACH),
    "a history with CC": _row(
        history,
        HISTORY_COPIES_MAX - EACH,
        2 * (HISTORY_COPIES_MAX + EACH),
        "fanout",
        HEADERS | {"CC": ["k"]},
    ),
    "a history with headers": _row(
        history, HISTORY_COPIES_MAX - EACH, 2 * (HISTORY_COPIES_MAX + EACH), "headers", HEADERS
    ),
    **{
        f"a history for queues with {', '.join(arguments)}": _row(
            history_of_queues, HISTORY_COPIES_MAX // 2, HISTORY_COPIES_MAX + 2 * SLICE, **arguments
        )
        for arguments in (
            {"x-message-ttl": 60_000},
            {"x-max-length": 1},
            {"x-message-ttl": 60_000, "x-max-length": 1},
        )
    },
    "deaths that a letter tells of": _row(
        chain, 3 * DEATHS + 2 * DEATHS_LISTED_MAX * DEAD_LETTER, 12 * DEATHS
    ),
    "headers of a letter": _row(letter_headers, 4000 * 9 // TABLE_BYTES_PER_COST, 2 * SLICE),
    "bindings of a letter": _row(letter_bindings, BINDINGS // 8, BINDINGS // 8 + FRAME),
    "a browser": _row(browser, 1000, 4000, 0),
    "a browser with a prefetch count": _row(browser, 900, 4000, 900),
    "deliveries": _row(deliveries, 500, 999),
    "deliveries with a header of the queue": _row(
        deliveries, 1000, 1499, **{"x-delivery-limit": 5}
    ),
    "deliveries of long bodies": _row(
        long_bodies, 100 * LONGEST_COPIED // 4096, 100 * LONGEST_COPIED // 256
    ),
    "consumers that are asked in vain": _row(vain_consumers, 2000 // LOOKED_AT_PER_COST, 1000),
    "readers that are asked in vain": _row(vain_readers, 1500 // LOOKED_AT_PER_COST, 4000, 1500),
    "copies of a transaction": _row(transaction, TX_COPIES_MAX // 2, 2 * TX_COPIES_MAX),
    **{
        f"acks that end with {end}": _row(rolled_back, 8_000, 40_000, end)
        for end in ("tx.rollback", "channel.close")
    },
    **{
        f"publishes that end with {end}": _row(dropped, 10, 1_000, end)
        for end in ("tx.rollback", "channel.close")
    },
    "queues that are counted for a refusal": _row(
        refused,
        QUOTA_RECOUNT_QUEUES // QUEUES_COUNTED_PER_COST,
        QUOTA_RECOUNT_QUEUES // QUEUES_COUNTED_PER_COST + 4 * ROUTE_RESOLVED,
        "",
        1,
    ),
    "queues that are counted for a refused fan-out": _row(
        refused, 200, QUOTA_RECOUNT_QUEUES // QUEUES_COUNTED_PER_COST + 4 * 200, "amq.fanout", 0
    ),
    "chunks that a purge moves": _row(moved_chunks, 10 * 100_000 // PLACES_MOVED_PER_COST, 100_000),
    "chunks that are read at once": _row(
        on_the_disk, 50 * (CHUNK_READ + CHUNK_BYTES_MAX // CHUNK_BYTES_PER_COST), 200_000
    ),
    "deadlines of what is gone": _row(passed_deadlines, 20 * (2 * 500 + 500 // 4), 60_000),
    "bindings that HareMQ's client lists": _row(listed, 2 * HAREMQ_LISTED_MAX, 64_000),
    "bindings that HareMQ's unbind passes": _row(unbound, 3_000, 30_000),
}


@pytest.mark.parametrize("name", ROWS)
def test_what_a_request_has_the_broker_do_is_counted(name: str) -> None:
    row = ROWS[name]
    node = Node(window_bytes=-1)
    ask = row.world(node)
    node.run()
    before = int(node.core.scheduler.spent)
    ask()
    node.now()
    node.run()
    assert row.least <= int(node.core.scheduler.spent) - before <= row.most
