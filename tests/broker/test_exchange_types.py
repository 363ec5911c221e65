"""The exchange types beyond AMQP's four: hashes, chance and recent history.

Sources: RabbitMQ's plugins of those names.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from leveret.limits import HISTORY_MESSAGES_MAX, RING_WEIGHT_MAX, RING_WEIGHTS_MAX
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer, held
from support.wire.raw_codec import method, properties, publish

HASH, RANDOM, HISTORY = "x-consistent-hash", "x-random", "x-recent-history"


def exchange(peer: Peer, type: str, **arguments: Any) -> None:
    """Declare the durable exchange `e`."""
    values = {"exchange": "e", "type": type, "durable": True, "arguments": arguments}
    peer.call(1, "exchange.declare", **values)


def bind(peer: Peer, queue: str, key: str = "", **arguments: Any) -> None:
    """Declare a durable queue and bind it to `e`."""
    peer.declare(queue)
    values = {"queue": queue, "exchange": "e", "routing_key": key, "arguments": arguments}
    peer.call(1, "queue.bind", **values)


def refused(peer: Peer, name: str, **values: Any) -> str:
    """Send a method that is refused with 406 on a channel of its own; return why."""
    peer.call(9, "channel.open")
    peer.send(method(9, name, **values))
    closed = peer.expect(9, "channel.close")
    assert closed.code == 406
    peer.send(method(9, "channel.close-ok"))
    return str(closed.text).removeprefix("PRECONDITION_FAILED - ")


def refused_bind(peer: Peer, key: str, queue: str = "q") -> str:
    """Why a bind to `e` is refused."""
    return refused(peer, "queue.bind", queue=queue, exchange="e", routing_key=key)


def drain(peer: Peer) -> dict[str, list[bytes]]:
    """Take what is in all queues."""
    found: dict[str, list[bytes]] = {}
    for name in sorted(peer.node.vhost.queues.by_name):
        bodies: list[bytes] = []
        while peer.node.vhost.queues.by_name[name].ready_count() > 0:
            bodies.append(peer.call_get(name, no_ack=True).body)
        if bodies:
            found[name] = bodies
    return found


def owner(peer: Peer, key: str = "", **props: Any) -> str:
    """Publish and tell which queue got it: just one."""
    peer.send(publish(1, "e", key, b"x", **props))
    (name,) = drain(peer)
    return name


def returned(peer: Peer, key: str = "", **props: Any) -> bool:
    """Publish with mandatory and tell whether it came back."""
    peer.send(publish(1, "e", key, b"x", mandatory=True, **props))
    return "basic.return" in peer.names()


def restarted(node: Node) -> Node:
    """Kill the broker when everything is synced, and start it again."""
    node.sync()
    return Node(RecordingDisk(node.image()))


# -- x-consistent-hash -----------------------------------------------------------------------------


def test_a_value_has_one_queue_and_keeps_it(peer: Peer) -> None:
    exchange(peer, HASH)
    for queue in "abc":
        bind(peer, queue, "10")
    keys = [f"key {number}" for number in range(100)]
    owners = [owner(peer, key) for key in keys]
    assert set(owners) == {"a", "b", "c"}
    assert owners == [owner(peer, key) for key in keys]
    bind(peer, "d", "10")
    later = [owner(peer, key) for key in keys]
    assert {new for old, new in zip(owners, later, strict=True) if old != new} == {"d"}
    again = restarted(peer.node).connect()
    assert later == [owner(again, key) for key in keys]
    again.call(1, "queue.delete", queue="d")
    assert owners == [owner(again, key) for key in keys]


def test_weights_are_shares(peer: Peer) -> None:
    exchange(peer, HASH)
    for queue, weight in (("a", "1"), ("b", "9")):
        bind(peer, queue, weight)
    counts = Counter(owner(peer, f"{number}") for number in range(1000))
    assert 50 < counts["a"] < 150


def test_nothing_bound_is_unroutable(peer: Peer) -> None:
    exchange(peer, HASH)
    assert returned(peer)


@pytest.mark.parametrize("name", ["message_id", "correlation_id"])
def test_the_hash_of_a_property(peer: Peer, name: str) -> None:
    exchange(peer, HASH, **{"hash-property": name})
    for queue in "abc":
        bind(peer, queue, "10")
    owners = {owner(peer, f"{n}", **{name: "same", "type": f"{n}"}) for n in range(20)}
    assert len(owners) == 1
    assert len({owner(peer, "same", **{name: f"{n}"}) for n in range(30)}) == 3
    assert owner(peer, "a") == owner(peer, "b"), "without the property all are the same"


def test_the_hash_of_a_timestamp(peer: Peer) -> None:
    exchange(peer, HASH, **{"hash-property": "timestamp"})
    for queue in "abc":
        bind(peer, queue, "10")
    assert len({owner(peer, f"{n}", timestamp=17) for n in range(20)}) == 1
    assert len({owner(peer, "same", timestamp=n) for n in range(30)}) == 3
    assert owner(peer, "a") == owner(peer, "b")


def test_the_hash_of_a_header(peer: Peer) -> None:
    exchange(peer, HASH, **{"hash-header": "user"})
    for queue in "abc":
        bind(peer, queue, "10")
    values: list[Any] = ["ann", 17, 1.5, True, [1, "a"], {"a": 1}]
    for value in values:
        assert len({owner(peer, f"{n}", headers={"user": value, "n": n}) for n in range(9)}) == 1
    assert len({owner(peer, "same", headers={"user": n}) for n in range(30)}) == 3
    assert owner(peer, "a") == owner(peer, "b", headers={"other": 1})


def test_the_hash_behind_another_exchange(peer: Peer) -> None:
    """And to one: the graph goes on from the binding that the value belongs to."""
    exchange(peer, HASH)
    bind(peer, "a", "10")
    peer.call(1, "exchange.declare", exchange="f", type="fanout")
    peer.call(1, "exchange.bind", source="e", destination="f", routing_key="10")
    peer.call(1, "exchange.bind", source="amq.fanout", destination="e")
    for queue in "bc":
        peer.declare(queue)
        peer.call(1, "queue.bind", queue=queue, exchange="f")
    ways = set()
    for number in range(30):
        peer.send(publish(1, "amq.fanout", f"{number}", b"x"))
        ways.add("".join(drain(peer)))
    assert ways == {"a", "bc"}


def test_a_queue_bound_twice_counts_with_its_greater_weight(peer: Peer) -> None:
    exchange(peer, HASH)
    bind(peer, "a", "10")
    bind(peer, "b", "10")
    before = [owner(peer, f"{n}") for n in range(50)]
    bind(peer, "a", "5")
    assert before == [owner(peer, f"{n}") for n in range(50)]


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("", "must be an integer: ''"),
        ("ten", "must be an integer: 'ten'"),
        ("1.5", "must be an integer: '1.5'"),
        ("²", "must be an integer: '²'"),
        ("0", "must be greater than 0"),
        ("-3", "must be greater than 0"),
        (str(RING_WEIGHT_MAX + 1), f"must not be greater than {RING_WEIGHT_MAX}"),
        ("9" * 255, f"must not be greater than {RING_WEIGHT_MAX}"),
    ],
)
def test_a_binding_key_that_is_no_weight(peer: Peer, key: str, why: str) -> None:
    exchange(peer, HASH)
    peer.declare("q")
    assert refused_bind(peer, key) == f"The binding key {why}"
    assert not peer.node.vhost.exchanges.by_name["e"].bindings
    assert not peer.node.vhost.exchanges.bindings_to(peer.node.vhost.queues.by_name["q"])


def test_the_limit_of_weights(peer: Peer) -> None:
    exchange(peer, HASH)
    for number in range(RING_WEIGHTS_MAX // RING_WEIGHT_MAX):
        bind(peer, f"q{number}", str(RING_WEIGHT_MAX))
    peer.declare("q")
    assert refused_bind(peer, "1") == (
        f"the weights of all bindings of an exchange exceed {RING_WEIGHTS_MAX}"
    )
    peer.call(1, "queue.delete", queue="q0")
    bind(peer, "q", "+1")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (
            {"hash-header": "a", "hash-property": "message_id"},
            "hash-header and hash-property are mutually exclusive",
        ),
        ({"hash-property": "priority"}, "Unsupported property: priority"),
        ({"hash-header": 1}, "invalid arg 'hash-header': must name a header or a property"),
        ({"hash-header": ""}, "invalid arg 'hash-header': must name a header or a property"),
    ],
)
def test_arguments_of_a_hash_that_are_none(peer: Peer, arguments: dict[str, Any], why: str) -> None:
    values = {"exchange": "e", "type": HASH, "arguments": arguments}
    assert refused(peer, "exchange.declare", **values) == why
    assert "e" not in peer.node.vhost.exchanges.by_name


# -- x-modulus-hash --------------------------------------------------------------------------------


def test_a_modulus_spreads_keys_and_keeps_them(peer: Peer) -> None:
    exchange(peer, "x-modulus-hash")
    assert returned(peer)
    for queue in "cab":
        bind(peer, queue, "any key")
    keys = [f"key {number}" for number in range(60)]
    owners = [owner(peer, key) for key in keys]
    assert min(Counter(owners).values()) > 10
    bind(peer, "a", "another key")
    assert owners == [owner(peer, key) for key in keys]
    again = restarted(peer.node).connect()
    assert owners == [owner(again, key) for key in keys]
    again.call(1, "queue.delete", queue="b")
    assert {owner(again, key) for key in keys} == {"a", "c"}


# -- x-random and x-local-random -------------------------------------------------------------------


@pytest.mark.parametrize("type", [RANDOM, "x-local-random"])
def test_chance_gives_each_message_to_one_binding(peer: Peer, type: str) -> None:
    exchange(peer, type)
    assert returned(peer)
    for queue in "abcd":
        bind(peer, queue)
    counts = Counter(owner(peer, "same") for _ in range(400))
    assert set(counts) == set("abcd")
    assert all(60 < count < 140 for count in counts.values())
    peer.call(1, "queue.delete", queue="b")
    peer.call(1, "queue.delete", queue="d")
    assert {owner(peer, "same") for _ in range(40)} == {"a", "c"}


def test_chance_ignores_the_binding_key_and_takes_exchanges(peer: Peer) -> None:
    exchange(peer, RANDOM)
    bind(peer, "a", "some key")
    peer.call(1, "exchange.bind", source="e", destination="amq.fanout", routing_key="k")
    peer.declare("b")
    peer.call(1, "queue.bind", queue="b", exchange="amq.fanout")
    assert {owner(peer, f"{n}") for n in range(40)} == {"a", "b"}


def test_what_a_local_random_exchange_does_not_bind(peer: Peer) -> None:
    exchange(peer, "x-local-random")
    peer.declare("q")
    assert refused_bind(peer, "k") == "Non empty binding 'k' key not permitted"
    for kind in ("quorum", "stream"):
        peer.declare(kind, arguments={"x-queue-type": kind})
        why = f"Queue type {kind} not valid for this exchange type"
        assert refused_bind(peer, "", kind) == why
    values = {"source": "e", "destination": "amq.fanout"}
    assert refused(peer, "exchange.bind", **values) == "Destination not found"


# -- x-recent-history ------------------------------------------------------------------------------


def send(peer: Peer, *bodies: bytes, key: str = "", **props: Any) -> None:
    """Publish to `e`."""
    for body in bodies:
        peer.send(publish(1, "e", key, body, **props))


def numbered(first: int, last: int) -> list[bytes]:
    """Bodies that count."""
    return [b"%d" % number for number in range(first, last + 1)]


def test_a_new_binding_gets_the_last_twenty(peer: Peer) -> None:
    exchange(peer, HISTORY)
    bind(peer, "early", "any")
    send(peer, *numbered(1, 30), key="key")
    bind(peer, "late")
    assert drain(peer) == {"early": numbered(1, 30), "late": numbered(11, 30)}
    send(peer, b"new")
    assert drain(peer) == {"early": [b"new"], "late": [b"new"]}


def test_a_binding_that_is_there_replays_nothing(peer: Peer) -> None:
    exchange(peer, HISTORY)
    send(peer, b"1")
    bind(peer, "q")
    bind(peer, "q")
    assert drain(peer) == {"q": [b"1"]}
    bind(peer, "q", "another key")
    assert drain(peer) == {"q": [b"1"]}


def test_the_length_of_a_history(peer: Peer) -> None:
    exchange(peer, HISTORY, **{"x-recent-history-length": 3})
    send(peer, *numbered(1, 5))
    bind(peer, "q")
    assert drain(peer) == {"q": numbered(3, 5)}


def test_what_is_not_to_be_stored(peer: Peer) -> None:
    exchange(peer, HISTORY)
    bind(peer, "early")
    for value in (True, False, "true"):
        headers = {"x-recent-history-no-store": value}
        send(peer, repr(value).encode(), headers=headers)
    bind(peer, "late")
    assert drain(peer) == {"early": [b"True", b"False", b"'true'"], "late": [b"False", b"'true'"]}


def test_a_history_counts_as_no_destination(peer: Peer) -> None:
    """What only it took is returned, goes to the alternate exchange, and is replayed."""
    exchange(peer, HISTORY, **{"alternate-exchange": "amq.fanout"})
    assert returned(peer)
    peer.declare("rest")
    peer.call(1, "queue.bind", queue="rest", exchange="amq.fanout")
    assert not returned(peer)
    bind(peer, "q")
    assert drain(peer) == {"q": [b"x", b"x"], "rest": [b"x"]}


def test_a_replay_keeps_address_and_properties(peer: Peer) -> None:
    exchange(peer, HISTORY)
    send(peer, b"m", key="its.key", message_id="7", headers={"a": 1}, delivery_mode=2)
    bind(peer, "q")
    got = peer.call_get("q")
    assert (got.exchange, got.routing_key) == ("e", "its.key")
    assert got.properties == properties(message_id="7", headers={"a": 1}, delivery_mode=2)


def test_a_replay_is_routed_on_from_an_exchange(peer: Peer) -> None:
    exchange(peer, HISTORY)
    send(peer, b"log", key="log.error")
    send(peer, b"other", key="other")
    for queue, key in (("logs", "log.#"), ("all", "#")):
        peer.declare(queue)
        peer.call(1, "queue.bind", queue=queue, exchange="amq.topic", routing_key=key)
    peer.call(1, "exchange.bind", source="e", destination="amq.topic")
    assert drain(peer) == {"all": [b"log", b"other"], "logs": [b"log"]}


def test_a_replayed_message_survives_and_the_history_does_not(peer: Peer) -> None:
    exchange(peer, HISTORY)
    send(peer, b"kept", delivery_mode=2)
    send(peer, b"transient")
    bind(peer, "q")
    again = restarted(peer.node).connect()
    assert drain(again) == {"q": [b"kept"]}
    bind(again, "late")
    assert drain(again) == {}


def test_a_transaction_enters_the_history_with_its_commit(peer: Peer) -> None:
    exchange(peer, HISTORY)
    peer.call(1, "tx.select")
    send(peer, b"rolled back")
    peer.call(1, "tx.rollback")
    send(peer, b"committed", mandatory=True)
    peer.send(method(1, "tx.commit"))
    peer.node.sync()
    assert peer.names() == ["basic.return", "tx.commit-ok"]
    bind(peer, "q")
    assert drain(peer) == {"q": [b"committed"]}


def test_a_history_is_counted_as_memory(peer: Peer) -> None:
    exchange(peer, HISTORY, **{"x-recent-history-length": 2})
    send(peer, *[bytes(1000)] * 5)
    core = peer.node.core
    assert core.memory.held_messages == 2
    assert 2000 <= core.memory.held_bytes < 2100
    peer.call(1, "exchange.delete", exchange="e")
    assert (core.memory.held_messages, core.memory.held_bytes) == (0, 0)


@pytest.mark.parametrize("length", [0, -1, "20", 1.5, True])
def test_a_length_that_is_none(peer: Peer, length: object) -> None:
    values = {"exchange": "e", "type": HISTORY, "arguments": {"x-recent-history-length": length}}
    why = refused(peer, "exchange.declare", **values)
    assert why == (
        f"Invalid argument {length}, 'x-recent-history-length' must be a positive integer"
    )


def test_the_limit_of_a_history(peer: Peer) -> None:
    exchange(peer, HISTORY, **{"x-recent-history-length": HISTORY_MESSAGES_MAX})
    arguments = {"x-recent-history-length": HISTORY_MESSAGES_MAX + 1}
    values = {"exchange": "f", "type": HISTORY, "arguments": arguments}
    why = f"'x-recent-history-length' must not be greater than {HISTORY_MESSAGES_MAX}"
    assert refused(peer, "exchange.declare", **values) == why


# -- all -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type", [HASH, "x-modulus-hash", RANDOM, "x-local-random", HISTORY])
def test_each_type_is_there_again_and_goes(peer: Peer, type: str) -> None:
    exchange(peer, type)
    bind(peer, "q", "10" if type == HASH else "")
    node = restarted(peer.node)
    again = node.connect()
    assert node.vhost.exchanges.by_name["e"].kind == type
    assert owner(again, "k") == "q"
    node.take_checkpoint()
    again = restarted(node).connect()
    assert owner(again, "k") == "q"
    again.call(1, "queue.unbind", queue="q", exchange="e", routing_key="10" if type == HASH else "")
    assert returned(again)
    again.call(1, "exchange.delete", exchange="e", if_unused=True)
    assert "e" not in restarted(again.node).vhost.exchanges.by_name


@pytest.mark.parametrize("type", [HASH, "x-modulus-hash", RANDOM, "x-local-random"])
def test_a_message_with_copies_goes_to_one_binding_too(peer: Peer, type: str) -> None:
    """Of several routing keys the first one counts, as in RabbitMQ."""
    exchange(peer, type)
    for queue in "abcd":
        bind(peer, queue, "10" if type in (HASH, "x-modulus-hash") else "")
    copies = [f"copy {number}" for number in range(20)]
    assert owner(peer, "key", headers={"CC": copies}) in "abcd"


def test_a_history_keeps_one_of_a_message_with_copies(peer: Peer) -> None:
    exchange(peer, HISTORY)
    send(peer, b"m", headers={"CC": ["a", "b"]})
    bind(peer, "q")
    assert drain(peer) == {"q": [b"m"]}


def test_a_replayed_dead_letter_is_still_the_brokers(peer: Peer) -> None:
    """Its deaths are counted on, not taken for what a publisher says.

    Source: behaviour 71 (forged x-death).
    """
    exchange(peer, HISTORY)
    dead = {"x-dead-letter-exchange": "e"}
    peer.declare("work", arguments=dead)
    peer.send(publish(1, "", "work", b"m", delivery_mode=2))
    tag = peer.call_get("work").delivery_tag
    peer.send(method(1, "basic.reject", delivery_tag=tag))
    bind(peer, "again")
    (item,) = held(peer.node.classic("again"))
    assert item.message.died
