"""Memory that is not messages: whatever a client can make grow is in the broker's account.

Each kind of thing is measured by `tracemalloc` and compared with what the account says of it, on
both builds; and it is booked out to the byte when it goes.
"""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from leveret.broker.policies.policy import make_policy
from leveret.broker.publishers.publishers import PUBLISHER_BYTES
from leveret.broker.queue.deduplication import KEY_BYTES
from leveret.broker.queue.target import TAKE
from leveret.broker.scheduler.accounts import (
    ACCOUNTS_FREE_BYTES,
    CHANNEL_BYTES,
    CONNECTION_BYTES,
    ROUTE_BYTES,
    UNACKED_BYTES,
    VHOST_BYTES,
)
from leveret.broker.sinks.area import area_of
from leveret.broker.sinks.release import Sink
from leveret.broker.stream.stream import Stream
from leveret.broker.users.users import USER_LIMITS, User
from leveret.errors import PreconditionFailed
from leveret.limits import USER_TAGS_MAX, VHOST_TAGS_MAX
from leveret.session.client_session import INPUT_BYTES_BLOCKED_MAX
from leveret.store.disks.recording import RecordingDisk
from leveret.wire.content.output import FrameOutput
from leveret.wire.numbered import Numbered
from support.node.core import Node, Peer
from support.node.tags import set_tags
from support.wire.raw_codec import METHOD, frame, header, method, properties, publish
from support.wire.raw_stream import Inbox

#: The account may differ from what is measured by this factor: builds and versions of Python do.
FACTOR = 2

KIB = 1024


@pytest.fixture
def node() -> Iterator[Node]:
    """A broker; nothing that the tests before it left counts in what it takes."""
    gc.collect()
    yield Node()
    tracemalloc.stop()


def total(node: Node) -> int:
    return int(node.core.accounts.total())


def grown(node: Node, make: Callable[[], None]) -> tuple[int, int]:
    """How many bytes `make` has made the process and the account grow."""
    node.sync()
    gc.collect()
    tracemalloc.start()
    booked = total(node)
    make()
    node.sync()
    gc.collect()
    return tracemalloc.get_traced_memory()[0], total(node) - booked


def queues(count: int, **arguments: object) -> list[bytes]:
    return [
        method(1, "queue.declare", queue=f"q-{number:030}", no_wait=True, arguments=arguments)
        for number in range(count)
    ]


def staging_queues(count: int, destination: str) -> list[bytes]:
    arguments = {"x-staging-sink": "job", "x-staging-batch": 1}
    return [
        method(
            1,
            "queue.declare",
            queue=f"q-{number:030}",
            durable=True,
            no_wait=True,
            arguments=arguments | {"x-staging-destination": destination.format(number)},
        )
        for number in range(count)
    ]


def exchanges(kind: str, count: int) -> list[bytes]:
    return [
        method(1, "exchange.declare", exchange=f"{kind}-{number:030}", type=kind, no_wait=True)
        for number in range(count)
    ]


def bindings(kind: str, keys: list[str], **arguments: object) -> list[bytes]:
    return [
        method(
            1,
            "queue.bind",
            queue=f"q-{number:030}",
            exchange=f"{kind}-{0:030}",
            routing_key=key,
            arguments={name: f"{value}{number}" for name, value in arguments.items()},
            no_wait=True,
        )
        for number, key in enumerate(keys)
    ]


KEYS = [f"key-{number}" for number in range(400)]

MADE: dict[str, tuple[list[bytes], list[bytes]]] = {
    "queues": ([], queues(500)),
    "queues with arguments": (
        [],
        queues(400, **{"x-message-ttl": 100_000, "x-max-length": 10_000, "x-other": "v" * 300}),
    ),
    "staging queues of one sink": ([], staging_queues(300, "to")),
    "staging queues of many sinks": ([], staging_queues(300, "to-{}")),
    "direct exchanges": ([], exchanges("direct", 500)),
    "topic exchanges": ([], exchanges("topic", 500)),
    "consistent-hash exchanges": ([], exchanges("x-consistent-hash", 100)),
    "direct bindings": (queues(400) + exchanges("direct", 1), bindings("direct", KEYS)),
    "fanout bindings": (queues(400) + exchanges("fanout", 1), bindings("fanout", KEYS)),
    "topic bindings": (queues(400) + exchanges("topic", 1), bindings("topic", KEYS)),
    "deep topic bindings": (
        queues(100) + exchanges("topic", 1),
        bindings("topic", [f"{number}" + ".x" * 120 for number in range(100)]),
    ),
    "weights": (
        queues(30) + exchanges("x-consistent-hash", 1),
        bindings("x-consistent-hash", ["10"] * 30),
    ),
    "headers bindings": (
        queues(400) + exchanges("headers", 1),
        bindings("headers", [""] * 400, name="value", other="value"),
    ),
    "one long argument": (
        queues(20) + exchanges("direct", 1),
        bindings("direct", [""] * 20, name="v" * 100_000),
    ),
    "many arguments": (
        queues(4) + exchanges("direct", 1),
        bindings("direct", [""] * 4, **{f"name-{n}": "v" for n in range(2000)}),
    ),
    "many arguments of headers": (
        queues(4) + exchanges("headers", 1),
        bindings("headers", [""] * 4, **{f"name-{n}": "v" for n in range(2000)}),
    ),
}


@pytest.mark.parametrize("kind", MADE)
def test_the_account_says_what_a_definition_takes(node: Node, kind: str) -> None:
    peer = node.connect()
    before, made = MADE[kind]
    peer.send(*before)

    measured, booked = grown(node, lambda: peer.send(*made))
    assert measured / FACTOR < booked < measured * FACTOR, (measured, booked)


def test_arguments_of_a_binding_take_what_they_took_on_the_wire(node: Node) -> None:
    """Decoded, many small entries take five times as much."""
    peer = node.connect()
    before, made = MADE["many arguments"]
    peer.send(*before)

    _, booked = grown(node, lambda: peer.send(*made))
    assert booked < sum(map(len, made)) * 1.1


def change(node: Node, peer: Peer, draw: random.Random) -> None:
    """Declare, bind, unbind or delete something, or what is not there."""
    queue, exchange = f"q{draw.randrange(6)}", f"e{draw.randrange(6)}"
    key = draw.choice(["1", "2", "1.2.3", "1.#", ".".join("1" * draw.randrange(1, 100))])
    entries = {"x-match": "any", "é": "ü" * draw.randrange(900)}
    arguments = draw.choice([{}, {"a": "v"}, entries])
    durable = draw.random() < 0.5
    kinds = ["direct", "topic", "headers", "fanout", "x-consistent-hash", "x-delayed-message"]
    kind = draw.choice(kinds)
    delayed = {"x-delayed-type": "topic"} if kind == "x-delayed-message" else {}
    step = draw.randrange(9)
    if step == 0:
        peer.send(method(1, "queue.delete", queue=queue))
    elif step == 1:
        peer.send(method(1, "exchange.delete", exchange=exchange))
    elif step in (2, 3):
        peer.send(method(1, "queue.declare", queue=queue, durable=durable, arguments=arguments))
    elif step == 4:
        more = arguments | delayed
        deleted = draw.random() < 0.3
        peer.send(
            method(
                1,
                "exchange.declare",
                exchange=exchange,
                type=kind,
                durable=durable,
                auto_delete=deleted,
                arguments=more,
            )
        )
    elif step == 5:
        to = f"e{draw.randrange(6)}"
        ends = {"destination": to, "source": exchange, "routing_key": key, "arguments": arguments}
        peer.send(method(1, draw.choice(["exchange.bind", "exchange.unbind"]), **ends))
    else:
        name = draw.choice(["queue.bind", "queue.bind", "queue.unbind"])
        ends = {"queue": queue, "exchange": exchange, "routing_key": key, "arguments": arguments}
        peer.send(method(1, name, **ends))
    node.sync()
    if peer.names()[-1:] == ["channel.close"]:
        peer.send(method(1, "channel.close-ok"))
        peer.call(1, "channel.open")


@pytest.mark.parametrize("seed", range(8))
def test_what_is_deleted_is_booked_out_to_the_byte(seed: int) -> None:
    draw = random.Random(seed)
    node = Node()
    first = total(node)
    peer = node.connect()
    for _ in range(100):
        change(node, peer, draw)
    held = int(node.vhost.account.bytes)
    if seed % 2:
        # What is read back counts as much as what was made.
        node = Node(RecordingDisk(node.stop()))
        durable = int(node.vhost.account.bytes)
        assert VHOST_BYTES <= durable <= held
        peer = node.connect()
    for number in range(6):
        peer.call(1, "queue.delete", queue=f"q{number}")
        peer.call(1, "exchange.delete", exchange=f"e{number}")
    assert int(node.vhost.account.bytes) == VHOST_BYTES
    peer.lose()
    node.run()
    assert total(node) == first


def test_a_vhost_takes_its_account_with_it(node: Node) -> None:
    before = total(node)
    node.broker.add_vhost("v")
    node.broker.users.set_permission("guest", "v", ".*", ".*", ".*")
    peer = node.connect_as("guest", vhost="v")
    peer.send(*queues(10), *exchanges("topic", 2), *bindings("topic", KEYS[:10]))
    node.broker.delete_vhost("v")
    peer.lose()
    node.sync()
    assert total(node) == before


def test_definitions_are_refused_beyond_their_share_and_start_again(node: Node) -> None:
    accounts = node.core.accounts
    accounts.definition_bytes_max = accounts.definition_bytes + 400 * KIB
    peer = node.connect()
    peer.call(1, "queue.declare", queue="q", durable=True)
    made = 0
    while not (names := peer.names()):
        made += 1
        arguments = {f"name-{n}": f"{made}" for n in range(1000)}
        peer.send(
            method(
                1,
                "queue.bind",
                queue="q",
                exchange="amq.direct",
                arguments=arguments,
                no_wait=True,
            )
        )
        node.sync()
    # The bind was refused as a whole, and so is any other definition.
    assert names == ["channel.close"]
    close = peer.heard[-1].method
    assert close.code == 406
    assert "definition_bytes_max" in close.text
    peer.send(method(1, "channel.close-ok"))
    peer.call(1, "channel.open")
    assert 350 * KIB < int(accounts.definition_bytes) <= 400 * KIB + 10 * KIB
    bindings = len(node.vhost.exchanges.by_name["amq.direct"].bindings)
    assert bindings == made - 1
    arguments = {"x-other": "v" * 100_000}
    peer.send(method(1, "queue.declare", queue="large", arguments=arguments))
    assert peer.expect(1, "channel.close").code == 406
    # What was accepted is there after a start, whatever the share is now.
    again = Node(RecordingDisk(node.stop()))
    again.core.accounts.definition_bytes_max = 1000
    assert len(again.vhost.exchanges.by_name["amq.direct"].bindings) == bindings
    # Deleting makes room.
    peer = again.connect()
    peer.call(1, "queue.delete", queue="q")
    assert int(again.vhost.account.bytes) == VHOST_BYTES


def test_a_vhost_can_be_limited_by_itself(node: Node) -> None:
    node.vhost.limits.add({"max-definition-bytes": int(node.vhost.account.bytes) + 5000})
    node = Node(RecordingDisk(node.stop()))
    peer = node.connect()
    peer.call(1, "queue.declare", queue="a")
    peer.send(method(1, "queue.declare", queue="b"))
    assert "limit" in peer.expect(1, "channel.close").text
    node.vhost.limits.clear("max-definition-bytes")
    peer.send(method(1, "channel.close-ok"))
    peer.call(1, "channel.open")
    peer.call(1, "queue.declare", queue="b")


PATTERNS = ["^q", r"^(?!amq\.).*", "[a-z0-9_]{1,200}x", "ab" * 400, "[^x]" * 240]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_account_says_what_policies_take(node: Node, pattern: str) -> None:
    """What a pattern takes is many times what it was written with."""

    def make() -> None:
        for number in range(30):
            definition: dict[str, object] = {"max-length": 1000 + number, "x": f"{number}"}
            name, text = f"policy-{number}", f"{pattern}{number}"
            node.vhost.policies.set(make_policy(name, text, definition, 0, "all", False, True))

    measured, booked = grown(node, make)
    assert measured / FACTOR < booked < measured * FACTOR, (measured, booked)


@pytest.mark.parametrize("place", ["vhost", "global"])
def test_the_account_says_what_parameters_take(node: Node, place: str) -> None:
    parameters = node.broker.parameters

    def make() -> None:
        for number in range(100):
            value = {f"{number}-{key}": [f"v{key}"] * 3 for key in range(50)}
            if place == "vhost":
                parameters.set("/", "shovel", f"p-{number}", value, True)
            else:
                parameters.set_global(f"p-{number}", value)

    measured, booked = grown(node, make)
    assert measured / FACTOR < booked < measured * FACTOR, (measured, booked)


def users(node: Node) -> None:
    for number in range(1000):
        node.broker.users.put(User(f"user-{number}", b"", []))


def tagged_users(node: Node) -> None:
    for number in range(300):
        tags = [f"{number} {tag}" for tag in range(USER_TAGS_MAX)]
        node.broker.users.put(User(f"user-{number}", b"", tags))


def limited_users(node: Node) -> None:
    for number in range(500):
        node.broker.users.put(User(f"user-{number}", b"", []))
        limits = dict.fromkeys(USER_LIMITS, 10000000000 + number)
        node.broker.users.set_limits(f"user-{number}", limits)


def permissions(node: Node) -> None:
    node.broker.users.put(User("user", b"", []))
    for number in range(200):
        node.broker.add_vhost(f"vhost-{number}")
    for number in range(200):
        texts = [f"^{what}-{number}[.-](eu|us)" for what in ("configure", "write", "read")]
        node.broker.users.set_permission("user", f"vhost-{number}", *texts)


def topic_permissions(node: Node) -> None:
    node.broker.users.put(User("user", b"", []))
    for number in range(1000):
        texts = [f"^{what}-{number}[.-]" for what in ("write", "read")]
        node.broker.users.set_topic_permission("user", "/", f"exchange-{number}", *texts)


def described_vhosts(node: Node) -> None:
    for number in range(100):
        vhost = node.broker.add_vhost(f"vhost-{number}")
        tags = [f"{number} {tag}" for tag in range(VHOST_TAGS_MAX)]
        vhost.metadata.set({"description": f"{number} " * 100, "tags": tags})


OF_OPERATORS = [
    users, tagged_users, limited_users, permissions, topic_permissions, described_vhosts,
]  # fmt: skip


@pytest.mark.parametrize("make", OF_OPERATORS)
def test_the_account_says_what_users_and_vhosts_take(
    node: Node, make: Callable[[Node], None]
) -> None:
    measured, booked = grown(node, lambda: make(node))
    assert measured / FACTOR < booked < measured * FACTOR, (measured, booked)


@pytest.mark.parametrize("make", OF_OPERATORS)
def test_what_users_and_vhosts_take_is_booked_after_a_restart_and_booked_out(
    node: Node, make: Callable[[Node], None]
) -> None:
    before = total(node)
    make(node)
    held = total(node)
    assert held > before
    node = Node(RecordingDisk(node.stop()))
    assert total(node) == held
    for name in list(node.broker.vhosts):
        if name != "/":
            node.broker.delete_vhost(name)
    for name in list(node.broker.users.by_name):
        if name != "guest":
            node.broker.users.delete(name)
    node.run()
    assert total(node) == before


def test_users_are_refused_beyond_the_share_of_definitions(node: Node) -> None:
    """One in place of another needs the difference only."""
    node.broker.users.put(User("user", b"", ["v" * 200] * 3))
    accounts = node.core.accounts
    accounts.definition_bytes_max = accounts.definition_bytes
    tags = ["v" * 200] * 4
    setters: list[Callable[[], None]] = [
        lambda: node.broker.users.put(User("user", b"", tags)),
        lambda: node.broker.users.put(User("other", b"", [])),
        lambda: node.broker.users.set_permission("user", "/", "", "", ""),
        lambda: node.broker.users.set_topic_permission("user", "/", "amq.topic", "", ""),
        lambda: node.vhost.metadata.set({"tags": tags}),
    ]
    for setter in setters:
        with pytest.raises(PreconditionFailed, match="definition_bytes_max"):
            setter()
    set_tags(node.broker.users, "user", ["v" * 200] * 2)
    set_tags(node.broker.users, "user", ["v" * 200] * 3)
    assert accounts.definition_bytes == accounts.definition_bytes_max


def test_policies_and_parameters_are_refused_beyond_the_share_and_booked_out(node: Node) -> None:
    before = total(node)
    parameters, policies = node.broker.parameters, node.vhost.policies
    policy = make_policy("p", "ab" * 400, {"max-length": 10}, 0, "all", False, False)
    # Setting a value again takes no more, but it is checked as if both were there.
    for _ in range(2):
        policies.set(policy)
        policies.set(make_policy("o", "^o", {"max-length": 1}, 0, "queues", True, False))
        parameters.set("/", "shovel", "s", {"uri": "v" * 100}, True)
        parameters.set_global("g", "v" * 100)
    held = total(node)
    node = Node(RecordingDisk(node.stop()))
    assert total(node) == held
    accounts = node.core.accounts
    parameters, policies = node.broker.parameters, node.vhost.policies
    accounts.definition_bytes_max = accounts.definition_bytes + 1000
    large = {"v": "v" * 1000}
    setters: list[Callable[[], None]] = [
        lambda: policies.set(
            make_policy("q", "ab" * 400, {"max-length": 1}, 0, "all", False, False)
        ),
        lambda: parameters.set("/", "shovel", "t", large, True),
        lambda: parameters.set_global("h", large),
    ]
    for setter in setters:
        with pytest.raises(PreconditionFailed, match="definition_bytes_max"):
            setter()
    assert total(node) == held
    policies.clear("p")
    policies.clear("o", operator=True)
    parameters.clear("/", "shovel", "s")
    parameters.clear_global("g")
    assert total(node) == before


def channels(peer: Peer) -> None:
    peer.send(*[method(number, "channel.open") for number in range(2, 502)])


def consumers(peer: Peer) -> None:
    named = [{"queue": "q", "consumer_tag": f"tag-{number:030}"} for number in range(500)]
    peer.send(*[method(1, "basic.consume", **one, no_wait=True) for one in named])


def long_consumers(peer: Peer) -> None:
    arguments = {f"name-{n}": "v" for n in range(300)}
    for number in range(10):
        ends = {"queue": "q", "consumer_tag": f"{number}", "arguments": arguments}
        peer.send(method(1, "basic.consume", **ends, no_wait=True))


def routes(peer: Peer) -> None:
    peer.send(*[publish(1, "amq.direct", f"key-{number:020}", b"") for number in range(500)])


def part_of_a_frame(peer: Peer) -> None:
    peer.send(frame(METHOD, 1, bytes(120_000))[:100_000])


def output(peer: Peer) -> None:
    peer.reads = False
    peer.send(*[method(1, "basic.qos")] * 5000)


def part_of_a_content(peer: Peer) -> None:
    peer.send(method(1, "basic.publish", routing_key="q"))
    peer.send(header(1, 10, properties(headers={f"name-{n}": "v" * 200 for n in range(400)})))


def transaction(peer: Peer) -> None:
    peer.call(1, "tx.select")
    peer.send(*[publish(1, "", "nowhere", b"") for _ in range(500)])


HOLDING = [
    channels, consumers, long_consumers, routes, part_of_a_frame, output, part_of_a_content,
    transaction,
]  # fmt: skip


def held(node: Node) -> int:
    return int(node.core.accounts.connection_bytes + node.core.memory.assembling_bytes)


@pytest.mark.parametrize("hold", HOLDING)
def test_the_account_says_what_a_connection_holds(node: Node, hold: Callable[[Peer], None]) -> None:
    node.connect().call(1, "queue.declare", queue="q")
    peer = node.connect()
    before = held(node)
    gc.collect()
    tracemalloc.start()
    hold(peer)
    node.tick()
    gc.collect()
    # What the test itself keeps of the answers is no memory of the broker's.
    peer.heard.clear()
    peer.forget_sent()
    peer.inbox = Inbox()
    measured, booked = tracemalloc.get_traced_memory()[0], held(node) - before
    assert measured / FACTOR < booked < measured * FACTOR, (measured, booked)
    # All of it goes with the connection.
    peer.lose()
    node.run()
    assert held(node) == before - CONNECTION_BYTES - CHANNEL_BYTES


def test_deliveries_that_wait_for_their_ack_count(node: Node) -> None:
    node.connect().call(1, "queue.declare", queue="q")
    peer = node.connect()
    peer.call(1, "basic.consume", queue="q")
    before = held(node)
    peer.send(*[publish(1, "", "q", b"") for _ in range(1000)])
    node.tick()
    routes = int(ROUTE_BYTES) + 1000
    assert 1000 * UNACKED_BYTES <= held(node) - before < 1000 * UNACKED_BYTES + routes
    peer.send(method(1, "basic.ack", delivery_tag=0, multiple=True))
    node.tick()
    assert held(node) - before < routes


def test_what_was_sent_and_parsed_is_let_go(node: Node) -> None:
    peer = node.connect()
    before = held(node)
    peer.reads = False
    peer.send(*[method(1, "basic.qos")] * 1000)
    assert held(node) > before + 10_000
    peer.read_on()
    peer.flush()
    assert held(node) == before


def test_a_blocked_publisher_holds_little_input() -> None:
    """Each held half a megabyte, and none of it was counted."""
    node = Node(memory_bytes_max=100_000)
    peer = node.connect()
    peer.call(1, "queue.declare", queue="q")
    peer.send(publish(1, "", "q", bytes(120_000)), publish(1, "", "q", b"blocked"))
    before = held(node)
    while peer.is_read:
        peer.send(publish(1, "", "q", bytes(1000)))
        node.run()
        peer.flush()
    assert INPUT_BYTES_BLOCKED_MAX < held(node) - before < INPUT_BYTES_BLOCKED_MAX + 2000
    node.connect().call(1, "queue.purge", queue="q")
    node.run()
    node.tick()
    assert held(node) - before < 20_000
    assert peer.is_read


def test_the_greediest_connection_is_closed_when_connections_hold_too_much(node: Node) -> None:
    quiet, greedy = node.connect(), node.connect()
    accounts = node.core.accounts
    accounts.connection_bytes_max = accounts.connection_bytes + 150_000
    part_of_a_frame(greedy)
    node.tick()
    assert not greedy.connection.finished
    late, second = node.dial(), node.connect()
    part_of_a_frame(second)
    late.ask_open("guest", "/")
    assert late.expect(0, "connection.close").code == 530
    node.tick()
    # One of them goes, and that is enough.
    closed = [peer for peer in (greedy, second, quiet) if "connection.close" in peer.names()]
    assert closed == [greedy]
    greedy.lose()
    node.tick()
    assert "connection.close" not in second.names()
    node.connect()


def test_definitions_count_for_the_memory_alarm() -> None:
    node = Node(memory_bytes_max=ACCOUNTS_FREE_BYTES)
    peer = node.connect()
    peer.call(1, "queue.declare", queue="q")
    for number in range(25):
        arguments = {"x-other": "v" * 100_000, "x-number": number}
        peer.call(1, "queue.declare", queue=f"q{number}", arguments=arguments)
    assert node.broker.memory_alarm
    for number in range(25):
        peer.call(1, "queue.delete", queue=f"q{number}")
    assert not node.broker.memory_alarm


def taken(output: FrameOutput) -> bytes:
    """Take what waits."""
    return b"".join(output.take())


def test_the_buffer_of_much_output_is_let_go() -> None:
    """A connection that was sent much once would otherwise keep a buffer as long for ever."""
    output = FrameOutput(131_072)
    tracemalloc.start()
    output.writer.write(bytes(10_000_000))
    assert len(taken(output)) == 10_000_000
    before = output.writer
    output.trim()
    assert output.writer is not before
    del before
    gc.collect()
    assert tracemalloc.get_traced_memory()[0] < 100_000
    # A short one stays.
    output.writer.write(b"x")
    kept = output.writer
    output.trim()
    assert taken(output) == b"x"
    output.trim()
    assert output.writer is kept


def test_a_connection_lets_go_of_its_buffer(node: Node) -> None:
    peer = node.connect()
    before = peer.connection.output.writer
    peer.send(*[method(1, "basic.qos")] * 5000)
    node.tick()
    assert peer.connection.output.writer is not before


# -- what queues remember --------------------------------------------------------------------------


def publishers(node: Node) -> None:
    target = node.classic("q").target
    for number in range(1000):
        numbered = Numbered(b"publisher-%020d" % number, number)
        assert target.admit_numbered(numbered, None) == TAKE
        assert target.publishers is not None
        target.publishers.note(numbered, None)


def window_keys(node: Node) -> None:
    window = node.classic("w").deduplication()
    assert window is not None
    for number in range(1000):
        window.note(b"skey-%026d" % number, 1000 + number)


def queued_keys(node: Node) -> None:
    keys = node.classic("k").queued_keys
    assert keys is not None
    for number in range(1000):
        keys.note(b"skey-%026d" % number, 1000 + number, number % 2 == 0)


def offsets(node: Node) -> None:
    stream = node.vhost.queues.by_name["s"]
    assert isinstance(stream, Stream)
    for number in range(1000):
        stream.offsets.own(f"name-{number:024}", None)
        stream.offsets.stored[f"name-{number:024}"] = 1000 + number


def sinks(node: Node) -> None:
    known = area_of(node.vhost).sinks
    for number in range(1000):
        sink = Sink(f"sink-{number:024}", f"destination-{number:024}")
        sink.time_ms = node.core.now_ms
        known.add(sink)


def remembering(node: Node) -> Peer:
    """A client of queues and a stream that remember something beside messages."""
    peer = node.connect()
    header: dict[str, object] = {"x-deduplication-header": "k"}
    queued: dict[str, object] = header | {"x-deduplication-scope": "queued"}
    kinds: dict[str, dict[str, object]] = {
        "q": {},
        "w": header,
        "k": queued,
        "s": {"x-queue-type": "stream"},
    }
    for queue, arguments in kinds.items():
        peer.declare(queue, arguments=arguments)
    return peer


@pytest.mark.parametrize("remember", [publishers, window_keys, queued_keys, offsets, sinks])
def test_the_account_says_what_queues_remember(
    node: Node, remember: Callable[[Node], None]
) -> None:
    peer = remembering(node)
    measured, booked = grown(node, lambda: remember(node))
    assert measured / FACTOR < booked < measured * FACTOR, (measured, booked)
    assert int(node.core.accounts.mark_bytes) == booked
    for queue in "qwks":
        peer.call(1, "queue.delete", queue=queue)
    for sink in list(area_of(node.vhost).sinks.by_place.values()):
        area_of(node.vhost).sinks.forget_one(sink)
    assert int(node.core.accounts.mark_bytes) == 0


def test_what_queues_remember_has_a_share(node: Node) -> None:
    """Beyond it a publisher's new name is refused, and a window forgets its oldest key."""
    peer = remembering(node)
    peer.call(1, "confirm.select")
    node.core.accounts.mark_bytes_max = 50_000
    for number in range(500):
        numbered = {"x-publisher": f"publisher-{number}", "x-publishing-id": 1}
        peer.send(publish(1, "", "q", b"", headers=numbered))
        peer.send(publish(1, "", "w", b"", headers={"k": number}))
    node.sync()
    assert 50_000 <= int(node.core.accounts.mark_bytes) < 51_000
    taken = int(node.classic("q").ready_count())
    assert 20 < taken < 150
    assert node.classic("w").ready_count() == 500
    # One who was taken before goes on.
    again = {"x-publisher": "publisher-0", "x-publishing-id": 2}
    peer.send(publish(1, "", "q", b"", headers=again))
    node.sync()
    assert node.classic("q").ready_count() == taken + 1
    stream = node.vhost.queues.by_name["s"]
    assert isinstance(stream, Stream)
    with pytest.raises(PreconditionFailed, match="share of the memory"):
        stream.offsets.set("new", 0)
    with pytest.raises(PreconditionFailed, match="share of the memory"):
        area_of(node.vhost).check_room("new", "", None)


def test_what_queues_remember_is_booked_after_a_restart(node: Node) -> None:
    peer = remembering(node)
    for number in range(50):
        numbered = {"x-publisher": f"publisher-{number}", "x-publishing-id": 1}
        peer.send(publish(1, "", "q", b"", headers=numbered, delivery_mode=2))
        for queue in "wk":
            headers = {"k": number}
            peer.send(publish(1, "", queue, b"", headers=headers, delivery_mode=2))
    stream = node.vhost.queues.by_name["s"]
    assert isinstance(stream, Stream)
    stream.offsets.set("name", 0)
    node.sync()
    booked = int(node.core.accounts.mark_bytes)
    assert booked > 50 * (PUBLISHER_BYTES + 2 * KEY_BYTES)
    again = Node(RecordingDisk(node.stop()))
    assert int(again.core.accounts.mark_bytes) == booked
    peer = again.connect()
    peer.call(1, "queue.purge", queue="k")
    assert int(again.core.accounts.mark_bytes) == booked - 50 * KEY_BYTES
