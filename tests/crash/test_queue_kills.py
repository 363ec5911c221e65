"""Priorities, deduplication, retained messages and delivery counts over SIGKILL.

Each queue is filled and worked on, the broker killed at a moment that the seed chooses, and after
each start the queue asked for what was promised.  Marks are persistent messages whose confirm tells
that what the same connection settled before is durable.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker
from support.crash.letter_load import browsed
from support.http.http_api import Api
from support.wire import raw

#: A journal of 64 KiB: some checkpoints in each of these tests.
SHORT: Final = {"journal_bytes_max": "65536"}
KILLS: Final = 3

BOTH: Final = pytest.mark.parametrize(
    ("seed", "settings"), [(1, {}), (2, SHORT)], ids=["long", "short"]
)


@pytest.fixture(autouse=True)
def own_broker() -> None:
    """These tests start processes of their own."""
    need_own_broker()


class Link(raw.Connection):
    """A connection whose channel 2 tells, by marks, what is durable."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(broker.host, broker.port)
        self.handshake()
        self.open_channel(1)
        self.open_channel(2)
        self.call(2, "confirm.select")
        self.declare(2, "marks", durable=True)

    def mark(self) -> None:
        """Wait until what was settled is durable."""
        self.send(raw.publish(2, "", "marks", b"", delivery_mode=2))
        self.expect(2, "basic.ack")

    def read(self, queue: str) -> list[raw.Method]:
        """Take all that waits, unacked."""
        got: list[raw.Method] = []
        while (one := self.get(1, queue, no_ack=False)) is not None:
            got.append(one)
        return got

    def ack(self, taken: Sequence[raw.Method]) -> None:
        """Ack what was taken; a mark tells when it is durable."""
        self.send(*[raw.method(1, "basic.ack", delivery_tag=one.delivery_tag) for one in taken])


def define(broker: BrokerProcess, queue: str, **arguments: object) -> None:
    """Declare a durable queue."""
    with Link(broker) as link:
        link.declare(1, queue, durable=True, arguments=arguments)


def message(queue: str, number: int, **values: Any) -> bytes:
    """A persistent publish whose body begins with its number."""
    body = b"%d " % number + bytes(1500)
    return raw.publish(1, "", queue, body, delivery_mode=2, message_id=f"{number}", **values)


def publish_and_kill(broker: BrokerProcess, frames: list[bytes], confirms: int) -> int:
    """Publish, kill at that confirm or the next that comes; return how many were confirmed."""
    with raw.connect(broker.uri) as connection:
        connection.open_channel(1)
        connection.call(1, "confirm.select")
        connection.send(*frames)
        confirmed = 0
        while confirmed < confirms:
            confirmed = connection.expect(1, "basic.ack").delivery_tag
        broker.kill()
        try:
            while True:
                confirmed = connection.expect(1, "basic.ack").delivery_tag
        except raw.Closed:
            return confirmed


def publish_all(broker: BrokerProcess, frames: list[bytes]) -> None:
    """Publish and wait until all is confirmed."""
    with raw.connect(broker.uri) as connection:
        connection.open_channel(1)
        connection.call(1, "confirm.select")
        connection.send(*frames)
        while connection.expect(1, "basic.ack").delivery_tag < len(frames):
            pass


def number_of(got: raw.Method) -> int:
    """The number of a message."""
    number = int(raw.decode_properties(got.properties)["message_id"])
    assert got.body == b"%d " % number + bytes(1500)
    return number


def waiting(broker: BrokerProcess, queue: str) -> list[int]:
    """The numbers of what waits, not taken."""
    with Link(broker) as link:
        return [int(found.id) for found in browsed(link, queue)]


def count_of(got: raw.Method) -> int:
    """How often a message came back."""
    headers = raw.decode_properties(got.properties).get("headers", {})
    return int(headers.get("x-delivery-count", 0))


# -- priorities ------------------------------------------------------------------------------------


@BOTH
def test_priorities(tmp_path: Path, seed: int, settings: dict[str, str]) -> None:
    """The order is that of priorities and, within, of the publishes, also of what came back."""
    chance = random.Random(seed)
    priorities: list[int] = []
    needed: set[int] = set()
    acked: set[int] = set()
    with BrokerProcess(tmp_path, settings=settings) as broker:
        define(broker, "q", **{"x-max-priority": 5})
        for _ in range(KILLS):
            first = len(priorities)
            priorities += [chance.randrange(8) for _ in range(60)]
            new = range(first, len(priorities))
            frames = [message("q", number, priority=priorities[number]) for number in new]
            confirmed = publish_and_kill(broker, frames, chance.randrange(1, 60))
            needed |= set(range(first, first + confirmed))
            broker.start()
            with Link(broker) as link:
                got = link.read("q")
                numbers = [number_of(one) for one in got]
                assert numbers == sorted(numbers, key=lambda n: (-min(priorities[n], 5), n))
                assert len(set(numbers)) == len(numbers)
                assert set(numbers) >= needed
                assert not acked & set(numbers)
                assert all(one.redelivered for one in got)
                gone = chance.sample(range(len(got)), len(got) // 2)
                link.ack([got[place] for place in gone])
                link.mark()
            acked |= {numbers[place] for place in gone}
            needed = set(numbers) - acked
        broker.restart()
        assert set(waiting(broker, "q")) == needed


# -- deduplication ---------------------------------------------------------------------------------


@BOTH
def test_deduplication(tmp_path: Path, seed: int, settings: dict[str, str]) -> None:
    """What was confirmed is refused after a kill, also when it was consumed meanwhile."""
    chance = random.Random(seed)
    frames = [message("q", number, headers={"key": f"k{number}"}) for number in range(80)]
    there: set[int] = set()
    consumed: set[int] = set()
    with BrokerProcess(tmp_path, settings=settings) as broker:
        define(broker, "q", **{"x-deduplication-header": "key"})
        for _ in range(KILLS):
            confirmed = publish_and_kill(broker, frames, chance.randrange(1, 80))
            broker.start()
            numbers = waiting(broker, "q")
            assert len(set(numbers)) == len(numbers), "twice"
            assert set(numbers) | consumed >= there | set(range(confirmed)), "lost"
            assert not consumed & set(numbers), "a key of a consumed message was forgotten"
            with Link(broker) as link:
                got = [link.get(1, "q", no_ack=False) for _ in range(min(5, len(numbers)))]
                taken = [one for one in got if one is not None]
                link.ack(taken)
                link.mark()
                consumed |= {number_of(one) for one in taken}
            there = set(numbers)
        publish_all(broker, frames)
        assert sorted(waiting(broker, "q")) == sorted(set(range(80)) - consumed)


# -- retained messages -----------------------------------------------------------------------------


def test_retained_messages(tmp_path: Path) -> None:
    """Acked messages are retained over a kill, and a rewind that was answered has happened."""
    chance = random.Random(1)
    sent = 0
    with BrokerProcess(tmp_path, settings=SHORT) as broker:
        define(broker, "q", **{"x-retain-acked": "1h"})
        for _ in range(KILLS):
            publish_all(broker, [message("q", number) for number in range(sent, sent + 40)])
            sent += 40
            with Link(broker) as link:
                got = link.read("q")
                assert [number_of(one) for one in got] == list(range(sent))
                chosen = chance.sample(range(sent), 30)
                link.ack([got[place] for place in chosen[:20]])
                link.mark()
                link.ack([got[place] for place in chosen[20:]])
                broker.kill()
            broker.start()
            numbers = waiting(broker, "q")
            assert set(range(sent)) - set(chosen) <= set(numbers)
            assert not set(numbers) & set(chosen[:20]), "a durable ack was forgotten"
            assert numbers == sorted(set(numbers))
            api = Api(tmp_path / "management.sock")
            _, shown = api.ask("GET", "/api/queues/%2F/q")
            assert isinstance(shown, dict)
            assert shown["messages_retained"] == sent - len(numbers)
            answer = api.ask("POST", "/api/queues/%2F/q/rewind", {"timestamp": 0})
            broker.kill()
            api.close()
            assert answer == (200, {"messages": sent - len(numbers)})
            broker.start()
            assert waiting(broker, "q") == list(range(sent))


# -- policies --------------------------------------------------------------------------------------

#: Policies that let all but ten messages die, or all.
TOO_LONG: Final = {"max-length": 10}
TOO_OLD: Final = {"message-ttl": 1}


@pytest.mark.parametrize(("definition", "left"), [(TOO_LONG, 10), (TOO_OLD, 0)], ids=["len", "ttl"])
def test_a_policy_that_drops(tmp_path: Path, definition: dict[str, object], left: int) -> None:
    """What a new policy lets die is dead-lettered once, over a kill behind the answer."""
    letters = {"dead-letter-exchange": "", "dead-letter-routing-key": "dead"}
    policy = {"pattern": "^q$", "definition": definition | letters}
    count = 1000
    with BrokerProcess(tmp_path, settings=SHORT) as broker:
        define(broker, "q")
        define(broker, "dead")
        frames = [raw.publish(1, "", "q", message_id=f"{n}", delivery_mode=2) for n in range(count)]
        publish_all(broker, frames)
        for _ in range(2):
            api = Api(tmp_path / "management.sock")
            assert api.change("PUT", "/api/policies/%2F/drop", policy) in (201, 204)
            broker.crash()
            api.close()
        with Link(broker) as link:
            counts = (link.declare(1, "q", passive=True).message_count for _ in range(10_000))
            assert left in counts
        rest = waiting(broker, "q")
        assert rest == list(range(count - left, count))
        assert sorted(waiting(broker, "dead") + rest) == list(range(count))


# -- delivery counts -------------------------------------------------------------------------------

LIMIT: Final = 3
WAYS: Final = ("reject", "fail", "close")


def give_back(link: Link, got: list[raw.Method], way: str) -> None:
    """Return all that was taken."""
    if way == "reject":
        for one in got:
            link.send(raw.method(1, "basic.reject", delivery_tag=one.delivery_tag, requeue=True))
    elif way == "fail":
        link.send(raw.method(1, "basic.ack", delivery_tag=1 << 40))
        link.expect_channel_close(1, 406)
    else:
        link.call(1, "channel.close", code=200)


def test_delivery_counts(tmp_path: Path) -> None:
    """However they fail: within the limit, and never below what was synced."""
    chance = random.Random(1)
    low = dict.fromkeys(range(20), 0)
    high = dict.fromkeys(range(20), 0)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    with BrokerProcess(tmp_path, settings=SHORT) as broker:
        define(broker, "dead")
        define(broker, "q", **arguments, **{"x-queue-type": "quorum", "x-delivery-limit": LIMIT})
        publish_all(broker, [message("q", number) for number in low])
        rounds = 0
        while low:
            rounds += 1
            assert rounds < 20
            # Bodies that begin a checkpoint.
            publish_all(broker, [message("marks", number) for number in range(50)])
            with Link(broker) as link:
                got = link.read("q")
                counts = {number_of(one): count_of(one) for one in got}
                for number, count in counts.items():
                    assert low[number] <= count <= min(high[number], LIMIT), number
                missing = set(low) - set(counts)
                assert all(high[number] > LIMIT for number in missing)
                assert set(waiting(broker, "dead")) >= missing, "lost"
                low = {number: low[number] for number in counts}
                if got:
                    give_back(link, got, WAYS[rounds % 3])
                    high = {number: count + 1 for number, count in counts.items()}
                    if chance.randrange(3):
                        link.mark()
                        low = {n: count + 1 for n, count in counts.items() if count < LIMIT}
                        high = {n: count for n, count in high.items() if n in low}
                broker.kill()
            broker.start()
        with Link(broker) as link:
            dead = link.read("dead")
        assert sorted(number_of(one) for one in dead) == list(range(20))
        for one in dead:
            (death,) = raw.decode_properties(one.properties)["headers"]["x-death"]
            assert (death["reason"], death["count"], death["queue"]) == ("delivery_limit", 1, "q")
        assert rounds > LIMIT
