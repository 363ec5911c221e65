"""What dead-lettering does by itself is bounded: its copies, the work of a turn, what it tells.

The attacks are run turn by turn, as the shell does it, and what is counted are steps and copies.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.events import Events
from leveret.broker.policies.policy import make_policy
from leveret.broker.queue.classic import ClassicQueue
from leveret.broker.queue.dead_letters import DeadLetter
from leveret.broker.scheduler.costs import (
    DEAD_LETTER,
    DEAD_LETTER_BYTES_PER_ROUND,
    SHARE_OF_DEAD_LETTERS,
)
from leveret.broker.stream.stream import Stream
from leveret.limits import (
    COPY_KEYS_MAX,
    DEAD_LETTER_COPIES_MAX,
    DEATHS_BYTES_MAX,
    LETTERS_WAITING_MAX,
    SLICE_MESSAGES,
    TABLE_ENTRIES_MAX,
)
from leveret.message import ALL_LETTERS, Message
from leveret.names import Name
from leveret.store.disks.recording import RecordingDisk
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api
from support.node.core import Node, Peer, all_waiting
from support.node.delayed import kept
from support.node.paged import no_chance
from support.node.variants import few_of
from support.wire import raw
from support.wire.raw_codec import decode_properties, method, publish

#: More turns than any of these attacks may take.
TURNS_MAX: Final = 3_000

QUEUES: Final = [f"q{number}" for number in range(10)]

#: Letters that a turn makes of them, each of which goes to all.
LETTERS_PER_TURN: Final = SHARE_OF_DEAD_LETTERS // (DEAD_LETTER + len(QUEUES)) + 1


# -- attacks ---------------------------------------------------------------------------------------


def _queues(peer: Peer, exchange: str, **arguments: Any) -> None:
    """Ten queues whose messages die at once and go to all of them."""
    more = {"x-message-ttl": 0, "x-dead-letter-exchange": exchange} | arguments
    for name in QUEUES:
        peer.declare(name, arguments={k: value for k, value in more.items() if value is not None})


def _bind(peer: Peer, exchange: str) -> None:
    for name in QUEUES:
        peer.call(1, "queue.bind", queue=name, exchange=exchange)


def _exchange(peer: Peer, name: str, type: str = "fanout", **arguments: Any) -> None:
    peer.call(
        1, "exchange.declare", exchange=name, type=type, durable=True, arguments=arguments
    )  # fmt: skip


def by_fanout(peer: Peer) -> bytes:
    _exchange(peer, "all")
    _queues(peer, "all")
    _bind(peer, "all")
    return publish(1, "", "q0", b"m", delivery_mode=2)


def by_alternate_exchanges(peer: Peer) -> bytes:
    _exchange(peer, "all")
    _exchange(peer, "none", "direct", **{"alternate-exchange": "all"})
    _queues(peer, "none")
    _bind(peer, "all")
    return publish(1, "", "q0", b"m", delivery_mode=2)


def by_bindings_between_exchanges(peer: Peer) -> bytes:
    _exchange(peer, "all")
    _queues(peer, "all")
    for level in range(5):
        for place in range(3):
            _exchange(peer, f"e{level}-{place}")
    for place in range(3):
        peer.call(1, "exchange.bind", destination=f"e0-{place}", source="all")
        for level in range(4):
            for other in range(3):
                peer.call(
                    1, "exchange.bind", destination=f"e{level + 1}-{other}",
                    source=f"e{level}-{place}",
                )  # fmt: skip
        _bind(peer, f"e4-{place}")
    return publish(1, "", "q0", b"m", delivery_mode=2)


def by_priorities(peer: Peer) -> bytes:
    _exchange(peer, "all")
    _queues(peer, "all", **{"x-max-priority": 9})
    _bind(peer, "all")
    return publish(1, "", "q0", b"m", delivery_mode=2, priority=9)


def by_length(peer: Peer) -> bytes:
    _exchange(peer, "all")
    _queues(peer, "all", **{"x-message-ttl": None, "x-max-length": 0})
    _bind(peer, "all")
    return publish(1, "", "q0", b"m", delivery_mode=2)


def by_refusals(peer: Peer) -> bytes:
    _exchange(peer, "all")
    _queues(
        peer, "all",
        **{"x-message-ttl": None, "x-max-length": 0, "x-overflow": "reject-publish-dlx"},
    )  # fmt: skip
    _bind(peer, "all")
    return publish(1, "", "q0", b"m", delivery_mode=2)


def by_copies(peer: Peer) -> bytes:
    for name in QUEUES:
        peer.declare(name)
    peer.node.vhost.policies.set(
        make_policy("p", "^q", {"dead-letter-exchange": "amq.direct", "message-ttl": 0})
    )
    for name in QUEUES:
        peer.call(1, "queue.bind", queue=name, exchange="amq.direct", routing_key=name)
    headers = {"CC": QUEUES[:5], "BCC": QUEUES[5:]}
    return publish(1, "amq.direct", "q0", b"m", headers=headers, delivery_mode=2)


def by_a_policy(peer: Peer) -> bytes:
    _exchange(peer, "all")
    for name in QUEUES:
        peer.declare(name)
    _bind(peer, "all")
    policy = {"dead-letter-exchange": "all", "message-ttl": 0}
    peer.node.vhost.policies.set(make_policy("p", "^q", policy))
    return publish(1, "", "q0", b"m", delivery_mode=2)


def by_delays(peer: Peer) -> bytes:
    _exchange(peer, "all", "x-delayed-message", **{"x-delayed-type": "fanout"})
    _queues(peer, "all")
    _bind(peer, "all")
    return publish(1, "", "q0", b"m", headers={"x-delay": 1}, delivery_mode=2)


def by_transients(peer: Peer) -> bytes:
    by_fanout(peer)
    return publish(1, "", "q0", b"m", delivery_mode=1)


ATTACKS: Final[list[Callable[[Peer], bytes]]] = [
    by_fanout, by_alternate_exchanges, by_bindings_between_exchanges, by_priorities, by_length,
    by_refusals, by_copies, by_a_policy, by_delays, by_transients,
]  # fmt: skip


# -- counting --------------------------------------------------------------------------------------


def published(node: Node) -> int:
    """How many messages queues took, or were to take."""
    return sum(int(queue.target.published) for queue in node.vhost.queues.by_name.values())


def alive(node: Node) -> list[Message]:
    """All messages that are in queues, in stores of delays, or on their way."""
    found: list[Message] = []
    for queue in node.vhost.queues.by_name.values():
        assert isinstance(queue, ClassicQueue)
        found += [item.message for item in all_waiting(queue)]
    for exchange in node.vhost.exchanges.by_name.values():
        if exchange.delayed is not None:
            found += [message for _, message in kept(exchange.delayed)]
    letters = node.core.scheduler.letters
    for _ in range(letters.count()):
        # Each goes from the front to the end, so that the order stays the same.
        letter = letters.next()
        assert isinstance(letter, DeadLetter)
        found.append(letter.message)
        letters.add(letter)
    return found


def promised(node: Node) -> int:
    """How many copies there are, with those that they may become."""
    left = [int(message.address.letters_left) for message in alive(node)]
    return sum(1 + (one if one != ALL_LETTERS else DEAD_LETTER_COPIES_MAX) for one in left)


def core(node: Node) -> int:
    """Let a turn pass, as the shell does; return how many copies were made in it."""
    before = published(node)
    node.settle()
    node.write_spilled()
    node.read_wanted()
    if node.begin_sync():
        node.write()
        group, node.group = node.group, None
        assert group is not None
        node.core.syncs.synced(group.number)
    return published(node) - before


def is_over(node: Node) -> bool:
    """Whether nothing is on its way, nor due."""
    return node.rests() and node.core.scheduler.letters.count() == 0 and not node.core.due()


def attack(node: Node, peer: Peer, message: bytes) -> None:
    """Publish without letting the turns pass that follow."""
    peer.receive(message)


def run_out(node: Node) -> int:
    """Let turns pass until nothing is left to do; return the number of copies."""
    copies = 0
    for _ in range(TURNS_MAX):
        copies += core(node)
        assert copies <= DEAD_LETTER_COPIES_MAX
        node.clock.advance(1)
        node.now()
        if is_over(node):
            return copies
    raise AssertionError("it never ends")


# -- copies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("window_bytes", few_of([-1, 0], 1))
@pytest.mark.parametrize("by", ATTACKS)
def test_one_message_becomes_a_bounded_number_of_copies(
    by: Callable[[Peer], bytes], window_bytes: int
) -> None:
    node = Node(window_bytes=window_bytes)
    peer = node.connect()
    attack(node, peer, by(peer))
    published_by_client = max(published(node), 1)
    copies = 0
    for _ in range(TURNS_MAX):
        made = core(node)
        copies += made
        # Before anything else: what multiplies without a limit would fill the machine.
        assert copies <= DEAD_LETTER_COPIES_MAX * published_by_client
        assert made <= LETTERS_PER_TURN * len(QUEUES)
        node.clock.advance(1)
        node.now()
        if is_over(node):
            break
    else:
        raise AssertionError("it never ends")
    assert node.core.letters_dropped.total() > 0
    assert alive(node) == []
    assert node.core.memory.held_messages == node.core.memory.held_bytes == 0


@pytest.mark.parametrize("restart", ["crash", "checkpoint", "paged"])
def test_the_limit_holds_over_restarts(restart: str) -> None:
    window_bytes = 0 if restart == "paged" else -1
    node = Node(window_bytes=window_bytes)
    peer = node.connect()
    _exchange(peer, "all")
    _queues(peer, "all", **{"x-message-ttl": 1})
    _bind(peer, "all")
    attack(node, peer, publish(1, "", "q0", b"m", delivery_mode=2))
    for step in range(3):
        core(node)
        node.clock.advance(2)
        assert 1 <= promised(node) <= DEAD_LETTER_COPIES_MAX + 1
        if restart != "crash":
            node.take_checkpoint()
        image = node.crashed(no_chance)[0]
        node = Node(RecordingDisk(image), clock=node.clock, window_bytes=window_bytes, begin=False)
        assert 1 <= promised(node) <= DEAD_LETTER_COPIES_MAX + 1, step
    run_out(node)


def test_a_fan_out_of_so_many_queues_is_whole_and_one_more_is_counted() -> None:
    node = Node()
    peer = node.connect()
    _exchange(peer, "all")
    for number in range(DEAD_LETTER_COPIES_MAX + 1):
        name = f"d{number}"
        node.vhost.queues.declare(None, Name(name), QueueAttributes())
        node.vhost.exchanges.bind(Name("all"), Name(name), True, "", {}, None)
    peer.declare("q0", arguments={"x-message-ttl": 0, "x-dead-letter-exchange": "all"})
    peer.send(publish(1, "", "q0", b"m"))
    reached = sum(node.classic(f"d{n}").ready_count() for n in range(DEAD_LETTER_COPIES_MAX + 1))
    assert (reached, node.core.letters_dropped.copies) == (DEAD_LETTER_COPIES_MAX, 1)
    dropped = node.core.letters_dropped
    assert (dropped.vhost, dropped.queue) == ("/", "q0")


def test_what_a_consumer_rejects_comes_back_for_ever() -> None:
    """Reject, wait in a queue with a TTL, come back: for years, and as a fan-out beside."""
    node = Node()
    peer = node.connect()
    _exchange(peer, "wait")
    peer.declare("work", durable=False, arguments={"x-dead-letter-exchange": "wait"})
    peer.declare(
        "waits", durable=False,
        arguments={
            "x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"
        },
    )  # fmt: skip
    peer.declare("audit", durable=False, arguments={"x-max-length": 1})
    peer.call(1, "queue.bind", queue="waits", exchange="wait")
    peer.call(1, "queue.bind", queue="audit", exchange="wait")
    peer.call(1, "basic.consume", queue="work", consumer_tag="c")
    peer.send(publish(1, "", "work", b"m"))
    for _ in range(DEAD_LETTER_COPIES_MAX + 100):
        tag = peer.expect(1, "basic.deliver").delivery_tag
        peer.send(method(1, "basic.reject", delivery_tag=tag, requeue=False))
        node.clock.advance(2)
        node.now()
        node.run()
    assert node.core.letters_dropped.total() == 0
    headers = decode_properties(peer.expect(1, "basic.deliver").properties)["headers"]
    assert headers["x-death"][0]["count"] == DEAD_LETTER_COPIES_MAX + 100


# -- chains and headers ----------------------------------------------------------------------------


def _chain(peer: Peer, length: int) -> None:
    for number in range(length):
        arguments = {
            "x-message-ttl": 0,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": f"c{number + 1}",
        }
        peer.declare(f"c{number}", durable=False, arguments=arguments)
    peer.declare(f"c{length}", durable=False)


def test_a_chain_of_queues_makes_no_letter_that_the_broker_cannot_read() -> None:
    """Each death has an entry of eight values; a table of more than 4,096 is refused."""
    node = Node()
    peer = node.connect()
    length = TABLE_ENTRIES_MAX // 8 + 200
    _chain(peer, length)
    peer.send(publish(1, "", "c0", b"m"))
    got = peer.call_get(f"c{length}", no_ack=True)
    deaths = decode_properties(got.properties)["headers"]["x-death"]
    assert [death["queue"] for death in deaths[:2]] == [f"c{length - 1}", f"c{length - 2}"]
    assert len(got.properties) <= DEATHS_BYTES_MAX + 1024


@pytest.mark.parametrize(
    "headers",
    [
        {f"h{number}": number for number in range(TABLE_ENTRIES_MAX)},
        {"CC": ["k" * 100] * COPY_KEYS_MAX},
        {"BCC": [f"{number}" for number in range(COPY_KEYS_MAX)]},
    ],
    ids=["many", "cc", "bcc"],
)
def test_headers_that_are_full_already_do_no_harm(headers: dict[str, Any]) -> None:
    """A chain by the letters' own keys, so that CC is told of in each death."""
    node = Node()
    peer = node.connect()
    _exchange(peer, "x0")
    for number in range(40):
        _exchange(peer, f"x{number + 1}", "headers")
        arguments = {"x-message-ttl": 0, "x-dead-letter-exchange": f"x{number + 1}"}
        peer.declare(f"c{number}", durable=False, arguments=arguments)
        match = {"x-match": "any-with-x", "x-last-death-reason": "expired"}
        peer.call(
            1, "queue.bind", queue=f"c{number}", exchange=f"x{number}", arguments=match
        )  # fmt: skip
    peer.declare("last", durable=False)
    match = {"x-match": "any-with-x", "x-last-death-reason": "expired"}
    peer.call(1, "queue.bind", queue="last", exchange="x40", arguments=match)
    peer.send(publish(1, "x0", "k", b"m", headers=headers))
    got = peer.call_get("last", no_ack=True)
    assert len(got.properties) <= 2 * len(publish(1, "x0", "k", b"m", headers=headers)) + 65_536


# -- the work of a turn ----------------------------------------------------------------------------


def test_a_neighbour_is_served_in_the_next_turn() -> None:
    """While it lasts, each turn hands a neighbour's message out and does a bounded part."""
    node = Node()
    peer = node.connect()
    neighbour = node.connect()
    neighbour.declare("mine", durable=False)
    neighbour.call(1, "basic.consume", queue="mine", consumer_tag="c", no_ack=True)
    message = by_transients(peer)
    for _ in range(50):
        attack(node, peer, message)
    turns = 0
    while True:
        neighbour.receive(publish(1, "", "mine", b"%d" % turns))
        assert core(node) <= LETTERS_PER_TURN * len(QUEUES) + 1
        neighbour.flush()
        assert neighbour.bodies() == [b"%d" % turns]
        assert node.core.scheduler.letters.count() <= LETTERS_WAITING_MAX + LETTERS_PER_TURN * len(
            QUEUES
        )
        turns += 1
        if is_over(node):
            break
    assert turns > DEAD_LETTER_COPIES_MAX * 50 // (LETTERS_PER_TURN * len(QUEUES))


def test_an_expiry_of_many_queues_at_once_is_spread_over_turns() -> None:
    node = Node()
    vhost = node.vhost
    peer = node.connect()
    for number in range(300):
        arguments: dict[str, object] = {"x-message-ttl": 1000, "x-expires": 5000}
        vhost.queues.declare(None, Name(f"t{number}"), QueueAttributes(arguments=arguments))
        peer.receive(publish(1, "", f"t{number}", b"m") * 50)
    node.run()
    for by_ms in (1000, 4000):
        node.clock.advance(by_ms)
        node.now()
        before = int(node.core.memory.held_messages)
        turns = 0
        while node.core.memory.held_messages if by_ms == 1000 else vhost.queues.by_name:
            node.settle()
            after = int(node.core.memory.held_messages)
            assert before - after <= SLICE_MESSAGES
            before = after
            turns += 1
        assert turns > 1
    assert node.core.memory.held_messages == 0
    assert len(vhost.queues.by_name) == 0


def test_keys_of_copies_match_no_more_bindings_than_one_key_may() -> None:
    node = Node()
    peer = node.connect()
    keys = [f"k{number}" for number in range(COPY_KEYS_MAX + 1)]
    for one, two in ((keys[1:], []), (keys[5:], keys[:4])):
        peer.send(publish(1, "amq.topic", "x", b"m", headers={"CC": one, "BCC": two}))
        assert peer.names() == []
    peer.send(publish(1, "amq.topic", "x", b"m", headers={"CC": keys[5:], "BCC": keys[:5]}))
    closed = peer.expect(1, "channel.close")
    assert closed.code == 406
    assert closed.text == (
        "PRECONDITION_FAILED - invalid message: CC and BCC have 257 routing keys, more than 256; "
        "publish it once for each part of the list"
    )


# -- memory, and telling ---------------------------------------------------------------------------


def test_without_memory_a_letter_is_not_multiplied() -> None:
    node = Node(memory_bytes_max=200_000)
    peer = node.connect()
    _exchange(peer, "all")
    for name in QUEUES:
        peer.declare(name, durable=False)
    _bind(peer, "all")
    arguments = {"x-message-ttl": 5, "x-dead-letter-exchange": "all"}
    peer.declare("source", durable=False, arguments=arguments)
    for _ in range(90):
        peer.send(publish(1, "", "source", bytes(1000)))
    node.tick(1000)
    one_turn = DEAD_LETTER_BYTES_PER_ROUND + len(QUEUES) * 1500
    assert int(node.broker.memory_bytes()) <= 2 * 200_000 + one_turn
    assert node.core.letters_dropped.memory > 0
    assert node.classic("q0").ready_count() == 90


def test_what_is_dropped_is_an_event() -> None:
    node = Node()
    node.core.follow(Events(node.core, node.broker.vhosts, 1))
    peer = node.connect()
    attack(node, peer, by_transients(peer))
    for _ in range(TURNS_MAX):
        node.settle()
        if is_over(node):
            break
    stream = node.vhost.queues.by_name["amq.leveret.events"]
    assert isinstance(stream, Stream)
    bodies = [
        message.body
        for block in stream.blocks
        for message in block.messages or []
        if message is not None and message.address.routing_key == b"letters_dropped"
    ]
    assert bodies
    assert b'"reason":"copies"' in bodies[0]


def test_what_is_dropped_is_counted_and_in_the_log(tmp_path: Path) -> None:
    """In a real process, whose neighbour publishes and gets meanwhile."""
    with BrokerProcess(tmp_path / "data") as process, raw.connect(process.uri) as attacker:
        attacker.open_channel(1)
        attacker.call(1, "exchange.declare", exchange="all", type="fanout")
        for name in QUEUES:
            arguments = {"x-message-ttl": 0, "x-dead-letter-exchange": "all"}
            attacker.declare(1, name, arguments=arguments)
            attacker.call(1, "queue.bind", queue=name, exchange="all")
        for _ in range(20):
            attacker.send(publish(1, "", "q0", b"m"))
        with raw.connect(process.uri) as neighbour:
            neighbour.open_channel(1)
            neighbour.declare(1, "mine")
            neighbour.send(publish(1, "", "mine", b"served"))
            assert neighbour.drain(1, "mine") == [b"served"]
        line = process.expect_line("dead letters dropped")
        assert "memory=0" in line
        api = Api(process.data_dir / "management.sock")
        _, answer, _ = api.answer("/api/nodes")
        api.close()
        assert isinstance(answer, list)
        assert answer[0]["letters_dropped_copies"] > 0


def test_letters_of_one_queue_share_an_address_while_it_is_the_same() -> None:
    """An address takes as much memory as a small message, and no account has it."""
    node = Node()
    peer = node.connect()
    peer.declare("dead")
    peer.call(1, "exchange.declare", exchange="all", type="fanout")
    peer.call(1, "queue.bind", queue="dead", exchange="all")
    peer.declare("q", arguments={"x-dead-letter-exchange": "all", "x-max-length": 0})
    peer.call(1, "exchange.declare", exchange="x", type="fanout")
    peer.call(1, "queue.bind", queue="q", exchange="x")
    blind = {"BCC": ["other"]}
    for key, headers in [("a", None), ("a", None), ("b", None), ("b", blind), ("b", None)]:
        peer.send(publish(1, "x", key, b"m", headers=headers))
    node.run()
    found = [message.address for message in alive(node)]
    assert [(one.exchange, one.routing_key) for one in found] == [
        (b"all", key) for key in (b"a", b"a", b"b", b"b", b"b")
    ]
    assert found[0] is found[1]
    assert found[2] is found[4]
    assert [one.blind_bytes > 0 for one in found] == [False, False, False, True, False]
    # An address says how many copies are left as well: each of two may become fewer.
    peer.declare("again")
    peer.call(1, "queue.bind", queue="again", exchange="all")
    peer.send(publish(1, "x", "b", b"m"))
    node.run()
    letters = [item.message.address for item in all_waiting(node.classic("again"))]
    assert [int(one.letters_left) for one in letters] == [(DEAD_LETTER_COPIES_MAX - 2) // 2]
    assert int(found[2].letters_left) == DEAD_LETTER_COPIES_MAX - 1
