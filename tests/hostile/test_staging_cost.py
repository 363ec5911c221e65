"""Very many staging queues, and very many sinks: what one costs does not grow with all others."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from leveret.broker.ownership import Owner
from leveret.broker.queue.dead_letters import DEAD_LETTER_RETRY_MS
from leveret.broker.scheduler.accounts import ROUTE_BYTES
from leveret.broker.scheduler.costs import SHARE_MIN, SLICE
from leveret.broker.sinks.claims import Claim, forget_sinks
from leveret.broker.sinks.commit import COMMIT_KEY
from leveret.broker.sinks.giving import give_later, give_sinks
from leveret.broker.sinks.release import Sink, StagedRoutes
from leveret.broker.sinks.staging import staging_of
from leveret.broker.stats.stats import sink_rows
from leveret.broker.users.access import Access
from leveret.clock import NO_DEADLINE
from leveret.errors import PreconditionFailed
from leveret.limits import ROUTE_TARGETS_CACHED_MAX, ROUTES_CACHED_MAX, SINKS_PER_VHOST_MAX
from leveret.management.gate import ACCESS, VISIT, Barred, Gate, Visit
from leveret.management.rights import USER
from leveret.management.routes.queues.sinks import give, sinks
from leveret.management.routes.shared import BROKER, OPERATOR
from leveret.message import Address, Message
from leveret.wire.staged import StagedDestination
from support.costs.cost_gauge import Excess, Gauge, GaugedNode, QuickPeer
from support.costs.cost_http import HttpClient
from support.costs.cost_worlds import World
from support.node.core import Node, Peer
from support.node.staged import claimed, commit, forget, killed, stage_queue
from support.node.tags import set_tags
from support.wire.raw_codec import method, publish

if TYPE_CHECKING:
    from leveret.management.keeper import GateKeeper
    from leveret.management.operator import Operator

#: Staging queues: a walk over all of them for each of them is seen.
MANY = 1_500


def declare(number: int, destination: str, batch: int = 1) -> bytes:
    """Declare a staging queue of one sink name."""
    return method(
        1,
        "queue.declare",
        queue=f"s{number}",
        durable=True,
        no_wait=True,
        arguments={
            "x-staging-sink": "job",
            "x-staging-batch": batch,
            "x-staging-destination": destination,
        },
    )


def destinations(spread: bool, count: int = MANY) -> Iterable[bytes]:
    """Staging queues of a destination each, or of one."""
    return (declare(number, f"d{number if spread else 0}") for number in range(count))


def gauged() -> tuple[GaugedNode, QuickPeer]:
    """A broker whose calls are measured, and a client."""
    world = World(1, 10, Gauge())
    return world.node, world.peers[0]


def excesses(node: GaugedNode) -> list[Excess]:
    """What cost too much by steps and lines."""
    return node.gauge.counted


# -- listings --------------------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [False, True])
def test_sinks_are_listed_in_parts(spread: bool) -> None:
    """However many queues one has, and however many destinations a name."""
    count = 3 * MANY
    node, peer = gauged()
    with node.gauge.unmeasured():
        peer.send(*destinations(spread, count))
        node.sync()
    with HttpClient(node) as http:
        assert http.ask("GET", "/api/sinks/%2F") == 200
    assert excesses(node) == []
    rows = [stats for stats in sink_rows(node.vhost) if stats is not None]
    assert sum(row.staging_queues for row in rows) == count
    assert len(rows) == (count if spread else 1)


def test_the_rights_to_listed_sinks_are_looked_at_in_parts() -> None:
    """A pattern may take thousands of steps with each name."""
    node = Node()
    node.add_user("u", configure="^(a?a?a?a?a?a?a?a?a?a?)+(-[0-9]+)?$", write="", read="")
    names = [f"{'a' * 200}-{number}{end}" for number in range(20) for end in ("", "x")]
    for name in names:
        sink = Sink(name, "")
        sink.batch, sink.time_ms = 1, node.clock.wall_ms()
        node.staging.restore(sink, [])
    app = web.Application()
    app[BROKER] = node.broker
    request = make_mocked_request("GET", "/?page=1", app=app, match_info={"vhost": "/"})
    request[ACCESS] = Access(node.broker.users, "u", "/")

    async def run() -> int:
        asked = asyncio.create_task(sinks(request))
        rounds = 0
        while not asked.done():
            rounds += 1
            await asyncio.sleep(0)
        asked.result()
        writer: Any = request._payload_writer  # noqa: SLF001 (the answer is written in pieces)
        written = b"".join(call.args[0] for call in writer.write.call_args_list)
        assert [row["sink"] for row in json.loads(written)["items"]] == names[::2]
        return rounds

    assert asyncio.run(run()) > 2


def test_what_is_deleted_while_sinks_are_listed_is_left_out() -> None:
    node = Node()
    peer = node.connect()
    peer.send(*destinations(spread=False), declare(MANY, "other"))
    for sink in ("a", "b"):
        peer.declare(sink, arguments={"x-staging-sink": sink, "x-staging-batch": 1})
    listing = (stats for stats in sink_rows(node.vhost) if stats is not None)
    assert next(listing).staging_queues == MANY
    for name in (f"s{MANY}", "a"):
        peer.call(1, "queue.delete", queue=name)
    assert [(row.name, row.staging_queues) for row in listing] == [("b", 1)]


# -- commits and releases --------------------------------------------------------------------------

#: Many small values: they are gone through one by one.
LONG = {f"{number}": None for number in range(600)}


def staged_in(peer: QuickPeer, sink: str, count: int, **props: Any) -> None:
    """Stage messages of long headers for the queue `q` in a queue that is called like its sink."""
    headers = {"x-staged-exchange": "", "x-staged-routing-key": "q", **LONG}
    arguments = {"x-staging-sink": sink, "x-staging-batch": 1}
    peer.send(method(1, "queue.declare", queue=sink, durable=True, arguments=arguments))
    for _ in range(count):
        peer.send(publish(1, "", sink, b"m", headers=headers, delivery_mode=2, **props))


def commit_of(sink: str) -> bytes:
    """A commit of a sink with one queue."""
    command = {"sink": sink, "batch": 1, "queues": [sink]}
    return publish(2, "", COMMIT_KEY, json.dumps(command).encode())


def test_long_headers_are_counted_when_a_batch_is_looked_at_and_released() -> None:
    node, peer = gauged()
    count = 250
    with node.gauge.unmeasured():
        peer.send(method(1, "queue.declare", queue="q", durable=True))
        staged_in(peer, "s", count)
        node.sync()
    before = int(node.core.accounts.total())
    peer.send(commit_of("s"))
    for _ in range(count):
        node.sync()
    assert node.waiting("q").ready_count() == count
    assert excesses(node) == []
    # The routes that it remembered are gone, and so are the queue and its place.
    assert int(node.core.accounts.total()) < before


def test_batches_that_wait_for_room_are_counted_each_time() -> None:
    node, peer = gauged()
    count = 60
    full = {"x-max-length": 0, "x-overflow": "reject-publish"}
    with node.gauge.unmeasured():
        peer.send(method(1, "queue.declare", queue="q", durable=True, arguments=full))
        for number in range(count):
            staged_in(peer, f"s{number}", 1)
            peer.send(commit_of(f"s{number}"))
        node.sync()
    held = int(node.core.accounts.total())
    for _ in range(3):
        node.tick(DEAD_LETTER_RETRY_MS)
    assert excesses(node) == []
    assert node.waiting("s0").ready_count() == 1
    assert int(node.core.accounts.total()) == held


def test_routes_to_many_queues_are_not_kept_for_a_batch() -> None:
    node = Node()
    peer = node.connect()
    most = ROUTE_TARGETS_CACHED_MAX // ROUTES_CACHED_MAX
    for number in range(most + 1):
        peer.declare(f"q{number}")
        peer.call(1, "queue.bind", queue=f"q{number}", exchange="amq.fanout")
    routes = StagedRoutes(node.vhost)
    booked = int(node.core.accounts.total())
    route = routes.find(StagedDestination(b"amq.fanout", b""))
    message = Message(Address(b"amq.fanout", b""), b"\0\0", b"", 0, False)
    assert len(routes.destinations(route, message, []).targets) == most + 1
    assert route.found is None
    assert int(node.core.accounts.total()) == booked + ROUTE_BYTES + len("amq.fanout")
    peer.call(1, "queue.delete", queue="q0")
    route = routes.find(StagedDestination(b"amq.fanout", b""))
    assert len(routes.destinations(route, message, []).targets) == most
    assert route.found is not None
    routes.clear()
    assert int(node.core.accounts.total()) < booked


# -- sinks that expire -----------------------------------------------------------------------------


def filled(node: Node, count: int) -> None:
    """Give `guest` so many sinks, each a millisecond younger than the one before."""
    owner = node.broker.users.owner("guest")
    for number in range(count):
        sink = Sink(f"sink{number}", "")
        sink.batch, sink.owner, sink.time_ms = 1, owner, node.clock.wall_ms() + number
        node.staging.restore(sink, [])


def test_a_refused_commit_walks_through_no_sinks() -> None:
    node, peer = gauged()
    count = 2_000
    node.broker.users.set_limits("guest", {"max-sinks": count})
    with node.gauge.unmeasured():
        filled(node, count)
    peer.send(method(2, "confirm.select"))
    node.clock.advance(int(node.core.publisher_expiry_ms) - 1_000)
    peer.send(*(commit_of(f"more{number}") for number in range(20)))
    node.sync()
    assert len(node.staging.sinks.by_place) == count
    assert excesses(node) == []


def test_sinks_expire_each_at_its_time_and_some_at_once() -> None:
    node, _ = gauged()
    count = 3_000
    with node.gauge.unmeasured():
        filled(node, count)
        node.run()
    node.tick(int(node.core.publisher_expiry_ms) + 1)
    assert len(node.staging.sinks.by_place) == count - 1
    node.tick(count)
    assert node.staging.sinks.by_place == {}
    assert node.core.timers.next_ms() == NO_DEADLINE
    assert excesses(node) == []
    assert node.gauge.most["settle steps"] < SINKS_PER_VHOST_MAX + SHARE_MIN


def test_no_sink_of_a_deleted_vhost_is_awaited() -> None:
    node = Node()
    filled(node, SINKS_PER_VHOST_MAX)
    sinks = node.staging.sinks
    assert node.core.timers.next_ms() != NO_DEADLINE
    node.broker.delete_vhost("/")
    node.run()
    assert sinks.by_place == {}
    assert node.core.timers.next_ms() == NO_DEADLINE


# -- sinks that are given to others ----------------------------------------------------------------


def many_staged(count: int = 1_000) -> tuple[Node, Peer, Sink]:
    """A sink of `guest` with very many staging queues of its next batch."""
    node = Node()
    node.add_user("bob", configure=".*", write=".*", read=".*")
    peer = node.connect()
    commit(peer, sink="job")
    peer.send(*(staged_for(number) for number in range(count)))
    node.sync()
    peer.take()
    return node, peer, node.staging.sinks.by_place["job", ""]


def staged_for(number: int) -> bytes:
    """Declare a staging queue of the sink `job`."""
    arguments = {"x-staging-sink": "job", "x-staging-batch": 2}
    return method(
        1, "queue.declare", queue=f"s{number}", durable=True, no_wait=True, arguments=arguments
    )


def owners(node: Node) -> dict[str, int]:
    """How many staging queues each user has."""
    listing = node.staging.sinks.staged.queues_of("job", "")
    found = [staging_of(queue) for queue in listing]
    names = [one.staged_by.name for one in found if one is not None and one.staged_by is not None]
    return {name: names.count(name) for name in sorted(set(names))}


def test_a_sink_with_very_many_staging_queues_is_given_in_parts() -> None:
    node, _, sink = many_staged()
    bob = node.broker.users.owner("bob")
    giving = give_sinks(node.staging, "job", claimed(node.staging.sinks, "job"), bob)
    assert giving.task is not None
    while not giving.task.over:
        # Between two slices it is its owner's.
        assert (sink.owner or bob).name == "guest"
        with pytest.raises(PreconditionFailed, match="is being handed over to user 'bob'"):
            give_sinks(node.staging, "job", claimed(node.staging.sinks, "job"), bob)
        node.settle()
    assert (sink.owner, sink.gives_to) == (bob, None)
    assert owners(node) == {"bob": 1_000}
    node.sync()
    assert owners(killed(node)) == {"bob": 1_000}


@pytest.mark.parametrize("commits", [False, True])
def test_a_start_completes_what_was_being_given(commits: bool) -> None:
    node, peer, _ = many_staged()
    giving = give_sinks(
        node.staging, "job", claimed(node.staging.sinks, "job"), node.broker.users.owner("bob")
    )
    if commits:
        # Its owner goes on meanwhile.
        body = b'{"sink": "job", "batch": 1, "queues": []}'
        peer.receive(publish(1, "", COMMIT_KEY, body))
    assert giving.task is not None
    assert not giving.task.over
    # What a checkpoint would hold of it.
    assert [one["gives_to"] for one in node.staging.definitions()] == ["bob"]
    assert set(owners(node)) == {"bob", "guest"}
    node.begin_sync()
    node.write()
    again = killed(node)
    again.run()
    found = again.staging.sinks.by_place["job", ""]
    assert (found.owner is not None and found.owner.name, found.gives_to) == ("bob", None)
    assert owners(again) == {"bob": 1_000}
    again.sync()
    assert owners(killed(again)) == {"bob": 1_000}


@pytest.mark.parametrize("count", [1, 300])
def test_a_sink_that_is_taken_before_a_start_completes_its_giving_stays_so(count: int) -> None:
    node, _, sink = many_staged(count)
    give_later(node.staging, sink, node.broker.users.owner("bob"))
    assert [one["gives_to"] for one in node.staging.definitions()] == ["bob"]
    node.staging.sinks.own(sink, Owner("carol", 1))
    node.sync()
    assert (sink.owner is not None and sink.owner.name, sink.gives_to) == ("carol", None)
    again = killed(node)
    assert [one["owner"] for one in again.staging.definitions()] == ["carol"]
    assert owners(again) == {"guest": count}


def test_a_sink_that_is_taken_while_it_is_given_stays_so() -> None:
    node, _, sink = many_staged(600)
    sinks = node.staging.sinks
    give_sinks(
        node.staging, "job", claimed(node.staging.sinks, "job"), node.broker.users.owner("bob")
    )
    assert set(owners(node)) == {"bob", "guest"}
    sinks.own(sink, Owner("carol", 1))
    node.sync()
    assert node.rests()
    again = killed(node)
    again.run()
    found = [one.owner.name for one in again.staging.sinks.by_place.values() if one.owner]
    assert found == ["carol"]


def test_a_sink_is_not_forgotten_while_it_is_given() -> None:
    node, _, _ = many_staged(600)
    give_sinks(
        node.staging, "job", claimed(node.staging.sinks, "job"), node.broker.users.owner("bob")
    )
    assert set(owners(node)) == {"bob", "guest"}
    with pytest.raises(PreconditionFailed, match="is being handed over to user 'bob'"):
        forget(node, "job")
    # Nor does it expire, as it would have by now.
    node.clock.advance(int(node.core.publisher_expiry_ms) + 1)
    node.staging.sinks.due(node.now())
    node.sync()
    assert owners(killed(node)) == {"bob": 600}
    node.tick(int(node.core.publisher_expiry_ms) + 1)
    assert node.staging.sinks.by_place == {}


def test_sinks_of_a_name_are_given_and_forgotten_over_http_in_parts() -> None:
    node, _ = gauged()
    with node.gauge.unmeasured():
        many_of_one_name(node, 3_000, node.broker.users.owner("guest"))
    sinks = node.staging.sinks.by_place
    with HttpClient(node) as http:
        assert http.ask("PUT", "/api/sinks/%2F/job/owner/other") == 204
        assert {one.owner.name for one in sinks.values() if one.owner is not None} == {"other"}
        assert http.ask("DELETE", "/api/sinks/%2F/job") == 204
    assert sinks == {}
    assert excesses(node) == []


def many_of_one_name(node: Node, count: int, owner: Owner) -> None:
    for number in range(count):
        sink = Sink("job", f"d{number}")
        sink.batch, sink.owner, sink.time_ms = 1, owner, node.clock.wall_ms()
        node.staging.restore(sink, [])


def owned(node: Node) -> dict[str, int]:
    """How many sinks each user has."""
    return dict(
        Counter(one.owner.name for one in node.staging.sinks.by_place.values() if one.owner)
    )


@pytest.mark.parametrize("method_name", ["PUT", "DELETE"])
def test_very_many_sinks_are_judged_in_parts(method_name: str) -> None:
    """Those of the name, and those of others beside it, which a search passes."""
    node, _ = gauged()
    with node.gauge.unmeasured():
        many_of_one_name(node, 5_000, node.broker.users.owner("guest"))
        filled(node, 5_000)
    accounts = node.core.accounts
    tail = "/owner/other" if method_name == "PUT" else ""
    with HttpClient(node) as http:
        assert http.ask(method_name, f"/api/sinks/%2F/job{tail}") == 204
    assert owned(node).get("other", 0) == (5_000 if tail else 0)
    # Lines are counted in plain Python alone.
    assert node.gauge.most["http lines"] < 200_000
    assert excesses(node) == []
    assert accounts.request_bytes == 0


def test_sinks_of_a_name_are_given_to_one_user_at_a_time() -> None:
    node = Node()
    many_of_one_name(node, 1_000, node.broker.users.owner("guest"))
    sinks = node.staging.sinks
    late = claimed(sinks, "job")
    giving = give_sinks(node.staging, "job", claimed(sinks, "job"), Owner("bob", 1))
    assert giving.task is not None
    assert not giving.task.over
    for claims in (late, claimed(sinks, "job", "d0"), claimed(sinks, "job", "d999")):
        with pytest.raises(PreconditionFailed, match="is being handed over to user 'bob'"):
            give_sinks(node.staging, "job", claims, Owner("carol", 2))
        with pytest.raises(PreconditionFailed, match="is being handed over to user 'bob'"):
            forget_sinks(sinks, "job", claims)
    node.sync()
    # What was claimed before is another's by now.
    too_late = give_sinks(node.staging, "job", late, Owner("carol", 2))
    node.sync()
    assert too_late.task is not None
    assert (too_late.task.over, too_late.any_done) == (True, False)
    assert owned(node) == {"bob": 1_000}
    assert give_sinks(node.staging, "job", claimed(sinks, "job", "d0"), Owner("carol", 2)).any_done
    assert owned(node) == {"bob": 999, "carol": 1}


@pytest.mark.parametrize("end", ["tags", "user", "permission"])
def test_who_loses_his_rights_while_sinks_are_judged_changes_none(end: str) -> None:
    node = Node()
    node.add_user("root", "administrator", configure=".*", write="", read="")
    many_of_one_name(node, 3_000, node.broker.users.owner("guest"))
    users = node.broker.users
    match_info: dict[str, str] = {"vhost": "/", "sink": "job", "user": "root"}
    app = web.Application()
    app[BROKER] = node.broker
    app[OPERATOR] = cast("Operator", SimpleNamespace(begin=node.now))
    request = make_mocked_request("PUT", "/", app=app, match_info=match_info)

    async def run() -> None:
        gate = Gate(node.broker, cast("GateKeeper", None), print, node.clock)
        access = Access(users, "root", "/")
        asked = asyncio.create_task(give(request))
        visit = Visit(gate, access, USER, users.get("root"), asked)
        visit.ends = False
        gate.visits.add(visit)
        request[ACCESS], request[VISIT] = access, visit
        await asyncio.sleep(0)
        if end == "tags":
            set_tags(users, "root", [])
        elif end == "user":
            users.delete("root")
        else:
            users.clear_permission("root", "/")
        with pytest.raises((asyncio.CancelledError, Barred)):
            await asked
        assert (end == "tags") == (visit.refusal is None)

    asyncio.run(run())
    assert owned(node) == {"guest": 3_000}
    assert node.staging.sinks.giving == {}


def test_what_is_offered_to_another_meanwhile_is_not_taken() -> None:
    node = Node()
    guest, bob, carol = node.broker.users.owner("guest"), Owner("bob", 1), Owner("carol", 2)
    many_of_one_name(node, 1_000, guest)
    sinks = node.staging.sinks
    offers = [Claim(sink, offers=True) for sink in sinks.by_place.values()]
    assert give_sinks(node.staging, "job", offers, bob).any_done
    node.sync()
    assert owned(node) == {"guest": 1_000}
    takes = [Claim(sink, takes=True) for sink in sinks.by_place.values()]
    sinks.by_place["job", "d7"].offered = carol
    assert give_sinks(node.staging, "job", takes, bob).any_done
    node.sync()
    assert owned(node) == {"guest": 1, "bob": 999}
    assert sinks.by_place["job", "d7"].offered is carol


def test_nobody_takes_more_sinks_than_he_may_have() -> None:
    node = Node()
    bob = Owner("bob", 1)
    many_of_one_name(node, 1_000, node.broker.users.owner("guest"))
    sinks = node.staging.sinks
    node.core.quotas.user_limits["bob"] = {"max-sinks": 1_000}
    takes = []
    for sink in sinks.by_place.values():
        sink.offered = bob
        takes.append(Claim(sink, takes=True))
    giving = give_sinks(node.staging, "job", takes, bob)
    assert giving.task is not None
    assert not giving.task.over
    # He commits under another name meanwhile.
    mine = Sink("mine", "")
    mine.batch, mine.owner, mine.time_ms = 1, bob, node.clock.wall_ms()
    node.staging.restore(mine, [])
    node.sync()
    # The answer says so also where he has room again by then.
    refused = "sinks in vhost '/'" in str(giving.refusal)
    assert (giving.task.over, refused) == (True, True)
    assert owned(node) == {"guest": 1, "bob": 1_000}


def test_a_sink_counts_as_his_who_takes_it_while_its_queues_are_given() -> None:
    """A user may take several names at once, and begin sinks of his own."""
    node = Node()
    node.add_user("bob", configure=".*", write=".*", read=".*")
    node.broker.users.set_limits("bob", {"max-sinks": 1})
    bob = node.broker.users.owner("bob")
    assert bob is not None
    peer = node.connect()
    peer.call(1, "confirm.select")
    for name in ("job", "other"):
        commit(peer, sink=name)
        for number in range(400):
            stage_queue(peer, f"{name}.{number}", 2, name)
    node.sync()
    sinks = node.staging.sinks
    takes: dict[str, list[Claim]] = {"job": [], "other": []}
    for sink in sinks.by_place.values():
        sink.offered = bob
        takes[sink.name].append(Claim(sink, takes=True))
    giving = give_sinks(node.staging, "job", takes["job"], bob)
    assert giving.task is not None
    assert not giving.task.over
    with pytest.raises(PreconditionFailed, match="user 'bob' may have 1 sinks"):
        give_sinks(node.staging, "other", takes["other"], bob)
    assert not sinks.quota.has_room(bob)
    node.sync()
    assert owned(node) == {"guest": 1, "bob": 1}
    assert sinks.quota.counts[bob.key] == 1
    # One that is forgotten meanwhile counts no more.
    node.broker.users.set_limits("bob", {"max-sinks": 2})
    giving = give_sinks(node.staging, "other", takes["other"], bob)
    sinks.forget_one(sinks.by_place["other", ""])
    node.sync()
    assert sinks.giving == {}
    assert sinks.quota.counts == {bob.key: 1}


def test_what_commits_while_sinks_are_forgotten_stays() -> None:
    node = Node()
    peer = node.connect()
    peer.call(1, "confirm.select")
    count = SLICE
    for number in range(count):
        sink = Sink("job", f"d{number}")
        sink.batch, sink.time_ms = 1, node.clock.wall_ms()
        sink.owner = node.broker.users.owner("guest")
        node.staging.restore(sink, [])
    forgetting = forget(node, "job")
    body = {"sink": "job", "destination": f"d{count - 1}", "batch": 2, "queues": []}
    peer.receive(publish(1, "", COMMIT_KEY, json.dumps(body).encode()))
    node.sync()
    assert forgetting.over
    assert [place[1] for place in node.staging.sinks.by_place] == [f"d{count - 1}"]
    again = killed(node)
    assert {one.batch for one in again.staging.sinks.by_place.values()} == {2}


# -- what is staged for lower batches --------------------------------------------------------------


def test_a_commit_looks_at_no_staging_queues_of_other_destinations() -> None:
    """Nor is there a list of them for each sink whose lower batches are dropped."""
    node = GaugedNode(Gauge())
    peer = node.connect()
    peer.call(1, "confirm.select")
    peer.send(*destinations(spread=False))
    count = 100
    for number in range(count):
        destination = f"other{number}"
        stage_queue(peer, f"lower{number}", 1, "job", destination=destination)
    node.sync()
    for number in range(count):
        body = {"sink": "job", "destination": f"other{number}", "batch": 2, "queues": []}
        peer.send(publish(1, "", COMMIT_KEY, json.dumps(body).encode()))
    node.sync()
    assert excesses(node) == []
    assert len(node.staging.sinks.staged.queues_of("job", "d0")) == MANY
    assert len(node.staging.sinks.staged.places()) == 1
