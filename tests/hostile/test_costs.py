"""The cost fuzzer: a fixed sample of what `make chaos` tries, and three faults that it finds."""

from __future__ import annotations

import json

import pytest
from chaos.costs import Score, judged

from leveret.broker.queue.queue import Queue
from leveret.broker.scheduler.task import Task
from leveret.broker.sinks.commit import COMMIT_KEY
from leveret.management.metrics import totals
from leveret.management.routes import lists
from leveret.names import Name
from leveret.session.client_session import ClientSession
from leveret.session.publish.publisher import Publisher
from support.costs.cost_gauge import PLAIN, Excess, Gauge
from support.costs.cost_http import HttpClient, http_request
from support.costs.cost_memory import unbooked
from support.costs.cost_worlds import SINK, World, bind, declare
from support.wire.raw_codec import method, publish

#: Lines are counted in plain Python, and time in compiled code.
pytestmark = pytest.mark.both_builds

#: What compiled code calls is bound when it is built: nothing can be planted there.
planted = pytest.mark.skipif(not PLAIN, reason="plants faults in plain Python")

#: Seeds, sizes and parts of worlds that have all kinds of things in them.
WORLDS = [
    (1, 300, ["queues", "one_queue", "stream", "consumers"]),
    (2, 300, ["deep_queue", "expiring", "priorities", "deduplicated"]),
    (3, 300, ["exclusive", "unacked", "delayed", "transaction"]),
    (4, 100, ["super_streams", "publishers", "channels", "history"]),
    (5, 200, ["direct", "returned", "expiring"]),
    (6, 1_000, ["one_queue", "unacked", "exclusive"]),
    (7, 300, ["readers", "staged", "limited", "transaction"]),
]


def found(seed: int, size: int, parts: list[str], count: int = 70) -> list[Excess]:
    """What cost too much by steps and lines, which are the same on each machine; time is not."""
    return [one for one in judged(seed, size, count, Score(), parts) if not one.timed]


@pytest.mark.parametrize(("seed", "size", "parts"), WORLDS)
def test_no_request_costs_too_much(seed: int, size: int, parts: list[str]) -> None:
    assert found(seed, size, parts) == []


def test_a_seed_gives_the_same_counts() -> None:
    first, again = Score(), Score()
    for score in (first, again):
        judged(7, 50, 60, score, ["queues", "deep_queue"])
    assert first.calls == again.calls
    counted = [name for name in first.most if not name.endswith("ms")]
    assert [first.most[name] for name in counted] == [again.most[name] for name in counted]


@pytest.mark.parametrize(("seed", "size", "parts"), WORLDS[:3])
def test_what_a_world_holds_is_booked(seed: int, size: int, parts: list[str]) -> None:
    assert unbooked(seed, size, parts) == []


def asked(world: World, path: str) -> int:
    """Ask for a path over HTTP; return the status."""
    with HttpClient(world.node) as http:
        return http.ask("GET", path)


def http_costs(seed: int, size: int, parts: list[str], count: int = 120) -> list[Excess]:
    """What requests over HTTP alone cost too much, by routes that a seed chooses."""
    gauge = Gauge()
    world = World(seed, size, gauge)
    for part in parts:
        world.build(part)
    with HttpClient(world.node) as http:
        for _ in range(count):
            http_request(http, world.draw, world.queue(), world.exchange(), gauge)
    # Most must have come through, or nothing was tried.
    assert http.statuses[200] > count // 4
    return [one for one in gauge.excesses if not one.timed]


@pytest.mark.parametrize(
    ("seed", "size", "parts"),
    [(1, 1_500, ["queues", "users"]), (2, 500, ["stream", "super_streams", "policies"])],
)
def test_no_request_over_http_costs_too_much(seed: int, size: int, parts: list[str]) -> None:
    assert http_costs(seed, size, parts) == []


@pytest.mark.parametrize(
    "path",
    [
        "queues", "queues?columns=arguments", "queues?page=1&page_size=100", "queues?sort=name",
        "queues?page=1&sort=consumers", "definitions",
    ],
)  # fmt: skip
def test_rows_of_very_many_values_are_made_in_slices(path: str) -> None:
    gauge = Gauge()
    world = World(1, 10, gauge)
    peer = world.node.connect()
    for number in range(60):
        arguments = {f"x-{place}": place for place in range(500)}
        peer.send(declare(f"long{number}", arguments=arguments))
    world.node.run()
    assert asked(world, f"/api/{path}") == 200
    assert gauge.counted == []


@pytest.mark.parametrize(
    ("kind", "query"),
    [("queues", "?sort=messages&page_size=500&page=1"), ("quotas", "")],
)
def test_a_long_list_over_http_is_made_in_slices(kind: str, query: str) -> None:
    gauge = Gauge()
    world = World(1, 2_000 if kind == "queues" else 6_000, gauge)
    world.build("queues" if kind == "queues" else "users")
    assert asked(world, f"/api/{kind}{query}") == 200
    assert [one for one in gauge.excesses if not one.timed] == []


def excesses(gauge: Gauge) -> list[Excess]:
    """What cost too much by steps and lines."""
    return [one for one in gauge.excesses if not one.timed]


@pytest.mark.parametrize("letters", [False, True])
def test_a_batch_is_released_in_slices(letters: bool) -> None:
    """Each third message is unroutable and dropped; or all are, and become dead letters."""
    gauge = Gauge()
    world = World(1, 1_200, gauge)
    world.build("staged")
    peer, queue, count = world.peers[0], "deep", world.size * 2 // 3
    command = {"sink": SINK, "batch": 1, "queues": world.staged[1], "unroutable": "drop"}
    if letters:
        queue, count = "dead", world.size
        command["unroutable"] = "dead-letter:amq.topic"
        peer.send(method(1, "queue.delete", queue="deep"))
        world.node.sync()
        peer.send(declare("dead", {}), bind("dead", "amq.topic", "#"))
    peer.send(publish(2, "", COMMIT_KEY, json.dumps(command).encode()))
    for _ in range(world.size):
        world.node.sync()
    assert excesses(gauge) == []
    assert world.node.vhost.queues.by_name[Name(queue)].ready_count() == count


def scraped() -> list[Excess]:
    """What a scrape of many queues costs too much that have consumers, of which one has a message.

    The queues of a world are mostly empty, and one with messages takes four times as many lines.
    """
    gauge = Gauge()
    world = World(1, 2_000, gauge)
    world.build("queues")
    peer = world.peers[0]
    with gauge.unmeasured():
        peer.send(method(1, "basic.qos", prefetch_count=1))
        for number in range(world.size):
            name = f"q{number}"
            consume = method(1, "basic.consume", queue=name, consumer_tag=name, no_wait=True)
            peer.send(consume, publish(1, "", name, b"taken"), publish(1, "", name, b"waits"))
    assert asked(world, "/metrics") == 200
    return [one for one in gauge.excesses if not one.timed]


def test_a_scrape_is_made_in_slices() -> None:
    assert scraped() == []


@planted
def test_a_scrape_without_a_slice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(totals, "SCRAPE_SLICE", 100_000)
    assert {(one.call, one.count) for one in scraped()} == {("http", "lines")}


@planted
def test_a_list_over_http_without_a_slice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "SLICE_ROWS", 100_000)
    monkeypatch.setattr(lists, "SLICE_VALUES", 1 << 30)
    gauge = Gauge()
    world = World(1, 1_000, gauge)
    world.build("queues")
    assert asked(world, "/api/queues") == 200
    assert {(one.call, one.count) for one in gauge.excesses} == {("http", "lines")}


@planted
def test_a_quadratic_list_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Queue] = []
    keep = ClientSession.keep_exclusive

    def keep_once(session: ClientSession, queue: Queue) -> None:
        for known in kept:
            if known is queue:
                return
        kept.append(queue)
        keep(session, queue)

    monkeypatch.setattr(ClientSession, "keep_exclusive", keep_once)
    gauge = Gauge()
    world = World(6, 4_000, gauge)
    world.build("exclusive")
    declares = [declare(f"more{number}", {}, exclusive=True) for number in range(200)]
    world.peers[0].send(*declares)
    assert {one.count for one in gauge.excesses} == {"lines"}


@planted
def test_a_loop_without_a_slice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Task.step

    def all_steps(task: Task, steps: int) -> bool:
        return step(task, steps << 20)

    monkeypatch.setattr(Task, "step", all_steps)
    gauge = Gauge()
    world = World(6, 8_000, gauge)
    world.build("one_queue")
    world.peers[0].send(method(1, "queue.delete", queue="q0"))
    assert {one.count for one in gauge.excesses} == {"steps"}


@planted
def test_an_unbooked_buffer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer: list[bytes] = []
    accept = Publisher.accept

    def accept_and_keep(self: Publisher, *message: object) -> None:
        buffer.append(bytes(20_000))
        accept(self, *message)  # type: ignore[arg-type]

    monkeypatch.setattr(Publisher, "accept", accept_and_keep)
    assert unbooked(2, 600, ["queues", "deep_queue"])
