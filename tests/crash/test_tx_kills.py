"""A transaction of publishes, acks, rejects and returns is whole or absent after a SIGKILL.

Its rejects make dead letters, which belong to it.  The kill comes before the last byte of
`tx.commit`, right behind it, some round trips of another connection later, or behind `commit-ok`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker
from support.crash.letter_load import browsed
from support.wire import raw

SHORT: Final = {"journal_bytes_max": "65536"}
KILLS: Final = 8

#: What lies in `tasks` at the beginning; each transaction ends two of them.
TASKS: Final = 150


@pytest.fixture(autouse=True)
def own_broker() -> None:
    """These tests start processes of their own."""
    need_own_broker()


@dataclass
class State:
    """What the three queues hold, by message ids, each in its order."""

    tasks: list[str] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    out: list[str] = field(default_factory=list)


class Transactions:
    """Works on `tasks` by transactions, one at a time, and knows the state before and after."""

    def __init__(self, seed: int, settings: dict[str, str], broker: BrokerProcess) -> None:
        self.random = random.Random(seed)
        self.broker = broker
        self.fat = bool(settings)
        self.state = State()
        self.number = 0
        self.outcomes: list[bool] = []

    def define(self) -> None:
        """Declare the queues and fill `tasks`."""
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        with raw.connect(self.broker.uri) as connection:
            connection.open_channel(1)
            connection.declare(1, "tasks", durable=True, arguments=arguments)
            for queue in ("dead", "out"):
                connection.declare(1, queue, durable=True)
            connection.call(1, "confirm.select")
            self.state.tasks = [f"t{n}" for n in range(TASKS)]
            for name in self.state.tasks:
                connection.send(publish("tasks", name, b"task"))
            while connection.expect(1, "basic.ack").delivery_tag < TASKS:
                pass

    def begin(self, connection: raw.Connection) -> tuple[bytes, State]:
        """Take four tasks; return the frames of a transaction, and the state after its commit.

        One is acked, one rejected, one returned, one left alone; two messages are published.
        """
        got = [connection.get(1, "tasks", no_ack=False) for _ in range(4)]
        tags = {id_of(one): one.delivery_tag for one in got if one is not None}
        acked, rejected, returned, _ = self.random.sample(sorted(tags), 4)
        size = 20_000 if self.fat else 10
        sent = [f"o{self.number}", f"o{self.number + 1}"]
        self.number += 2
        frames = [publish("out", name, self.random.randbytes(size)) for name in sent]
        frames.insert(1, raw.method(1, "basic.ack", delivery_tag=tags[acked]))
        frames.insert(0, raw.method(1, "basic.reject", delivery_tag=tags[rejected]))
        values = {"delivery_tag": tags[returned], "requeue": True}
        frames.insert(2, raw.method(1, "basic.nack", **values))
        before = self.state
        tasks = [name for name in before.tasks if name not in (acked, rejected)]
        after = State(tasks, [*before.dead, rejected], before.out + sent)
        return b"".join(frames), after

    def round(self, how: str) -> None:
        """Commit some transactions, then kill the broker around the commit of one more."""
        other = raw.connect(self.broker.uri)
        other.open_channel(1)
        for _ in range(self.random.randrange(3)):
            with raw.connect(self.broker.uri) as connection:
                frames, after = self.begin_on(connection)
                connection.send(frames)
                connection.call(1, "tx.commit")
                self.state = after
                connection.close()
        connection = raw.connect(self.broker.uri)
        frames, after = self.begin_on(connection)
        promised = self.commit_and_kill(connection, other, frames, how)
        for one in (connection, other):
            one.socket.close()
        self.broker.start()
        self.judge(after, promised=promised, whole=how != "cut")

    def begin_on(self, connection: raw.Connection) -> tuple[bytes, State]:
        """Begin a transaction on a new channel."""
        connection.open_channel(1)
        connection.call(1, "tx.select")
        return self.begin(connection)

    def commit_and_kill(
        self, connection: raw.Connection, other: raw.Connection, frames: bytes, how: str
    ) -> bool:
        """Send a commit and kill; tell whether it was answered."""
        commit = raw.method(1, "tx.commit")
        connection.send(frames, commit[:-1] if how == "cut" else commit)
        if how == "answered":
            connection.expect(1, "tx.commit-ok")
        elif how != "at once":
            for _ in range(self.random.randrange(1, 4)):
                other.sync(1)
        self.broker.kill()
        if how == "answered":
            return True
        try:
            connection.expect(1, "tx.commit-ok")
        except raw.Closed:
            return False
        return True

    def judge(self, after: State, *, promised: bool, whole: bool) -> None:
        """Read the queues: they are as before or as after, and as after if that was promised."""
        found = State()
        with raw.connect(self.broker.uri) as connection:
            connection.open_channel(1)
            for queue, ids in (("tasks", found.tasks), ("dead", found.dead), ("out", found.out)):
                for one in browsed(connection, queue):
                    ids.append(one.id)
                    deaths = one.values.get("headers", {}).get("x-death", [])
                    assert [
                        (death["queue"], death["reason"], death["count"]) for death in deaths
                    ] == ([("tasks", "rejected", 1)] if queue == "dead" else [])
        assert found in (self.state, after), f"torn: {found}, not {self.state} nor {after}"
        assert found == after or not promised, f"lost: {found}, not {after}"
        assert found == self.state or whole, f"a commit that was not sent: {found}"
        self.outcomes.append(found == after)
        self.state = found


def id_of(got: raw.Method) -> str:
    """The message id of a delivery."""
    return str(raw.decode_properties(got.properties)["message_id"])


def publish(queue: str, name: str, body: bytes) -> bytes:
    """A persistent publish."""
    return raw.publish(1, "", queue, body, message_id=name, delivery_mode=2)


@pytest.mark.parametrize(("seed", "settings"), [(1, {}), (2, SHORT)], ids=["long", "short"])
def test_a_commit_is_whole_or_absent(tmp_path: Path, seed: int, settings: dict[str, str]) -> None:
    checkpoints = 0
    with BrokerProcess(tmp_path, settings=settings) as broker:
        scenario = Transactions(seed, settings, broker)
        scenario.define()
        for number in range(KILLS):
            scenario.round(["cut", "at once", "later", "answered"][number % 4])
            checkpoints += broker.output.count("checkpoint")
        assert broker.terminate() == 0
    assert set(scenario.outcomes) == {False, True}
    assert not settings or checkpoints
