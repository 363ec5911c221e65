"""Every long operation may be stopped at each of its yields: by a power cut, or for somebody else.

Where a generator yields, the state and the journal agree: a broker that starts from what is on the
disk there has lost nothing that stays, and has nothing that never was.  What an operation works on
may be changed or deleted between two yields: it comes to its end all the same, a restart afterwards
finds what there is, the client is answered or closed, and nothing is kept alive.
"""

from __future__ import annotations

import ast
import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import leveret
from leveret.broker.policies.policy import make_policy
from leveret.errors import AmqpError
from leveret.store.disks.recording import RecordingDisk
from model.operations import (
    KEPT,
    KEPT_COUNT,
    ROWS,
    USER,
    VHOST,
    Row,
    Scene,
    end_all,
    open_hare,
    scene,
)
from model.stepped import SteppedNode, after_power_cut, alive, facts, told
from support.node.core import Node
from support.node.uncollected import no_collector
from support.wire.raw_codec import method, publish

#: How many stops of one row are looked at; with `LEVERET_TEST_STOPS=all`, all of them.
ALL = 1_000_000
STOPS = ALL if os.environ.get("LEVERET_TEST_STOPS") == "all" else 8

#: Replies that promise nothing durable: what a purge drops is acked, and an ack may be lost.
UNRECORDED = {
    "basic.get-ok", "basic.recover-ok", "channel.close-ok", "connection.close-ok",
    "connection.open-ok", "queue.purge-ok",
}  # fmt: skip


def chosen(stops: int, most: int) -> list[int]:
    """Return which of so many stops to look at: the first, the last, and some between."""
    if stops <= most:
        return list(range(stops))
    edge = most // 3
    between = range(edge, stops - edge, max((stops - 2 * edge) // (most - 2 * edge), 1))
    return [*range(edge), *between][: most - edge] + list(range(stops - edge, stops))


class Watch:
    """Counts stops, and does something at those of `at`."""

    def __init__(self, action: Callable[[], None], at: list[int]) -> None:
        self.stops = 0
        self._action = action
        self._at = set(at)

    def __call__(self) -> None:
        if self.stops in self._at:
            self._action()
        self.stops += 1


def nothing() -> None:
    """Only count the stops."""


@contextlib.contextmanager
def begun(name: str, scale: int = 1) -> Iterator[Scene]:
    """Give the scene of a row, and end it afterwards.

    In the compiled build the collector passes over deliveries and routes, so it never frees a
    broker whose connections are open.
    """
    at = ROWS[name].begin(scale)
    yield at
    end_all(at)


@cache
def stops_of(name: str) -> tuple[int, frozenset[str]]:
    """Return how often an operation stops that nobody disturbs, and the operations that did."""
    watch = Watch(nothing, [])
    with begun(name) as at:
        with at.node.watched(watch):
            ROWS[name].request(at)
            at.node.sync()
        ended(at)
        return watch.stops, frozenset(at.node.seen)


def ended(at: Scene) -> None:
    """Have everything come to its end."""
    at.node.sync()
    at.node.tick(1)
    at.node.sync()
    assert not at.node.core.scheduler.tasks


# -- a power cut -----------------------------------------------------------------------------------


def cut(name: str, most: int) -> list[str]:
    """Cut the power at the stops of an operation; return what a start found wrong there."""
    with begun(name) as at:
        return _cut(at, name, most)


def _cut(at: Scene, name: str, most: int) -> list[str]:
    before, after = facts(at.node), outcome(name)
    faults = []

    def look(when: str) -> None:
        found = facts(after_power_cut(at.node))
        lost, made = (before & after) - found, found - (before | after)
        if lost or made:
            faults.append(f"stop {here.stops} {when}: lost {told(lost)}, made {told(made)}")

    def power_cut() -> None:
        # All that was recorded is durable; what was not, the operation has not done either.
        synced(at.node)
        look("by the journal")
        if here.stops % 2:
            while not at.node.step_checkpoint():
                # It may wait for chunks, and for what was recorded.
                at.node.write_spilled()
                synced(at.node)
            look("by a checkpoint")

    here = Watch(power_cut, chosen(stops_of(name)[0], most))
    with at.node.watched(here):
        ROWS[name].request(at)
        at.node.sync()
    ended(at)
    if facts(after_power_cut(at.node)) != facts(at.node):
        faults.append("at the end")
    return faults


def checkpointed(name: str) -> list[str]:
    """Have a checkpoint go on at each stop of an operation, and another one after it."""
    faults: list[str] = []
    with begun(name) as at:
        before, after = facts(at.node), outcome(name)

        def go_on() -> None:
            at.node.write_spilled()
            synced(at.node)
            if at.node.step_checkpoint(1):
                found = facts(after_power_cut(at.node))
                lost, made = (before & after) - found, found - (before | after)
                if lost or made:
                    faults.append(f"stop {here.stops}: lost {told(lost)}, made {told(made)}")

        here = Watch(go_on, chosen(stops_of(name)[0], ALL))
        with at.node.watched(here):
            ROWS[name].request(at)
            at.node.sync()
        ended(at)
        if at.node.checkpoint is not None:
            at.node.take_checkpoint()
        if facts(after_power_cut(at.node)) != facts(at.node):
            faults.append("at the end")
    return faults


def synced(node: SteppedNode) -> None:
    """Sync what was recorded, with no turn of the core."""
    if node.begin_sync():
        node.write()
        group, node.group = node.group, None
        assert group is not None
        node.core.syncs.synced(group.number)


@pytest.mark.parametrize("name", ROWS)
def test_a_power_cut_at_a_yield_leaves_what_may_be(name: str) -> None:
    assert cut(name, STOPS) == []


@pytest.mark.parametrize("name", ROWS)
def test_a_checkpoint_may_go_on_at_each_yield(name: str) -> None:
    assert checkpointed(name) == []


@pytest.mark.parametrize("name", ROWS)
def test_a_reply_waits_for_all_that_was_recorded(name: str) -> None:
    """Also for what was recorded in an earlier slice; and it is the same as without stops."""
    with begun(name) as at, begun(name) as whole:
        _compare(at, whole, ROWS[name])


def _compare(at: Scene, whole: Scene, row: Row) -> None:
    """Check what the client hears when an operation stops, and when it does not."""
    row.request(whole)
    ended(whole)

    def nothing_heard() -> None:
        if at.client.connection.work is not None and at.client.pending():
            last = at.client.heard[-1].method.name
            assert not last.endswith("-ok") or last in UNRECORDED, last

    with at.node.watched(nothing_heard):
        row.request(at)
        while at.node.core.scheduler.tasks:
            at.node.run()
    early = Counter(got.name for got in at.client.take())
    if at.node.journal.has_records():
        answers = {got for got in early if got.endswith("-ok") or got == "basic.ack"}
        assert answers <= UNRECORDED | {row.tells}, answers
    ended(at)
    later = Counter(got.name for got in at.client.take())
    assert early + later == Counter(got.name for got in whole.client.take())
    assert facts(at.node) == facts(whole.node)


# -- what it costs a neighbour ---------------------------------------------------------------------

#: How many times as large the worlds are in which costs are counted.
LARGE = 4


@pytest.mark.parametrize("name", ROWS)
def test_a_neighbour_waits_for_no_more_than_a_portion(name: str) -> None:
    """The core may let others have their turn whenever it has done so much, in any world."""
    row = ROWS[name]
    with begun(name, LARGE) as at, at.node.watched(nothing):
        row.request(at)
        at.node.sync()
        costs = list(at.node.costs)
    assert max(costs) <= row.most
    # Else the row would say nothing of that.
    assert sum(costs) > row.most


# -- others meanwhile ------------------------------------------------------------------------------


def _delete_queue(at: Scene) -> None:
    at.other.send(method(1, "queue.delete", queue="q"))


def _delete_exchange(at: Scene) -> None:
    at.other.send(method(2, "exchange.delete", exchange="x"))


def _purge(at: Scene) -> None:
    at.other.send(method(3, "queue.purge", queue="q"))


def _bind(at: Scene) -> None:
    at.other.send(method(4, "queue.bind", queue="q", exchange="x", routing_key="7"))
    at.other.send(method(5, "queue.bind", queue=KEPT, exchange="x", routing_key="k"))


def _publish(at: Scene) -> None:
    at.other.send(publish(6, "", "q", b"new", delivery_mode=2))
    at.other.send(publish(7, "x", "k", b"new", delivery_mode=2))


def _declare_again(at: Scene) -> None:
    """Delete both, and make the like of them at once."""
    at.other.send(method(8, "queue.delete", queue="q"))
    at.other.send(method(9, "exchange.delete", exchange="x"))
    at.other.send(method(8, "queue.declare", queue="q", durable=True))
    at.other.send(method(9, "exchange.declare", exchange="x", type="fanout", durable=True))
    at.other.send(method(10, "queue.bind", queue="q", exchange="x"))


def _take(at: Scene) -> None:
    at.other.send(method(11, "basic.get", queue="q", no_ack=True))
    at.other.send(method(12, "basic.consume", queue="q"))


def _close_channel(at: Scene) -> None:
    at.client.send(method(1, "channel.close", code=200))


def _close_connection(at: Scene) -> None:
    at.client.connection.force("asked for")
    at.node.run()


def _lose_connection(at: Scene) -> None:
    at.client.lose()


def _delete_vhost(at: Scene) -> None:
    at.node.broker.delete_vhost(VHOST)
    at.node.run()


def _delete_user(at: Scene) -> None:
    at.node.broker.users.delete(USER)
    at.node.run()


def _checkpoint(at: Scene) -> None:
    at.node.take_checkpoint()


def _declare_as_stream(at: Scene) -> None:
    """Delete the queue, and make a stream of its name."""
    at.other.send(method(1, "queue.delete", queue="q"))
    stream = {"x-queue-type": "stream"}
    at.other.send(method(12, "queue.declare", queue="q", durable=True, arguments=stream))


def _revoke(at: Scene) -> None:
    at.node.broker.users.set_permission(USER, VHOST, "^$", "^$", "^$")
    at.node.run()


def _limit(at: Scene) -> None:
    """Have queues drop all but one message, and that one soon."""
    at.vhost.policies.set(make_policy("limit", "^q", {"max-length": 1, "message-ttl": 1}))
    at.node.run()


def _lower_quotas(at: Scene) -> None:
    at.node.broker.users.set_limits(USER, {"max-queues": 1, "max-messages": 1})
    at.node.run()


def _evict(at: Scene) -> None:
    """Have queues write all that they hold, and hold nothing from then on."""
    at.node.broker.eviction.configure(0, 1)
    at.node.tick()


def _pass_time(at: Scene) -> None:
    """Let 40 minutes pass: messages expire, and acks are late."""
    at.node.tick(2_400_000)


def _lose_all_at_once(at: Scene) -> None:
    """Lose the connection, and delete the vhost before the core has its turn."""
    if at.node.peers.pop(at.client.connection, None) is not None:
        at.client.connection.lost()
    _delete_vhost(at)


def _stop(at: Scene) -> None:
    """Stop in order while tasks are under way, after the time that clients have to answer."""
    for peer in list(at.node.peers.values()):
        del at.node.peers[peer.connection]
        peer.connection.lost()
    synced(at.node)
    at.node.broker.journal_stop(at.node.clock.wall_ms())
    synced(at.node)
    at.stopped = facts(at.node), at.node.image()


OTHERS: dict[str, Callable[[Scene], None]] = {
    "the queue is deleted": _delete_queue,
    "the exchange is deleted": _delete_exchange,
    "the queue is purged": _purge,
    "queues are bound": _bind,
    "messages are published": _publish,
    "both are declared anew": _declare_again,
    "others consume": _take,
    "the channel is closed": _close_channel,
    "the connection is closed": _close_connection,
    "the connection is lost": _lose_connection,
    "the vhost is deleted": _delete_vhost,
    "the user is deleted": _delete_user,
    "a checkpoint is taken": _checkpoint,
    "a stream takes the queue's name": _declare_as_stream,
    "the user's rights are revoked": _revoke,
    "a policy limits the queues": _limit,
    "the user's quotas are lowered": _lower_quotas,
    "the memory is full": _evict,
    "much time passes": _pass_time,
    "the connection and the vhost go at once": _lose_all_at_once,
    "the broker stops": _stop,
}

#: What is asked for once more, by the other client or by the operator.
AGAIN = "the same is asked for again"


#: What is tried where a world takes long to build.
HARSHEST = (
    "both are declared anew", "the connection is lost", "the vhost is deleted", "the broker stops",
)  # fmt: skip


#: Who asked is not there any more, and what was begun is done all the same.
GONE = (
    "the channel is closed", "the connection is closed", "the connection is lost",
    "the broker stops",
)  # fmt: skip


@cache
def outcome(name: str) -> frozenset[tuple[Any, ...]]:
    """Return the facts after an operation that nobody disturbs."""
    with begun(name) as at:
        ROWS[name].request(at)
        ended(at)
        return frozenset(facts(at.node))


def disturbed(row: Row, other: str, stop: int) -> Scene:
    """Do an operation, and let somebody do something else at one of its stops."""
    at = row.begin()

    def act() -> None:
        with contextlib.suppress(AmqpError):
            if other == AGAIN:
                row.request(replace(at, client=at.other))
            else:
                OTHERS[other](at)

    with at.node.watched(Watch(act, [stop])):
        row.request(at)
        at.node.sync()
    ended(at)
    return at


@cache
def idle(window_bytes: int, hare: bool) -> Counter[str]:
    """Return what is alive in a broker that has nothing left of the vhost.

    The parts of a connection of HareMQ's know each other until the collector frees them.
    """
    with no_collector():
        before = alive()
        at = scene(window_bytes)
        if hare:
            open_hare(at)
        end_all(at)
        return alive() - before


def booked(node: Node) -> dict[str, int]:
    """Return what the broker counts as held by somebody."""
    core = node.core
    return {
        "messages": int(core.memory.held_messages),
        "bytes of messages": int(core.memory.held_bytes),
        "bytes that are retained": int(core.memory.retention.bytes),
        "bytes that are delayed": int(core.memory.delayed_bytes),
        "bytes in no chunk": int(core.memory.unchunked_bytes),
        "bytes of streams": int(core.stream_cache.bytes),
        "bytes in chunks": int(core.spill.use.bytes_live),
        "definitions": int(core.accounts.definition_bytes),
        "marks": int(core.accounts.mark_bytes),
        "requests": int(core.accounts.request_bytes),
    }


@cache
def empty_books() -> dict[str, int]:
    """Return the same of a broker that has nothing left of the vhost."""
    with no_collector():
        at = scene()
        end_all(at)
        return booked(at.node)


def faults_of(
    at: Scene, before: Counter[str], after: frozenset[tuple[Any, ...]], is_done: bool
) -> list[str]:
    """Return what is wrong after a disturbed operation, and end all that there is.

    `after` are the facts after one that nobody disturbs; `is_done` says that they must hold.
    """
    faults = [*unanswered(at)]
    node = at.node
    live, image = at.stopped or (facts(node), node.image())
    if VHOST in node.broker.vhosts:
        kept = [fact for fact in live if fact[0] == "message" and fact[2] == KEPT]
        if len([fact for fact in kept if fact[-1] != b"new"]) < KEPT_COUNT:
            faults.append(f"kept only {kept}")
    end_all(at)
    counted, empty = booked(node), empty_books()
    if more := {name: count for name, count in counted.items() if count > empty[name]}:
        faults.append(f"counted: {more}")
    if again := alive() - before:
        faults.append(f"alive: {dict(again)}")
    found = facts(Node(RecordingDisk(image), clock=node.clock))
    # A start goes on with what a stop left of an operation.
    must, may, done = live, live, live
    if at.stopped is not None:
        must, may, done = live & after, live | after, found
    if not must <= found <= may:
        faults.append(f"lost {told(must - found)}, made {told(found - may)}")
    if is_done and done != after:
        faults.append(f"not done {told(after - done)}, but {told(done - after)}")
    return faults


def unanswered(at: Scene) -> Iterator[str]:
    """Ask the client for something more: it must hear of it, unless its connection ends."""
    client = at.client
    heard_before = {one.method.name for one in client.heard}
    is_open = "connection.open-ok" in heard_before and "connection.close" not in heard_before
    if client.connection in at.node.peers and is_open:
        client.take()
        client.send(method(30, "channel.open"))
        at.node.sync()
        if "channel.open-ok" not in (heard := client.names()):
            yield f"the client hears nothing any more: {heard}"


def check_others(name: str, most: int) -> None:
    """Try what others may do, at stops of one operation: not all of it at each stop, or all."""
    row = ROWS[name]
    count = stops_of(name)[0]
    faults = []
    stops = chosen(count, most)
    others = HARSHEST if row.heavy else (*OTHERS, AGAIN)
    if most != ALL:
        # The next row tries the rest.
        others = others[list(ROWS).index(name) % 2 :: 2]
    for place, other in enumerate(others):
        # A few stops: another one for each of the others.
        for stop in stops if most == ALL else stops[place % len(stops) :][:1] if stops else []:
            empty_books()
            after, is_done = outcome(name), other in GONE and not row.judged
            with no_collector():
                before = alive() + idle(row.window_bytes, "HareMQ" in name)
                found = faults_of(disturbed(row, other, stop), before, after, is_done)
            faults += [f"stop {stop} of {count}, {other}: {fault}" for fault in found]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("name", ROWS)
def test_others_may_change_what_is_worked_on(name: str) -> None:
    check_others(name, STOPS)


# -- the table -------------------------------------------------------------------------------------

#: What starts a long operation, and is no part of one.
SOURCES = Path(str(leveret.__file__)).parent
#: What is started for somebody else, who made it.
PASSED_ON = ("operation", "_keeping(operation")
STARTERS = ("broker", "session", "management")
#: What only waits for a sync, and then does one thing: `session/test_internal_error.py`.
WAITS = {"_fail_when_confirmed"}


def started(path: Path) -> Iterator[str]:
    """Yield the names of the generators that a module hands to `start`, functions with theirs."""
    tree = ast.parse(path.read_text())
    module = ".".join(path.relative_to(SOURCES.parent).with_suffix("").parts)
    imported = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "start"
            and len(node.args) == 1
            and not ast.unparse(node.args[0]).startswith(PASSED_ON)
        ):
            operation = node.args[0]
            # So that who reads it, and this test, know what is started.
            assert isinstance(operation, ast.Call), f"{module}: {ast.unparse(node)}"
            called = operation.func
            if isinstance(called, ast.Name):
                yield imported.get(called.id, f"{module}.{called.id}")
            else:
                yield ast.unparse(called).rpartition(".")[2]


def test_every_long_operation_has_a_row() -> None:
    """An operation that no row starts, or none makes long, needs a row of its own."""
    found = {
        name
        for room in STARTERS
        for path in (SOURCES / room).rglob("*.py")
        for name in started(path)
    }
    shown = frozenset.union(*(stops_of(name)[1] for name in ROWS))
    assert sorted(found - WAITS - shown) == []
