"""Every number that a client sends costs bounded work, whatever it is; most have a declared bound.

The numbers are derived: the fields of the table of methods, the arguments and headers that the
source names, the policy keys, and what the routes of the HTTP API read of a query and a body.  Work
is counted (`work_account`), not timed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from leveret.broker.attributes.arguments import QUEUE_NUMBERS
from leveret.broker.exchanges.numbers import EXCHANGE_NUMBERS
from leveret.broker.exchanges.types import EXCHANGE_TYPES
from leveret.broker.policies.keys import POLICY_KEYS, POLICY_NUMBERS
from leveret.broker.policies.policy import make_policy
from leveret.errors import PreconditionFailed
from leveret.limits import DELAY_MS_MAX, SUPER_STREAM_PARTITIONS_KEPT_MAX
from leveret.names import Name
from leveret.store.disks.recording import RecordingDisk
from support.costs import work_account
from support.costs.work_account import Account
from support.hostile.hostile_methods import argument_names, client_methods, encoded
from support.hostile.hostile_node import HostileNode, Tally, prepare
from support.hostile.hostile_requests import (
    EXAMPLES,
    _places,
    _request,
    _with,
    good,
    key_of,
    routes,
)
from support.hostile.hostile_values import HEADERS, named_in_source
from support.node.core import Node, Peer
from support.wire.raw_codec import Typed, method, publish

#: What one request may cost: lines of the broker's code, and bytes above what was held before.
LINES_MAX: Final = 60_000
BYTES_MAX: Final = 16 * 1024 * 1024

NUMBERS: Final = (0, -1, 2**31, 2**53, 2**63 - 1)
#: The same and beyond, as a table of AMQP has them.
TABLE_NUMBERS: Final[tuple[Any, ...]] = (*NUMBERS, Typed("L", 2**63), Typed("L", 2**64 - 1))

#: Numbers that something else than a queue or an exchange is given: the least and most that mean
#: what they say.  What is beyond is refused, or means the nearest.
OTHER_NUMBERS: Final[dict[str, tuple[int, int]]] = {
    "x-priority": (-(2**63), 2**63 - 1),
    "x-delay": (-(2**63), DELAY_MS_MAX),
    "x-stream-offset": (0, 2**63 - 1),
    "x-queue-version": (1, 2),
}

#: Names in the source that are no number that a client gives to be honoured: names, words, ages and
#: switches, types of exchanges, headers of the broker's own, and what has no effect here.
NO_NUMBERS: Final = {
    "alternate-exchange", "hash-header", "hash-property", "x-acquired-count", "x-browse",
    "x-cancel-on-ha-failover",
    "x-consistent-hash", "x-dead-letter-exchange", "x-dead-letter-routing-key",
    "x-dead-letter-strategy", "x-death", "x-deduplication-header", "x-deduplication-scope",
    "x-delayed-message", "x-delayed-retry-type", "x-delayed-type", "x-delivery-count",
    "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason",
    "x-initial-cluster-size", "x-last-death-exchange", "x-last-death-queue",
    "x-last-death-reason", "x-local-random", "x-match", "x-max-age", "x-max-in-memory-bytes",
    "x-max-in-memory-length", "x-modulus-hash", "x-overflow", "x-queue-leader-locator",
    "x-queue-mode", "x-queue-type", "x-quorum-initial-group-size", "x-random", "x-recent-history",
    "x-recent-history-no-store", "x-retain-acked", "x-single-active-consumer",
    "x-staging-destination", "x-staging-exchange", "x-staging-routing-key", "x-staging-sink",
    "x-stream-consumer", "x-stream-filter",
    "x-stream-filter-headers", "x-stream-filter-routing-key", "x-stream-filter-value",
    "x-stream-id", "x-stream-match-unfiltered", "x-stream-name", "x-stream-partition-order",
    "x-stream-tell-id", "x-stream-timestamp", "x-super-stream", "x-super-stream-partition",
}  # fmt: skip

#: Types of the exchanges and of the queues that arguments are tried on.
KINDS: Final = (*EXCHANGE_TYPES, "x-delayed-message")
QUEUE_TYPES: Final = ("classic", "quorum", "stream")


@pytest.fixture(autouse=True)
def _counting() -> Iterator[None]:
    yield
    work_account.stop()


class Trial:
    """A broker that requests are tried on, one account for each; what cost too much is noted."""

    def __init__(self) -> None:
        self.node = Node()
        self.peer = self.connected()
        for name, arguments in {
            "q": {"x-max-priority": 9},
            "s": {"x-queue-type": "stream"},
        }.items():
            self.peer.declare(name, arguments=arguments)
        for kind in KINDS:
            arguments = {"x-delayed-type": "topic"} if kind == "x-delayed-message" else {}
            values = {"type": kind, "durable": True, "arguments": arguments}
            self.peer.call(1, "exchange.declare", exchange=f"e-{kind}", **values)
        self.kept = set(self.node.vhost.queues.by_name)
        self.kept_exchanges = set(self.node.vhost.exchanges.by_name)
        self.faults: list[str] = []
        self.count = 0
        # What is loaded and remembered at the first use counts for nobody.
        self.send("warm", publish(1, "", "q", b"m"))

    def connected(self) -> Peer:
        return self.node.connect(1)

    def send(self, what: str, *requests: bytes) -> list[str]:
        """Send requests, and use what they made; return what was answered."""
        self.count += 1
        peer = self.peer
        try:
            with Account(LINES_MAX * len(requests)) as account:
                for request in requests:
                    if peer.connection in self.node.peers:
                        peer.send(request)
                self.node.sync()
                self.node.clock.advance(1)
                self.node.tick()
            if account.most_bytes > BYTES_MAX:
                self.faults.append(f"{what}: {account.most_bytes} bytes")
        except work_account.TooMuchWork as much:
            self.faults.append(f"{what}: {much}")
            self.__init__()  # type: ignore[misc]
            return []
        except Exception as bug:  # noqa: BLE001 - it would have stopped a broker
            self.faults.append(f"{what}: {bug!r}")
            return []
        names = peer.names()
        self._tidy(names)
        return names

    def renew(self) -> None:
        """Go on with a connection that is as new."""
        self.peer.lose()
        self.peer = self.connected()

    def _tidy(self, names: list[str]) -> None:
        """Delete what was made, and go on with a connection that is open."""
        vhost = self.node.vhost
        for name in set(vhost.queues.by_name) - self.kept:
            vhost.queues.drop(vhost.queues.by_name[name])
        for name in set(vhost.exchanges.by_name) - self.kept_exchanges:
            vhost.exchanges.delete(Name(name), False)
        if any(name.endswith(".close") for name in names) or "basic.consume-ok" in names:
            self.renew()


def declare(queue: str, **arguments: Any) -> bytes:
    return method(1, "queue.declare", queue=queue, durable=True, arguments=arguments)


def get(queue: str) -> bytes:
    return method(1, "basic.get", queue=queue, no_ack=True)


def is_within(number: Any, least: int, most: int) -> bool:
    """Tell whether a number is within bounds; the broker takes what has 64 bits as signed."""
    value = number.value - 2**64 if isinstance(number, Typed) else number
    return bool(least <= value <= most)


# -- declared bounds -------------------------------------------------------------------------------


def test_every_name_in_the_source_is_a_number_with_a_bound_or_none() -> None:
    bounded = {*QUEUE_NUMBERS, *EXCHANGE_NUMBERS, *OTHER_NUMBERS}
    assert not bounded & NO_NUMBERS
    assert set(argument_names()) == bounded | NO_NUMBERS


@pytest.mark.parametrize("name", sorted(QUEUE_NUMBERS))
def test_a_queue_is_declared_within_the_bound_and_not_beyond(name: str) -> None:
    trial = Trial()
    least, most = QUEUE_NUMBERS[name]
    others: dict[str, Any] = {
        "x-staging-batch": {"x-staging-sink": "sink"},
        "x-stream-max-segment-size-bytes": {"x-queue-type": "stream"},
    }.get(name, {})
    for number in (*TABLE_NUMBERS, least - 1, least, most):
        arguments = {name: number} | others
        names = trial.send(f"{name}={number}", declare("new", **arguments))
        assert names == [
            "queue.declare-ok" if is_within(number, least, most) else "channel.close"
        ], (name, number)
    assert not trial.faults


@pytest.mark.parametrize("name", sorted(EXCHANGE_NUMBERS))
def test_an_exchange_is_declared_within_the_bound_and_not_beyond(name: str) -> None:
    trial = Trial()
    kind, least, most = EXCHANGE_NUMBERS[name]
    for number in (*TABLE_NUMBERS, least - 1, least, most, most + 1):
        values = {"type": kind, "arguments": {name: number}}
        request = method(1, "exchange.declare", exchange="new", **values)
        consume = method(1, "basic.consume", queue="new", consumer_tag="c")
        names = trial.send(f"{name}={number}", request, consume)
        assert (names[0] == "exchange.declare-ok") == is_within(number, least, most), number
    assert not trial.faults


@pytest.mark.parametrize("key", POLICY_KEYS)
def test_a_policy_holds_numbers_within_the_bound_and_not_beyond(key: str) -> None:
    trial = Trial()
    # Mirrors are not there: how many is kept with the definition, and has no effect.
    kept = (1, 2**53 - 1, "") if key == "ha-params" else (0, -1, "")
    least, most, _ = POLICY_NUMBERS.get(key, kept)
    for number in (*NUMBERS, least - 1, least, most, most + 1, 2**64, 10**400):
        try:
            with Account(LINES_MAX):
                trial.node.vhost.policies.set(make_policy("p", "^q$", {key: number}))
                trial.node.sync()
            assert least <= number <= most, (key, number)
        except PreconditionFailed:
            assert not least <= number <= most or key == "delivery-limit", (key, number)


def test_a_super_stream_that_an_older_build_took_costs_no_more() -> None:
    """Whatever its exchange was declared with, only so many partitions are looked for."""
    node = Node()
    peer = node.connect()
    peer.call(1, "exchange.declare", exchange="old", type="x-super-stream", durable=True)
    exchange = node.vhost.exchanges.by_name["old"]
    arguments = {"x-super-stream-partitions": 40_000_000}
    exchange.arguments.update(arguments)
    node.journal.define("exchange", exchange.definition("/"))
    node.sync()
    node = Node(RecordingDisk(node.image()), clock=node.clock)
    peer = node.connect()
    with Account(100 * SUPER_STREAM_PARTITIONS_KEPT_MAX) as account:
        peer.send(method(1, "basic.consume", queue="old", consumer_tag="c"))
    assert account.most_bytes < BYTES_MAX
    assert peer.names() == ["basic.consume-ok"]


# -- whatever it means -----------------------------------------------------------------------------


def test_every_number_in_every_table_of_arguments() -> None:
    trial = Trial()
    for name in argument_names():
        # What is no number anywhere is tried with one.
        for number in TABLE_NUMBERS[-3:-2] if name in NO_NUMBERS else TABLE_NUMBERS:
            what = f"{name}={number}"
            for kind in QUEUE_TYPES:
                trial.send(
                    f"queue {kind} {what}",
                    declare("new", **({"x-queue-type": kind} | {name: number})),
                    publish(1, "", "new", b"m", delivery_mode=2),
                    get("new"),
                )
            own = EXCHANGE_NUMBERS.get(name)
            for kind in [own[0]] if own else ("topic", "x-delayed-message"):
                values = {"type": kind, "arguments": {"x-delayed-type": "topic", name: number}}
                trial.send(
                    f"exchange {kind} {what}",
                    method(1, "exchange.declare", exchange="new", **values),
                    publish(1, "new", "k", b"m"),
                )
            for kind in ("headers", "x-super-stream", "x-consistent-hash"):
                trial.send(
                    f"binding {kind} {what}",
                    method(
                        1, "queue.bind", queue="q", exchange=f"e-{kind}", routing_key="1",
                        arguments={name: number},
                    ),
                )  # fmt: skip
            for queue in ("q", "s"):
                trial.send(
                    f"consumer of {queue} {what}",
                    method(1, "basic.qos", prefetch_count=10),
                    method(1, "basic.consume", queue=queue, arguments={name: number}),
                )
    assert trial.faults == []
    assert trial.count > 1_000


def test_every_number_in_every_method() -> None:
    """The fields from the table of methods, with all that fit into them."""
    trial = Trial()
    widths = {"octet": 8, "short": 16, "long": 32, "longlong": 64, "timestamp": 64}
    for spec in client_methods():
        for place, field in enumerate(spec.fields):
            if field.kind not in widths:
                continue
            for number in (0, 1, *(2**bits - 1 for bits in (7, 8, 15, 16, 31, 32, 53, 63, 64))):
                if number < 1 << widths[field.kind]:
                    consume = method(1, "basic.consume", queue="q", consumer_tag="c")
                    data = encoded(spec, {place: number}, b"body")
                    trial.send(f"{spec.full_name} {field.name}={number}", consume, data)
    assert trial.faults == []


def test_every_number_of_a_negotiation() -> None:
    trial = Trial()
    for frame_max in (0, 1, 4095, 4096, 2**31 - 1, 2**31, 2**32 - 1):
        for heartbeat in (0, 1, 2**15, 2**16 - 1):
            peer = trial.node.dial()
            trial.peer = peer
            try:
                with Account(LINES_MAX) as account:
                    peer.ask_open("guest", "/", heartbeat=heartbeat, frame_max=frame_max)
                    trial.node.tick(1)
            except AssertionError:
                continue
            assert account.most_bytes < BYTES_MAX
            peer.lose()


def test_every_number_in_every_header_and_property() -> None:
    trial = Trial()
    known = sorted({*HEADERS, *named_in_source("broker", "session", "wire")})
    targets = [("", "q"), ("", "s"), *((f"e-{kind}", "k") for kind in KINDS)]
    for number in TABLE_NUMBERS:
        for header in known:
            for exchange, key in random.Random(header).sample(targets, 2):
                trial.send(
                    f"{exchange} {key} {header}={number}",
                    publish(1, exchange, key, b"m", headers={header: number}, delivery_mode=2),
                )
        plain = 0 if isinstance(number, Typed) else number
        for properties in (
            {"priority": plain & 255},
            {"timestamp": plain & (2**63 - 1)},
            {"expiration": str(plain)},
            {"delivery_mode": plain & 255},
        ):
            trial.send(f"{properties}", publish(1, "", "q", b"m", **properties), get("q"))
    for text in ("9" * 30, "9" * 255, "-" + "9" * 200, "+5", "\u0665"):
        trial.send(f"expiration={text}", publish(1, "", "q", b"m", expiration=text))
        trial.send(f"x-delay={text}", publish(1, "e-x-delayed-message", "k", b"m",
                                             headers={"x-delay": text}))  # fmt: skip
    assert trial.faults == []


def test_every_number_in_a_binding_key() -> None:
    """Weights of a consistent hash, and numbers of partitions."""
    trial = Trial()
    for kind in KINDS:
        for text in (*(str(number) for number in NUMBERS), "1000", "1001", "9" * 255, "+7"):
            trial.send(
                f"{kind} {text}",
                method(
                    1, "queue.bind", queue="q", exchange=f"e-{kind}", routing_key=text,
                    arguments={},
                ),
                publish(1, f"e-{kind}", "k", b"m"),
            )  # fmt: skip
            for binding in trial.node.vhost.exchanges.bindings_to(
                trial.node.vhost.queues.by_name["q"]
            ):
                if binding.source.name:
                    vhost = trial.node.vhost
                    vhost.exchanges.unbind(
                        binding.source.name, Name("q"), True, binding.binding_key, {}, None
                    )
    assert trial.faults == []


# -- HTTP ------------------------------------------------------------------------------------------


def _requests() -> Iterator[tuple[str, Any]]:
    """Each number in the query or the body of each route, with each value."""
    for route in routes():
        example = EXAMPLES.get(key_of(route))
        if example is None:
            continue
        for name in example.query or {}:
            for text in (*(str(number) for number in NUMBERS), "9" * 30, "9" * 4000):
                query = {**(example.query or {}), name: text}
                yield f"{key_of(route)} ?{name}={text[:20]}", _request(route, {}, None, "", query)
        for place in _places(example.body):
            value = example.body
            for step in place:
                value = value[step]
            is_number = isinstance(value, int) and not isinstance(value, bool)
            for number in (*NUMBERS, 2**64, 10**400) if is_number else (2**63 - 1,):
                body = _with(example.body, place, number)
                request = _request(route, {}, partial(bytes, body), "")
                yield f"{key_of(route)} {place}={str(number)[:20]}", request


def test_every_number_in_every_request(tmp_path: Path) -> None:
    faults: list[str] = []
    count = 0

    async def run() -> None:
        nonlocal count
        hostile = HostileNode(tmp_path, Tally())
        async with hostile.serving():
            for route in routes():
                if route.method == "GET":
                    request = good(route)
                    await hostile.unix.ask(request.method, request.path, request.body)
            for what, request in _requests():
                count += 1
                with Account(10 * LINES_MAX) as account:
                    status, _ = await hostile.unix.ask(request.method, request.path, request.body)
                if account.most_bytes > BYTES_MAX or status >= 500:
                    faults.append(f"{what}: {status}, {account.most_bytes} bytes")
                prepare(hostile.node)

    asyncio.run(run())
    assert faults == []
    assert count > 200
